"""Provenance of a run: Python, the installed packages, and the git commit.

It does not delay a start: a thread collects it when the ranks have probably printed a first line, because
git would take a core from them. The packages are read from their folders' names, in milliseconds for hundreds
of packages. git reports the changed files of the work tree. In a large tree git is slow, and the thread stops
git after some seconds.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..folder import RunFolder, write_json
from ..worker.program_output import program_output

__all__ = ["git_state", "note_down", "packages"]

_GIT_LIMIT_S = 10.0
_LATER_S = 0.3
_MOST_CHANGED = 50
# {name}-{version}.dist-info: https://packaging.python.org/en/latest/specifications/recording-installed-packages/
_DIST = re.compile(r"(.+?)-([^-]+)(?:-py[\d.]+)?\.(?:dist|egg)-info")
_known: dict[str, tuple[int, dict[str, str]]] = {}
"""Folder of modules → (the folder's mtime, the packages in it)."""


_waiting: list[tuple[RunFolder, Path, tuple[str, ...]]] = []
"""The runs whose provenance is still to be collected, with their folders and imports."""
_collector: threading.Thread | None = None
"""The thread that will take these runs."""


def note_down(place: RunFolder, directory: Path, imports: Sequence[str]) -> None:
    """Let a thread write a run's `environment.json`. Returns at once. Cells in a row share a thread.

    `directory`: the notebook's folder.
    """
    global _collector
    _waiting.append((place, directory, tuple(imports)))
    if _collector is None or not _collector.is_alive():
        _collector = threading.Thread(target=_collect, name="jupyter-dist-environment")
        _collector.start()


def _collect() -> None:
    global _collector
    threading.main_thread().join(_LATER_S)  # a script that ends is not delayed
    _collector = None  # before the runs are taken: a later run gets a thread of its own
    runs, git = [], {}
    with contextlib.suppress(IndexError):
        while True:
            runs.append(_waiting.pop(0))
    common = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": packages(sys.path),
    }
    for place, directory, imports in runs:
        if directory not in git:
            git[directory] = git_state(directory)
        used = sorted({name.partition(".")[0] for name in imports})
        # A removed run, or a full disk: the run continues without the file.
        with contextlib.suppress(OSError):
            if place.path.is_dir():
                write_json(place.environment, {**common, "used": used, "git": git[directory]})


def packages(path: Sequence[str]) -> dict[str, str]:
    """Return the packages installed in these folders: name → version. The first folder takes precedence."""
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
    except OSError:  # an archive, or a missing folder
        return {}


def git_state(directory: Path) -> dict[str, Any] | None:
    """Return the commit, branch and changed files of a folder's git work tree; None if there is none."""
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
    """Return git's output lines; None if git is missing, fails or takes too long."""
    # With these options git writes nothing to the repository, and starts no program of its configuration.
    asked = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", str(directory), *words]
    try:
        done = program_output(asked, _GIT_LIMIT_S)
    except OSError:
        return None
    return None if done is None or done.code else [line for line in done.stdout.split("\n") if line]
