"""Many hosts that refuse, hang or drop: no turn of the supervisor waits for one of them."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist import folder as folders
from jupyter_dist.folder import RunFolder
from jupyter_dist.hosts import fleet as _fleet
from jupyter_dist.hosts.fleet import Fleet, FleetPoll
from jupyter_dist.hosts.links.ssh_transport import SshTransport
from jupyter_dist.hosts.openssh import SshSettings
from jupyter_dist.hosts.ssh_diagnosis import diagnose
from jupyter_dist.job import Job
from tests.rigs.stopwatch import Stopwatch, WaitFor

_HOSTS = 64
_TURN_S = 0.2

_SSH = """#!/bin/sh
case " $* " in
  *" -G "*) echo "hostname real-name"; echo "port 2222"; exit 0;;
  *" -v "*) sleep 0.5; echo "Offering public key: /my/key RSA SHA256:x" >&2
            echo "Server host key: ssh-ed25519 SHA256:abc" >&2; exit 255;;
  *" refuse"*) echo "me@h: Permission denied (publickey)." >&2; exit 255;;
  *" unknown"*) echo "Host key verification failed." >&2; exit 255;;
  *" drop"*) sleep 0.3; exit 255;;
  *) exec sleep 1000;;
esac
"""


@pytest.fixture
def folder(own_folders: Path) -> RunFolder:
    made = folders.create(own_folders, "20261120-120000-abcd12", _HOSTS)
    made.payload.write_bytes(b"a payload")
    folders.write_json(made.job, {})
    return made


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(_SSH)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return program


@contextlib.contextmanager
def one_turn() -> Iterator[None]:
    """Fail if the turn is long, or if it makes a call that waits, however short the wait is here.

    Other threads may wait, such as one that an earlier test of this process has left to a library.
    """
    turn = threading.get_ident()

    def forbidden(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            assert threading.get_ident() != turn, "a turn of the supervisor waits"
            return original(*args, **options)

        return call

    watch = Stopwatch()
    with pytest.MonkeyPatch.context() as waits:
        for owner, names in (
            (subprocess, ("run", "check_output", "call")),
            (subprocess.Popen, ("wait", "communicate")),
            (time, ("sleep",)),
        ):
            for name in names:
                waits.setattr(owner, name, forbidden(getattr(owner, name)))
        yield
    assert watch.under(_TURN_S), "one turn was too long"


def a_fleet(folder: RunFolder, names: list[str]) -> Fleet:
    job = Job(folder.id, "ssh", len(names), 0.0, "/tmp", sys.executable, "1")
    return Fleet(job, folder, [{"name": name, "slots": 1} for name in names], SshSettings())


def turns(fleet: Fleet, until: Callable[[FleetPoll], bool]) -> FleetPoll:
    """Poll as a supervisor does, and measure each turn."""
    while True:
        with one_turn():
            state = fleet.poll()
        if until(state):
            return state
        fleet.wait(0.05)


@pytest.mark.parametrize("kinds", [("refuse",), ("unknown",), ("refuse", "hang", "drop", "unknown")])
def test_no_turn_waits_for_a_host(
    kinds: tuple[str, ...],
    folder: RunFolder,
    ssh: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_fleet, "_STRAGGLERS_S", math.inf)
    fleet = a_fleet(folder, [f"{kinds[n % len(kinds)]}{n}" for n in range(_HOSTS)])
    with one_turn():
        fleet.begin()
    if "hang" in kinds:
        others = [host for host in fleet.members if not host.name.startswith("hang")]
        turns(fleet, lambda _: all(host.failed and not host.diagnosis for host in others))
        monkeypatch.setattr(_fleet, "_STRAGGLERS_S", 0.0)
    failed = str(turns(fleet, lambda state: state.failed is not None).failed)
    for name in ("refuse", "unknown", "drop"):
        if name in kinds:
            assert failed.count(f"  {name}") == _HOSTS // len(kinds)
    if "refuse" in kinds:
        assert "it was offered '/my/key'" in failed
        assert "ssh-copy-id refuse0" in failed
    if "unknown" in kinds:
        assert "It offers ssh-ed25519 SHA256:abc" in failed
        assert "ssh-keyscan -p 2222 real-name >> ~/.ssh/known_hosts" in failed


def test_a_stop_during_the_diagnosis_leaves_no_process(
    folder: RunFolder, ssh: Path, wait_for: WaitFor
) -> None:
    """The release ends the diagnoses, whose logins hang here."""
    ssh.write_text(_SSH.replace("sleep 0.5", "exec sleep 1000"))
    fleet = a_fleet(folder, [f"refuse{n}" for n in range(6)])
    fleet.begin()
    turns(fleet, lambda state: len(_children(ssh)) > 3)
    fleet.release()
    wait_for(lambda: not _children(ssh))


def _children(ssh: Path) -> list[str]:
    """The processes that run with this test's PATH, apart from this one."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                environ = Path(f"/proc/{name}/environ").read_bytes()
            except OSError:
                continue
            if str(ssh.parent).encode() in environ:
                found.append(name)
    return found


def test_a_cause_is_said_at_once_and_becomes_more_exact(ssh: Path, wait_for: WaitFor) -> None:
    found = diagnose("refuse", SshSettings(), 255, "me@x: Permission denied (publickey).", "")
    assert "it refuses the login (me@x: Permission denied (publickey).). Passwords are never" in found.text
    assert "offer" not in found.text
    wait_for(found.look)
    assert "it was offered '/my/key': load your key with ssh-add" in found.text
    found.close()


def test_a_retry_that_fails_in_the_same_way_is_not_examined_again(ssh: Path, wait_for: WaitFor) -> None:
    transport = SshTransport("refuse", SshSettings())
    first = transport.unanswered(255, "me@x: Permission denied (publickey).", "")
    assert first.diagnosis is not None
    wait_for(first.diagnosis.look)
    again = transport.unanswered(255, "me@x: Permission denied (publickey).", "")
    assert "it was offered '/my/key'" in str(again)
    assert again.diagnosis is first.diagnosis
    other = transport.unanswered(255, "Host key verification failed.", "")
    assert other.diagnosis is not first.diagnosis


def test_without_ssh_the_first_text_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = diagnose("x", SshSettings(), 255, "Host key verification failed.", "")
    assert found.look()
    assert "its host key is not known here" in found.text
