"""Write down what a run was started with: Python, the packages that are installed, and the git commit.

Nothing of it delays a start: a thread begins when the run is on its way. Packages are read from their
folders' names, which takes milliseconds for hundreds. Whether the work tree is changed is what git
says, which takes as long as the tree is large, and is given up after some seconds.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..folder import RunFolder, write_json

__all__ = ["git_state", "note_down", "packages"]

_GIT_LIMIT_S = 10.0
_MOST_CHANGED = 50
# {name}-{version}.dist-info: https://packaging.python.org/en/latest/specifications/recording-installed-packages/
_DIST = re.compile(r"(.+?)-([^-]+)(?:-py[\d.]+)?\.(?:dist|egg)-info")
_known: dict[str, tuple[int, dict[str, str]]] = {}
"""Folder of modules → (its mtime, the packages in it)."""


def note_down(place: RunFolder, directory: Path, imports: Sequence[str]) -> None:
    """Write the file `environment.json` of a run in a while; returns at once. `directory`: the notebook's."""
    threading.Thread(
        target=_write, args=(place, directory, tuple(imports)), name="jupyter-dist-environment"
    ).start()


def _write(place: RunFolder, directory: Path, imports: Sequence[str]) -> None:
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "used": sorted({name.partition(".")[0] for name in imports}),
        "packages": packages(sys.path),
        "git": git_state(directory),
    }
    with contextlib.suppress(OSError):  # removed meanwhile, or a disk that is full: the run goes on without
        if place.path.is_dir():
            write_json(place.environment, found)


def packages(path: Sequence[str]) -> dict[str, str]:
    """What is installed in these folders of modules: name → version, the first folder's counts."""
    found: dict[str, str] = {}
    for folder in path:
        for name, version in _in(folder).items():
            found.setdefault(name, version)
    return dict(sorted(found.items(), key=lambda one: one[0].lower()))


def _in(folder: str) -> dict[str, str]:
    try:
        written = os.stat(folder).st_mtime_ns
        known = _known.get(folder)
        if known is None or known[0] != written:
            matches = map(_DIST.fullmatch, os.listdir(folder))
            known = _known[folder] = (
                written,
                {match[1].replace("_", "-"): match[2] for match in matches if match},
            )
        return known[1]
    except OSError:  # an archive, or not there
        return {}


def git_state(directory: Path) -> dict[str, Any] | None:
    """The commit, branch and changed files of the work tree that a folder is in; None where there is none."""
    head = _git(directory, "rev-parse", "HEAD", "--abbrev-ref", "HEAD")
    if head is None or len(head) < 2:
        return None
    changed = _git(directory, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules")
    return {
        "commit": head[0],
        "branch": None if head[1] == "HEAD" else head[1],
        "dirty": None if changed is None else bool(changed),
        "changed": [line[3:] for line in (changed or [])[:_MOST_CHANGED]],
    }


def _git(directory: Path, *words: str) -> list[str] | None:
    """The lines that git says; None where it is missing, refuses or takes too long."""
    # It writes nothing into the repository, and starts no program that the repository names.
    asked = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", str(directory), *words]
    try:
        done = subprocess.run(
            asked, capture_output=True, text=True, errors="replace", timeout=_GIT_LIMIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return [line for line in done.stdout.split("\n") if line]
