"""The record of GPU use on this machine: a file for each run, valid while its processes live.

The files are in a folder that all users of the machine share. Only a file's owner writes it. The owner locks
the file (`flock`, shared) while it lives, and so does every rank of the run. The kernel releases the lock
when the last of them has ended, however it ended. A reader tries to lock the file itself. If that succeeds,
the file has no owner any more. The content of another user's file is not trusted. The kernel reports the
file's owner.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import pwd
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..line_file import write_all
from .devices import Gpu

__all__ = [
    "FOLDER",
    "LEASE",
    "Entry",
    "Holder",
    "Unusable",
    "enter",
    "hold",
    "holders",
    "leave",
    "problem",
    "turn",
]

FOLDER = "JUPYTER_DIST_GPU_LOCKS"
"""The variable with another folder for the record, for example one that several containers share."""
LEASE = "JUPYTER_DIST_GPU_LEASE"
"""The variable with the path of the file that a rank must lock as well."""

_NAME = "jupyter-dist-gpus"
_MOST_BYTES, _MOST_FILES = 1 << 16, 4096
_TURN_S, _LOOK_S = 5.0, 0.005


class Unusable(OSError):
    """There is no record.

    Its folder is missing and cannot be made, or it has the wrong type or permissions.
    """

    def __str__(self) -> str:
        return str(self.args[-1])


@dataclass(frozen=True)
class Holder:
    """A run that uses or waits for GPUs, as described in its file."""

    run: str
    notebook: str | None
    uuids: frozenset[str]
    """The GPUs that the run uses, or those that it accepts while it waits."""
    wholes: frozenset[str] = frozenset()
    """The GPUs of which the run uses a part."""
    shares: bool = False
    """Whether the run shares its GPUs with other runs."""
    waits_for: int = 0
    """The number of GPUs that the run waits for; 0 if it uses its GPUs."""
    ticket: int = 0
    """Its position among the waiting runs."""
    user: str | None = None
    """The user of the run; None for this process's own user."""

    def has(self, gpu: Gpu) -> bool:
        """Return whether the run uses or wants the GPU, or a part of it."""
        return gpu.uuid is not None and (
            gpu.uuid in self.uuids or gpu.uuid in self.wholes or gpu.whole in self.uuids
        )

    def __str__(self) -> str:
        of = f" of {self.notebook}" if self.notebook else ""
        return f"run {self.run}{of}" + (f" (user {self.user})" if self.user else "")


@dataclass(frozen=True)
class Entry:
    """This process's own file in the record, locked while it is open."""

    path: str
    fds: tuple[int, ...]


def holders(but: Entry | None = None) -> list[Holder]:
    """Return the runs that use or wait for GPUs now, except `but`. Without a record, the list is empty.

    This does not disturb other processes.
    """
    found = []
    with contextlib.suppress(OSError), _folder(make=False) as place:
        for name in sorted(os.listdir(place))[:_MOST_FILES]:
            if name.endswith(".json") and (but is None or name != os.path.basename(but.path)):
                holder = _read(place, name)
                if holder is not None:
                    found.append(holder)
    return found


def problem() -> str | None:
    """Return why there can be no record here; None if there can. Writes nothing."""
    path = _path()
    if not os.path.lexists(path):
        parent = os.path.dirname(path) or "."
        return None if os.access(parent, os.W_OK) else f"{path!r}: cannot be made in {parent!r}"
    try:
        with _folder(make=True):
            return None
    except Unusable as error:
        return str(error)


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """Let no other process choose GPUs during this context.

    Start no process in it: a child would keep the lock. If another process keeps the lock for 5 s, the
    context begins without the lock. No process has a reason to keep it so long. Two runs that lease the same
    GPU at once are better than runs that cannot start.

    Raises Unusable.
    """
    with _folder(make=True) as place:
        deadline = time.monotonic() + _TURN_S
        while True:
            door = _door(place)
            if _locked(door, fcntl.LOCK_EX, deadline - time.monotonic()):
                with contextlib.suppress(OSError):
                    if os.path.samestat(os.fstat(door), os.stat("turn", dir_fd=place, follow_symlinks=False)):
                        break  # the file is not one that was removed meanwhile
            if time.monotonic() > deadline:
                break
            os.close(door)
        try:
            _tidy(place)
            yield
        finally:
            os.close(door)


def enter(holder: Holder) -> Entry:
    """Write a file with this content, and lock it.

    Raises Unusable.
    """
    told = {f.name: getattr(holder, f.name) for f in dataclasses.fields(holder) if f.name != "user"}
    told |= {name: sorted(told[name]) for name in ("uuids", "wholes")}
    with _folder(make=True) as place:
        name = f"{holder.run[:80].replace('/', '_')}-{os.urandom(4).hex()}.json"
        fd = _make(place, name, json.dumps(told).encode())
        # systemd does not clean a folder that a process has locked:
        # https://github.com/python/cpython/issues/81831
        folder = os.dup(place)
        with contextlib.suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return Entry(os.path.join(_path(), name), (fd, folder))


