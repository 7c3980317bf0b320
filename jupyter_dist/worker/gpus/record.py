"""The record of who uses which GPU of this machine: a file for each run, which dies with its processes.

The files lie in a folder that all users of the machine share. A file is written by its owner alone, who
locks it (`flock`, shared) as long as he lives, and so does every rank of his: the kernel takes the lock away
when the last of them is gone, however it went. Who looks tries to lock the file for himself: if he can, the
file is nobody's any more. What a file of another user says is text that nobody vouches for; whose it is, the
kernel tells.
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
"""The variable that names another folder for the record: one that several containers share, for example."""
LEASE = "JUPYTER_DIST_GPU_LEASE"
"""The variable that tells a rank the file that it has to hold as well."""

_NAME = "jupyter-dist-gpus"
_MOST_BYTES, _MOST_FILES = 1 << 16, 4096
_TURN_S, _LOOK_S = 5.0, 0.005


class Unusable(OSError):
    """There is no record: the folder is not there and cannot be made, or is not what it has to be."""

    def __str__(self) -> str:
        return str(self.args[-1])


@dataclass(frozen=True)
class Holder:
    """A run that uses GPUs, or waits for some, as its file tells it."""

    run: str
    notebook: str | None
    uuids: frozenset[str]
    """The GPUs it uses; of one that waits: those of which it wants some."""
    wholes: frozenset[str] = frozenset()
    """The GPUs of which it uses a part."""
    shares: bool = False
    """Whether it uses them beside others."""
    waits_for: int = 0
    """How many GPUs it waits for; 0: it uses them."""
    ticket: int = 0
    """Its place among those that wait."""
    user: str | None = None
    """Whose it is; None: this process's own user."""

    def has(self, gpu: Gpu) -> bool:
        """Whether the GPU, or a part of it, is among those that it uses or wants."""
        return gpu.uuid is not None and (
            gpu.uuid in self.uuids or gpu.uuid in self.wholes or gpu.whole in self.uuids
        )

    def __str__(self) -> str:
        of = f" of {self.notebook}" if self.notebook else ""
        return f"run {self.run}{of}" + (f" (user {self.user})" if self.user else "")


@dataclass(frozen=True)
class Entry:
    """This process's own file in the record, held as long as it is open."""

    path: str
    fds: tuple[int, ...]


def holders(but: Entry | None = None) -> list[Holder]:
    """Who uses or waits for GPUs now, `but` one. Disturbs nobody; without a record, nobody does."""
    found = []
    with contextlib.suppress(OSError), _folder(make=False) as place:
        for name in sorted(os.listdir(place))[:_MOST_FILES]:
            if name.endswith(".json") and (but is None or name != os.path.basename(but.path)):
                holder = _read(place, name)
                if holder is not None:
                    found.append(holder)
    return found


def problem() -> str | None:
    """Why there can be no record here; None: there can. Writes nothing."""
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
    """Nobody else decides which GPUs to take meanwhile. Raises Unusable.

    Nothing may be started in it: a child would keep the turn. Where somebody keeps it for seconds, which
    nobody has reason to, it goes on without: two that then take the same GPU at the same moment are less
    bad than none that can start.
    """
    with _folder(make=True) as place:
        deadline = time.monotonic() + _TURN_S
        while True:
            door = _door(place)
            if _locked(door, fcntl.LOCK_EX, deadline - time.monotonic()):
                with contextlib.suppress(OSError):
                    if os.path.samestat(os.fstat(door), os.stat("turn", dir_fd=place, follow_symlinks=False)):
                        break  # and not one that somebody has removed meanwhile
            if time.monotonic() > deadline:
                break
            os.close(door)
        try:
            _tidy(place)
            yield
        finally:
            os.close(door)


def enter(holder: Holder) -> Entry:
    """Write a file that says this, and hold it. Raises Unusable."""
    told = {f.name: getattr(holder, f.name) for f in dataclasses.fields(holder) if f.name != "user"}
    told |= {name: sorted(told[name]) for name in ("uuids", "wholes")}
    with _folder(make=True) as place:
        name = f"{holder.run[:80].replace('/', '_')}-{os.urandom(4).hex()}.json"
        fd = _make(place, name, json.dumps(told).encode())
        # https://github.com/python/cpython/issues/81831: systemd cleans no folder that somebody has locked.
        folder = os.dup(place)
        with contextlib.suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return Entry(os.path.join(_path(), name), (fd, folder))


def leave(entry: Entry) -> None:
    """Give the file up. It stays another's as long as a rank holds it too; else it is removed. Repeatable."""
    with contextlib.suppress(OSError):
        fcntl.flock(entry.fds[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(entry.path)
    for fd in entry.fds:
        with contextlib.suppress(OSError):
            os.close(fd)


def hold(path: str) -> None:
    """Hold another's file until this process and all that it forks have ended: what a rank does first.

    Where it is gone its owner is, and with him soon the rank.
    """
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        _locked(fd, fcntl.LOCK_SH, 1.0)  # one who looks has it for an instant


def _path() -> str:
    """Not below a home or a temporary folder of one's own: all users have to find the same."""
    chosen = os.environ.get(FOLDER)
    if chosen:
        return chosen
    # Debian's /run/lock is for this; /tmp is everywhere, but services may have one of their own.
    for base in ("/run/lock", "/tmp"):
        with contextlib.suppress(OSError):
            about = os.stat(base)
            if about.st_uid == 0 and about.st_mode & 0o1002 == 0o1002:
                return os.path.join(base, _NAME)
    return os.path.join("/tmp", _NAME)


@contextlib.contextmanager
def _folder(*, make: bool) -> Iterator[int]:
    """The folder, opened: what is done with it then is done in it, whatever its path leads to meanwhile."""
    path = _path()
    try:
        if make and not os.path.lexists(path):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
                os.chmod(path, 0o1777)  # mkdir leaves out what the umask does
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
    """A regular file of the folder, to be read. A pipe or a link that lies in wait there is refused."""
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
    """A file that is there at once as a whole, with its content, readable for all, and locked."""
    draft = f".{os.urandom(16).hex()}"
    try:
        fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=place)
    except OSError as error:
        raise Unusable(error.errno, f"{_path()!r}: {error.strerror}") from error
    try:
        if lock:
            fcntl.flock(fd, fcntl.LOCK_SH)
        os.write(fd, data)
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
    """Lock a file, unless others keep it for that long."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_S)
        else:
            return True


def _is_dead(fd: int) -> bool:
    # A second look: another who looked at the same moment had it locked.
    return _locked(fd, fcntl.LOCK_EX, _LOOK_S / 5)


def _read(place: int, name: str) -> Holder | None:
    """What a file says, as far as it says something; None when it is nobody's, or cannot be read."""
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
    """One short line of what may be anything."""
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
    """Remove what this user's runs have left that were killed; others' only they and root can.

    Nothing else: somebody may have named a folder for the record that holds other things.
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
