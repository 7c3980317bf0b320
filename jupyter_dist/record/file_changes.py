"""The version of a file, and notifications of changes from Linux's inotify, which replace frequent polling.

Notifications may be missing: on another system, on a network disk that another host writes to, or if the
user has too many watches. So every caller still polls the files, only less often.
https://man7.org/linux/man-pages/man7/inotify.7.html
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
import weakref
from pathlib import Path
from typing import Any

__all__ = ["FileChanges", "FileVersion", "file_version"]

FileVersion = tuple[int, int, int] | None

_MODIFY, _MOVED_TO, _IGNORED, _ONESHOT = 0x2, 0x80, 0x8000, 0x80000000
_ATTRIB, _CREATE = 0x4, 0x100
_EVENT = struct.Struct("iIII")


def file_version(path: Path) -> FileVersion:
    """Return what changes when a file is written or replaced; None if there is none.

    Linux may give two files that are written within 10 ms the same time. A replaced file has another inode.
    """
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino


class FileChanges:
    """Watched files and folders.

    Its descriptor is readable when one of them has changed. Use it from one thread.
    """

    def __init__(self) -> None:
        self._fd = -1
        if sys.platform == "linux":
            self._libc: Any = ctypes.CDLL(None, use_errno=True)
            with contextlib.suppress(AttributeError):  # a C library without inotify
                self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._paths: dict[int, str] = {}
        # A user has only 128 inotify instances. So a dropped object closes its own at once.
        self._closed = weakref.finalize(self, os.close, self._fd) if self._fd >= 0 else None

    def fileno(self) -> int | None:
        """Return the descriptor, or None if notifications are not available."""
        return None if self._fd < 0 else self._fd

    def watch(self, path: str | os.PathLike[str], *, once: bool = False, touched: bool = False) -> bool:
        """Watch a file for writes, or a folder for files that are written or replaced.

        `once`: report only the next change, so that many changes cost nothing. `touched`: report also an
        empty new file, and a file with a new time. Returns whether the watch is set.
        """
        if self._fd < 0:
            return False
        mask = _MODIFY | (_ONESHOT if once else _MOVED_TO) | (_CREATE | _ATTRIB if touched else 0)
        found = self._libc.inotify_add_watch(self._fd, os.fsencode(path), mask)
        if found < 0:
            return False
        self._paths[found] = os.fspath(path)
        return True

    def take(self) -> set[str]:
        """Return the paths that changed since the last call.

        A path watched once, or removed, is no longer watched.
        """
        changed: set[str] = set()
        if self._fd < 0:
            return changed
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._fd, 1 << 16):
                at = 0
                while at < len(data):
                    watch, mask, _, name_bytes = _EVENT.unpack_from(data, at)
                    at += _EVENT.size + name_bytes
                    path = self._paths.pop(watch, None) if mask & _IGNORED else self._paths.get(watch)
                    if path is not None:
                        changed.add(path)
        return changed

    def forget(self, path: str | os.PathLike[str]) -> None:
        """Stop watching a path."""
        for watch in [watch for watch, known in self._paths.items() if known == os.fspath(path)]:
            del self._paths[watch]
            self._libc.inotify_rm_watch(self._fd, watch)

    def clear(self) -> None:
        """Stop watching everything, for the next user: Linux takes milliseconds to close the descriptor."""
        for watch in self._paths:
            self._libc.inotify_rm_watch(self._fd, watch)
        self._paths.clear()
        self.take()

    def close(self) -> None:
        """Close the descriptor. Repeatable."""
        self._fd = -1
        if self._closed is not None:
            self._closed()