def leave(entry: Entry) -> None:
    """Release the file. It stays while a rank has it locked, and is removed otherwise. Repeatable."""
    with contextlib.suppress(OSError):
        fcntl.flock(entry.fds[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(entry.path)
    for fd in entry.fds:
        with contextlib.suppress(OSError):
            os.close(fd)


def hold(path: str) -> None:
    """Lock another process's file until this process and all its forks have ended. A rank calls this first.

    If the file is gone, its owner has ended, and the rank will end soon.
    """
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        _locked(fd, fcntl.LOCK_SH, 1.0)  # a reader locks the file only briefly


def _path() -> str:
    """Return the folder of the record.

    It is not in a user's own folder, because all users must find the same one.
    """
    chosen = os.environ.get(FOLDER)
    if chosen:
        return chosen
    # Debian's /run/lock is meant for this. /tmp exists everywhere, but a service may have its own.
    for base in ("/run/lock", "/tmp"):
        with contextlib.suppress(OSError):
            about = os.stat(base)
            if about.st_uid == 0 and about.st_mode & 0o1002 == 0o1002:
                return os.path.join(base, _NAME)
    return os.path.join("/tmp", _NAME)


@contextlib.contextmanager
def _folder(*, make: bool) -> Iterator[int]:
    """Open the folder. All later accesses use this descriptor, even if the path changes."""
    path = _path()
    try:
        if make and not os.path.lexists(path):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
                os.chmod(path, 0o1777)  # mkdir leaves out the bits of the umask
        place = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise Unusable(error.errno, f"{path!r}: {error.strerror}") from error
    try:
        if make and not os.access(".", os.W_OK, dir_fd=place):
            raise Unusable(None, f"{path!r} cannot be written: chmod 1777 {path!r}")
        yield place
    finally:
        os.close(place)


def _door(place: int) -> int:
    for _ in range(100):
        with contextlib.suppress(FileNotFoundError):
            return _open(place, "turn")
        with contextlib.suppress(FileExistsError):
            return _make(place, "turn", b"", lock=False)
    raise Unusable(None, f"{_path()!r}: its files change all the time")


def _open(place: int, name: str) -> int:
    """Open a regular file of the folder for reading.

    A pipe or a link there is refused, as it may be a trap.
    """
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unusable(error.errno, f"{os.path.join(_path(), name)!r}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Unusable(None, f"{os.path.join(_path(), name)!r} is no file")
    return fd


def _make(place: int, name: str, data: bytes, *, lock: bool = True) -> int:
    """Make a file that appears at once with its content, readable for all, and locked."""
    draft = f".{os.urandom(16).hex()}"
    try:
        fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=place)
    except OSError as error:
        raise Unusable(error.errno, f"{_path()!r}: {error.strerror}") from error
    try:
        if lock:
            fcntl.flock(fd, fcntl.LOCK_SH)
        write_all(fd, data)
        os.fchmod(fd, 0o644)
        os.link(draft, name, src_dir_fd=place, dst_dir_fd=place)
    except FileExistsError:
        os.close(fd)
        raise
    except OSError as error:
        os.close(fd)
        raise Unusable(error.errno, f"{_path()!r}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=place)
    return fd


def _locked(fd: int, how: int, limit_s: float) -> bool:
    """Lock a file. Return False if other processes keep it locked for `limit_s`. Raises Unusable."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_S)
        except OSError as error:
            raise Unusable(
                error.errno,
                f"{_path()!r}: its file system has no file locks ({error.strerror}). Set {FOLDER} to a "
                "folder on a local disk",
            ) from error
        else:
            return True


def _is_dead(fd: int) -> bool:
    # This looks twice: another reader may have locked the file at the same moment.
    return _locked(fd, fcntl.LOCK_EX, _LOOK_S / 5)


def _read(place: int, name: str) -> Holder | None:
    """Read a file as far as it is valid; None if it has no owner or cannot be read."""
    try:
        fd = _open(place, name)
    except OSError:
        return None
    try:
        if _is_dead(fd):
            return None
        owner = os.fstat(fd).st_uid
        told = json.loads(os.read(fd, _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        os.close(fd)
    return _holder(told, owner)


def _holder(told: Any, owner: int) -> Holder | None:
    if not isinstance(told, dict):
        return None
    notebook = _word(told.get("notebook"))
    return Holder(
        run=_word(told.get("run")) or "?",
        notebook=notebook,
        uuids=_words(told.get("uuids")),
        wholes=_words(told.get("wholes")),
        shares=told.get("shares") is True,
        waits_for=_number(told.get("waits_for")),
        ticket=_number(told.get("ticket")),
        user=None if owner == os.geteuid() else _login(owner),
    )


def _word(value: Any) -> str | None:
    """Return one short line of any value."""
    if not isinstance(value, str):
        return None
    return "".join(letter if letter.isprintable() else "?" for letter in value[:80]) or None


def _words(value: Any) -> frozenset[str]:
    return frozenset(filter(None, map(_word, value[:1000]))) if isinstance(value, list) else frozenset()


def _number(value: Any) -> int:
    return min(max(0, value), 1 << 53) if type(value) is int else 0


def _login(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _tidy(place: int) -> None:
    """Remove files of this user's runs that were killed. Other users' files need those users or root.

    Nothing else is removed: the folder of the record may contain other files.
    """
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(place))[:_MOST_FILES]:
            if re.fullmatch(r".+-[0-9a-f]{8}\.json", name) is None:
                continue
            with contextlib.suppress(OSError, ValueError, RecursionError):
                fd = _open(place, name)
                try:
                    told = json.loads(os.read(fd, _MOST_BYTES))
                    ours = os.fstat(fd).st_uid == os.geteuid() and isinstance(told, dict)
                    if ours and told.keys() >= {"run", "uuids", "ticket"} and _is_dead(fd):
                        os.unlink(name, dir_fd=place)
                finally:
                    os.close(fd)
