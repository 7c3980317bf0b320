"""Copy the user's own files to a host's stage folder with rsync."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ..errors import InputError
from ..worker.host.os_errors import reason
from . import child_processes
from .openssh import LOCAL, SshSettings, connection_refused, options
from .settings import HostSettings

__all__ = ["Sync", "check", "failure", "start"]

_BUSY_TRIES = 8
_KEPT_BYTES = 32768
"""How much of rsync's first output and of its last output a failure's text is made of."""


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
        self._said = b""
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
        self._work, self._said = work, b""
        try:
            self._process = start(self._host, work, self._settings.rsync, self._settings)
        except OSError as error:
            self._failed = f"cannot run rsync: {reason(error)}"

    def look(self) -> str | None:
        """Check the copy, and repeat it if sshd refused it. Returns why the copy has failed, if it has."""
        if self._process is None:
            return self._failed
        ended = self._process
        is_running = ended.poll() is None
        self._listen(ended)
        if is_running:
            return self._failed
        self.close()
        said = self._said.decode(errors="replace")
        if ended.returncode and connection_refused(said) and self._tries_left:
            self._tries_left -= 1
            self.begin(self._work)
        elif ended.returncode:
            self._failed = failure(ended.returncode, said)
        else:
            self.done = True
        return self._failed

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Read rsync's errors, because rsync waits while nobody reads them. Keep the first and the last."""
        assert process.stderr is not None
        os.set_blocking(process.stderr.fileno(), False)
        try:
            for _ in range(64):
                said = self._said + os.read(process.stderr.fileno(), 65536)
                if len(said) > 2 * _KEPT_BYTES:
                    said = said[:_KEPT_BYTES] + said[-_KEPT_BYTES:]
                self._said = said
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Kill a running copy with its ssh, and close its descriptors. Repeatable."""
        process, self._process = self._process, None
        if process is None:
            return
        child_processes.end(process)
        assert process.stderr is not None
        process.stderr.close()
