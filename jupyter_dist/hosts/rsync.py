"""Copy the user's own files to a host's stage folder with rsync."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ..errors import InputError
from .openssh import LOCAL, SshSettings, connection_refused, options
from .settings import HostSettings

__all__ = ["Sync", "check", "failure", "start"]

_BUSY_TRIES = 8


def check(paths: Sequence[str]) -> None:
    """Check rsync and the paths. Raises InputError if rsync or one of the paths is missing here."""
    if not paths:
        return
    if shutil.which("rsync") is None:
        raise InputError("--rsync needs rsync on this machine (and on the hosts): apt-get install rsync")
    for path in paths:
        if not Path(path).expanduser().exists():
            raise InputError(f"--rsync: there is no file or folder {path!r}")


def start(host: str, work: str, paths: Sequence[str], settings: SshSettings) -> subprocess.Popen[bytes]:
    """Begin to copy into the folder `work` of the host. The process's stderr is a pipe. Raises OSError."""
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
    # `.` copies the folder's contents; another folder keeps its name. An absolute path cannot mean `host:`.
    absolute = str(Path(path).expanduser().absolute())
    return absolute + "/" if path.rstrip("/") in (".", "./.") or path.endswith("/") else absolute


def failure(code: int, said: str) -> str:
    """Describe for the user why rsync failed."""
    lines = [line for line in said.strip().splitlines() if line.strip()]
    # The first line is the cause. With a full disk the other side may print first, so this line moves up.
    lines.sort(key=lambda line: "No space left" not in line)
    if code == 127 or "rsync: not found" in said or "rsync: command not found" in said:
        return "--rsync needs rsync there as well: apt-get install rsync"
    return f"rsync failed with exit code {code}: {' '.join(lines[:2])[:400]}"


class Sync:
    """The copy of the user's own files to one host, if ssh connects to it and --rsync names files."""

    def __init__(self, host: str, settings: HostSettings) -> None:
        self._host = host
        self._settings = settings if isinstance(settings, SshSettings) and settings.rsync else None
        self.done = self._settings is None
        self._process: subprocess.Popen[bytes] | None = None
        self._tries_left = _BUSY_TRIES
        self._work = ""
        self._failed: str | None = None

    @property
    def under_way(self) -> bool:
        return self._process is not None

    def begin(self, work: str) -> None:
        """Begin to copy into this folder of the host, unless the copy is done or running."""
        if self.done or self._process is not None or self._settings is None:
            return
        self._work = work
        try:
            self._process = start(self._host, work, self._settings.rsync, self._settings)
        except OSError as error:
            self._failed = f"cannot run rsync: {error.strerror or error}"

    def look(self) -> str | None:
        """Check the copy, and repeat it if sshd refused it. Returns why the copy has failed, if it has."""
        if self._process is None or self._process.poll() is None:
            return self._failed
        ended, self._process = self._process, None
        assert ended.stderr is not None
        with contextlib.closing(ended.stderr):
            said = ended.stderr.read().decode(errors="replace")
        if ended.returncode and connection_refused(said) and self._tries_left:
            self._tries_left -= 1
            self.begin(self._work)
        elif ended.returncode:
            self._failed = failure(ended.returncode, said)
        else:
            self.done = True
        return self._failed

    def close(self) -> None:
        """Kill a running copy. Repeatable."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
