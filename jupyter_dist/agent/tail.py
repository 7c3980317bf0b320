"""Reader of the files of a host's ranks. Each piece has a path and an offset, so it can be sent again."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from typing import Any

from ..worker import layout
from ..worker.host.os_errors import is_out_of_files, reason

__all__ = ["PATHS", "SAME_S", "WHOLE", "Tails", "checkpoints"]

WHOLE = (layout.RESULT_BUFFERS, layout.RESULT, layout.ERROR, layout.EXIT, layout.TRACE)
"""Files that exist complete or not at all. The agent sends them in this order."""
PATHS = re.compile(rf"{layout.ATTEMPTS}/\d+/(?:{layout.RANKS}/\d+/)?[A-Za-z0-9_-][A-Za-z0-9_.-]*")
"""The files that the agent sends: those of attempts and ranks, without hidden files."""

_PIECE = 1 << 16
_LARGE_PIECE = 1 << 18
_LIST_EVERY = 8
SAME_S = 1e-3
"""Tolerance of file times, which a file system may round."""


def checkpoints(run: str, kept: Mapping[str, float]) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield the files in `dist.checkpoint_dir()`, piece by piece, without links and unchanged files.

    `kept`: path in the stage → modification time of the files that the driver sent.
    """
    root = os.path.join(run, layout.CHECKPOINTS)
    for place, _, names in os.walk(root):
        for name in sorted(names):
            path = os.path.join(place, name)
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            except OSError:
                continue
            try:
                when = kept.get(os.path.join("run", os.path.relpath(path, run)), -1.0)
                if abs(os.fstat(fd).st_mtime - when) > SAME_S:
                    yield from _pieces(fd, os.path.relpath(path, root))
            finally:
                os.close(fd)


def _pieces(fd: int, path: str) -> Iterator[tuple[dict[str, Any], bytes]]:
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        return
    header = {"is": "checkpoint", "path": path, "size": info.st_size, "time": info.st_mtime}
    offset = 0
    while offset < info.st_size or offset == 0:
        data = os.pread(fd, min(_LARGE_PIECE, info.st_size - offset), offset)
        yield {**header, "offset": offset}, data
        if not data:
            return
        offset += len(data)


class _File:
    def __init__(self, path: str, offset: int) -> None:
        self.path, self.offset = path, offset
        self.attempt = int(path.split("/", 2)[1])
        self.is_whole = os.path.basename(path) in WHOLE
        self.version: tuple[int, int, int] | None = None
        """For a file in `WHOLE`: the version that was sent last."""


class Tails:
    """The files in RUN/attempts, read from the sizes that the driver has. Between reads no file is open."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._files: dict[str, _File] = {}
        self._have: Mapping[str, int] = {}
        self._ticks = 0
        self.trouble: str | None = None
        """Why files cannot be read now, because too many files are open; else None."""

    def restart(self, have: Mapping[str, int]) -> None:
        """Start again for a new driver. `have`: path → bytes that the driver has of the file."""
        self._files, self._have, self._ticks = {}, have, 0

    def pieces(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Yield new output, one piece of each file in turn, until all present output is sent."""
        listing = self._ticks % _LIST_EVERY == 0
        if listing:
            self.trouble = None
            self._look()
        self._ticks += 1
        left = self._ordered(self._ticks)
        if not listing:
            # Ended attempts rarely write, and a run may have many of them.
            newest = max((file.attempt for file in left), default=0)
            left = [file for file in left if file.attempt == newest]
        while left:
            again = []
            for file in left:
                piece = self._next(file)
                if piece is not None:
                    yield piece
                    again.append(file)
            left = again

    def rest(self, folder: str | None) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Yield the rest of a folder (`attempts/0/ranks/3`; None: all folders) whose writer has ended."""
        self.trouble = None
        if folder is None:
            self._look()
        else:
            self._list(folder)
        for file in self._ordered():
            if folder is None or file.path.startswith(folder + "/"):
                while (piece := self._next(file)) is not None:
                    yield piece

    def _ordered(self, turn: int = 0) -> list[_File]:
        """Return the files of `WHOLE`, then the others. The others rotate: the caller may not read all."""
        order = {name: place for place, name in enumerate(WHOLE)}
        whole = [file for file in self._files.values() if file.is_whole]
        grown = [file for file in self._files.values() if not file.is_whole]
        first = turn % len(grown) if grown else 0
        whole.sort(key=lambda file: order[os.path.basename(file.path)])
        return [*whole, *grown[first:], *grown[:first]]

    def _look(self) -> None:
        for attempt in self._names(layout.ATTEMPTS):
            folder = layout.attempt_path("", attempt)
            self._list(folder)
            for rank in self._names(f"{folder}/{layout.RANKS}"):
                self._list(layout.rank_path("", attempt, rank))

    def _names(self, folder: str) -> list[str]:
        try:
            return os.listdir(os.path.join(self._run, folder))
        except OSError as error:
            self._note(error)
            return []

    def _note(self, error: OSError) -> None:
        if is_out_of_files(error):
            self.trouble = reason(error)

    def _list(self, folder: str) -> None:
        for name in self._names(folder):
            path = f"{folder}/{name}"
            if path in self._files or not PATHS.fullmatch(path):
                continue
            if os.path.isfile(os.path.join(self._run, path)):
                self._files[path] = _File(path, self._have.get(path, 0))

    def _next(self, file: _File) -> tuple[dict[str, Any], bytes] | None:
        try:
            return self._next_of_whole(file) if file.is_whole else self._next_of_growing(file)
        except OSError as error:
            self._note(error)
            return None

    def _next_of_growing(self, file: _File) -> tuple[dict[str, Any], bytes] | None:
        path = os.path.join(self._run, file.path)
        if os.stat(path).st_size <= file.offset:
            return None
        data = self._read(path, file.offset)
        header = {"is": "chunk", "path": file.path, "offset": file.offset}
        file.offset += len(data)
        return (header, data) if data else None

    def _next_of_whole(self, file: _File) -> tuple[dict[str, Any], bytes] | None:
        path = os.path.join(self._run, file.path)
        info = os.stat(path)
        version = (info.st_ino, info.st_mtime_ns, info.st_size)
        if file.version is None and file.offset == info.st_size > 0:
            file.version = version  # an earlier connection has sent it
        if version != file.version:
            file.version, file.offset = version, 0
        elif file.offset >= info.st_size:
            return None
        data = self._read(path, file.offset, version)
        header = {
            "is": "whole",
            "path": file.path,
            "offset": file.offset,
            "size": info.st_size,
            "time": info.st_mtime,
        }
        file.offset += len(data)
        return (header, data) if data else None

    def _read(self, path: str, offset: int, version: tuple[int, int, int] | None = None) -> bytes:
        """Return the next bytes of a file; none if the file is no longer this version."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            info = os.fstat(fd)
            if version not in (None, (info.st_ino, info.st_mtime_ns, info.st_size)):
                return b""
            return os.pread(fd, _PIECE, offset)
        finally:
            os.close(fd)
