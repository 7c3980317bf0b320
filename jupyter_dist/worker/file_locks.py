"""Locks between threads, processes and hosts, on files. No lock outlives its process.

`flock` makes such a lock, and the kernel frees it. Some file systems refuse `flock`: Lustre without the mount
option `flock`, and NFS without a lock daemon. There the lock is a claim: a file beside the locked file, whose
name ends with a number. The claim with the highest number counts, and contains the identity of its owner. If
the owner has freed it or has ended, the next owner makes a claim with the next number. Only one process can
make that file. The file with the highest number always stays, so no number is used twice.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator

from .line_file import write_all
from .process_identity import boot_id, start_ticks

__all__ = ["Lock", "is_recent", "locked", "try_lock"]

_REFUSED = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP}
_RECENT_S = 30.0
_POLL_S = 0.002
_FREE = b"null"
"""The content of a claim that its owner has freed."""


class Lock:
    """A lock of this process."""

    def __init__(self, fd: int | None, claim: str | None) -> None:
        self._fd, self._claim = fd, claim

    def release(self) -> None:
        if self._claim is not None:
            with contextlib.suppress(OSError), open(self._claim, "wb") as file:
                file.write(_FREE)
        if self._fd is not None:
            fcntl.flock(self._fd, fcntl.LOCK_UN)  # a process that was forked meanwhile has a copy of `_fd`
            os.close(self._fd)


def is_recent(age_s: float) -> bool:
    """Return whether a lock of this age may still belong to a process on another host."""
    return age_s < _RECENT_S


def try_lock(path: str | os.PathLike[str], lives: Callable[[float], bool] = is_recent) -> Lock | None:
    """Lock a file, which is created if it is missing. Returns None if another owner has it locked.

    `lives`: whether an owner on another host lives, who locked the file so many seconds ago. This function
    is called only on a file system without `flock`. The default suits locks that are never kept for 30 s.
    Raises OSError.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except OSError as error:
        os.close(fd)
        if error.errno not in _REFUSED:
            raise
        claim = _claimed(os.fspath(path), lives)
        return None if claim is None else Lock(None, claim)
    return Lock(fd, None)


@contextlib.contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Lock a file during this context. Waits until the file is free. Raises OSError."""
    lock = None
    try:
        while (lock := try_lock(path)) is None:
            time.sleep(_POLL_S)
        yield
    finally:
        if lock is not None:
            lock.release()


def _claimed(path: str, lives: Callable[[float], bool]) -> str | None:
    """Make the next claim and return its path. Returns None if the present claim has a living owner."""
    newest = max(_numbers(path), default=0)
    if newest and _is_owned(path, newest, lives):
        return None
    own = f"{path}.{newest + 1}"
    try:
        fd = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return None
    try:
        write_all(fd, json.dumps([_place(), boot_id(), os.getpid(), start_ticks(os.getpid())]).encode())
    except OSError:
        os.unlink(own)
        raise
    finally:
        os.close(fd)
    numbers = _numbers(path)
    if max(numbers, default=0) != newest + 1:
        # Two owners came and went since this process looked, and the claim with this number was removed.
        with contextlib.suppress(OSError):
            os.unlink(own)
        return None
    for number in numbers:
        if number <= newest:
            with contextlib.suppress(OSError):
                os.unlink(f"{path}.{number}")
    return own


def _numbers(path: str) -> list[int]:
    folder, name = os.path.split(path)
    suffixes = (each[len(name) + 1 :] for each in os.listdir(folder or ".") if each.startswith(f"{name}."))
    return [int(suffix) for suffix in suffixes if suffix.isdecimal()]


def _is_owned(path: str, number: int, lives: Callable[[float], bool]) -> bool:
    claim = f"{path}.{number}"
    try:
        os.utime(path)  # both times are then by the clock of the file system
        age_s = os.stat(path).st_mtime - os.stat(claim).st_mtime
        with open(claim, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return True  # of the owner of a newer claim
    if data == _FREE:
        return False
    try:
        place, boot, pid, ticks = json.loads(data)
    except (ValueError, TypeError):
        return is_recent(age_s)  # the owner is writing the content, or was killed before
    if place != _place():
        return lives(age_s)
    return bool(boot == boot_id() and start_ticks(int(pid)) == ticks)


def _place() -> str:
    """Return this host and, in a container, its namespace of pids."""
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()
