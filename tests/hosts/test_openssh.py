"""The ssh program: its options, its wrapper for launchers, and the cures for its errors."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from jupyter_dist.backends.ssh.options import SshOptions
from jupyter_dist.folder import RunFolder
from jupyter_dist.hosts import openssh
from jupyter_dist.hosts.openssh import SshSettings
from jupyter_dist.hosts.ssh_diagnosis import diagnose


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("ssh: Could not resolve hostname x: Name or service not known", "cannot be resolved"),
        ("ssh: connect to host x port 22: Connection timed out", "cannot be reached"),
        ("ssh: connect to host x port 22: No route to host", "cannot be reached"),
        ("ssh: connect to host x port 22: Connection refused", "refuses connections"),
        ("me@x: Permission denied (publickey).", "ssh-add"),
        ("/home/me/.ssh/config: line 3: Bad configuration option: hots", "does not accept its configuration"),
        ("something else", "something else"),
    ],
)
def test_what_ssh_says_is_said_with_a_cure(said: str, told: str) -> None:
    assert told in diagnose("x", SshSettings(), 255, said, "").text


def test_a_login_without_a_shell_is_told() -> None:
    why = diagnose("x", SshSettings(), 1, "", "This account is currently not available.\n").text
    assert "does not run /bin/sh" in why
    assert "This account is currently not available." in why


def test_the_options_of_ssh() -> None:
    asked = SshOptions.model_validate({"grace": "2m", "rsync": ["a,b", "c"], "ssh_port": 2222})
    settings = asked.settings()
    assert (settings.grace_s, settings.rsync, settings.port) == (120.0, ("a", "b", "c"), 2222)
    assert "2222" in openssh.options(settings)
    for wrong in ({"grace": 1}, {"python": "a\nb"}, {"remote_dir": " "}, {"ssh_port": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            SshOptions.model_validate(wrong)


def test_ssh_as_launchers_call_it(folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "bin" / "ssh"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\nfor word; do echo "$word"; done\n')
    fake.chmod(0o700)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    script = openssh.ssh_script(folder, SshSettings(config="/tmp/a 'config'"))
    shown = subprocess.run([script, "h1", "a command"], capture_output=True, text=True, check=True)
    words = shown.stdout.splitlines()
    assert words[:2] == ["-F", "/tmp/a 'config'"]
    assert words[-2:] == ["h1", "a command"]
    assert "BatchMode=yes" in words
