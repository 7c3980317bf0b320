"""Which Python of a host the script of hosts/openssh.py runs, and what a host with another one is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_dist.hosts import openssh
from jupyter_dist.hosts.settings import HostSettings
from jupyter_dist.hosts.staged_files import Shipped, stage_wish
from jupyter_dist.job import Job
from jupyter_dist.worker import layout, payload

OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"
OTHER = "3.12" if OWN != "3.12" else "3.13"
FAKE = """#!/bin/sh
case "$*" in
    *version_info*) echo {version} ;;
    *) echo "ran $0 for $4" ;;
esac
"""


def chosen(folder: Path, *versions: str, other_python: bool) -> str:
    """What the script prints where these Pythons are found in this order; `none` is a path without a file."""
    paths = []
    for number, version in enumerate(versions):
        path = folder / f"{number}-{version}"
        if version != "none":
            path.write_text(FAKE.format(version=version))
            path.chmod(0o700)
        paths.append(str(path))
    done = subprocess.run(
        openssh.command(openssh.LOCAL, openssh.SshSettings()),
        input=openssh.opening("word", paths, other_python),
        capture_output=True,
        check=False,
    )
    return done.stdout.decode().strip().replace(f"{folder}/", "")


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (("none", OWN), f"ran 1-{OWN} for word"),
        ((OTHER, OWN), f"ran 1-{OWN} for word"),
        (("none", "3.8", OTHER, "3.19"), f"ran 2-{OTHER} for word"),
        (("3.8", "3.9"), "ran 1-3.9 for word"),
        (("3.7", "3.8"), "word python , 0-3.7 is 3.7, 1-3.8 is 3.8"),
        (("2.7", "3.1"), "word python , 0-2.7 is 2.7, 1-3.1 is 3.1"),
        (("none",), "word python"),
    ],
)
def test_the_notebook_s_version_comes_first_and_then_any_that_runs_ranks(
    tmp_path: Path, versions: tuple[str, ...], expected: str
) -> None:
    assert chosen(tmp_path, *versions, other_python=True) == expected


def test_without_the_flag_only_the_notebook_s_version_will_do(tmp_path: Path) -> None:
    assert chosen(tmp_path, OTHER, OWN, other_python=False) == f"ran 1-{OWN} for word"
    there = f"word python , 0-{OTHER} is {OTHER}, 1-3.9 is 3.9"
    assert chosen(tmp_path, OTHER, "3.9", other_python=False) == there


@pytest.mark.parametrize(("flag", "hint"), [(False, True), (None, True), (True, False)])
def test_a_host_without_the_notebook_s_version_is_told_of_the_flag(flag: bool | None, hint: bool) -> None:
    told = openssh.no_python(openssh.SshSettings(other_python=flag), f"/p is {OTHER}")
    assert told.endswith(". Or add --other-python") == hint
    assert not openssh.no_python(openssh.SshSettings(other_python=flag), "/p is 3.8").endswith("other-python")


@pytest.mark.parametrize(
    ("flag", "lacking", "said"),
    [
        (None, {}, "Only the same version can read the pickled cell. Run it with Python {own}"),
        (False, {}, "Run it with Python {own}. Or add --other-python"),
        (True, {}, ""),
        (
            True,
            {"f (x:1)": "why"},
            "Only Python {own} can run this function: f (x:1): why. Define this function",
        ),
        (True, {"f (x:1)": "a", "g (x:2)": "b"}, "these functions: f (x:1): a; g (x:2): b. Define these"),
    ],
    ids=["no such flag", "without the flag", "with the flag", "a function", "functions"],
)
def test_what_a_host_with_another_python_is_told(
    tmp_path: Path, flag: bool | None, lacking: dict[str, str], said: str
) -> None:
    payload.write(tmp_path / layout.PAYLOAD, {"kind": "cell", "same_python": lacking}, b"")
    file = Shipped(f"run/{layout.PAYLOAD}", 1, tmp_path / layout.PAYLOAD)
    wish = stage_wish(
        HostSettings(other_python=flag),
        Job("r", "ssh", 2, 0.0, "/tmp", sys.executable, "1", options={}),
        0,
        "h1",
        [file],
    )
    told = wish["other_python"]
    assert said.format(own=OWN) in told
    assert bool(told) == bool(said)
    assert ("--other-python" in told) == (flag is False)
