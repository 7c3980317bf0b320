"""Copy the user's own files to a host's stage folder with rsync."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ..errors import InputError
from .openssh import LOCAL, SshSettings, options

__all__ = ["check", "failure", "start"]


def check(paths: Sequence[str]) -> None:
    """Raises InputError when rsync or one of the paths is missing here."""
    if not paths:
        return
    if shutil.which("rsync") is None:
        raise InputError("--rsync needs rsync on this machine (and on the hosts): apt-get install rsync")
    for path in paths:
        if not Path(path).expanduser().exists():
            raise InputError(f"--rsync: there is no file or folder {path!r}")


def start(host: str, work: str, paths: Sequence[str], settings: SshSettings) -> subprocess.Popen[bytes]:
    """Begin to copy into the folder `work` of the host; stderr is a pipe. OSError passes through."""
    sources = [_source(path) for path in paths]
    argv = ["rsync", "--archive", "--no-owner", "--no-group", "--protect-args"]
    if host == LOCAL:
        target = f"{work}/"
    else:
        argv += ["--rsh", shlex.join(["ssh", *options(settings)])]
        target = f"{host}:{work}/"
    return subprocess.Popen(
        [*argv, "--", *sources, target],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def _source(path: str) -> str:
    # `.` means what the folder holds; a named folder arrives under its name. Absolute: no `host:` in it.
    absolute = str(Path(path).expanduser().absolute())
    return absolute + "/" if path.rstrip("/") in (".", "./.") or path.endswith("/") else absolute


def failure(code: int, said: str) -> str:
    """Why rsync failed, for the user."""
    lines = [line for line in said.strip().splitlines() if line.strip()]
    # What went wrong first comes first; but for a full disk, whose other side may be the first to speak.
    lines.sort(key=lambda line: "No space left" not in line)
    if code == 127 or "rsync: not found" in said or "rsync: command not found" in said:
        return "--rsync needs rsync there as well: apt-get install rsync"
    return f"rsync failed with exit code {code}: {' '.join(lines[:2])[:400]}"
