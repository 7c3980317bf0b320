"""Write the files that hosts send into the run folder: each byte once, however often a host sends it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..agent.frames import Frame
from ..agent.tail import PATHS, WHOLE
from ..folder import RunFolder, make_private
from ..worker import layout
from ..worker.output.time_index import RECORD

__all__ = ["PARTS", "Arrivals"]

PARTS = ".*.part"
"""Pattern of the names of checkpoint files that have not arrived as a whole."""


class Arrivals:
    """Writer of pieces of files at their offsets. The files' sizes in the run folder show the progress."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._sizes: dict[str, int] = {}
        self._part: dict[str, int] = {}
        self._keepers: dict[str, str] = {}
        """The host from which each checkpoint file was received."""

    @property
    def is_removed(self) -> bool:
        """Return whether the user has removed the run."""
        return not self._folder.job.exists()

    def have(self) -> dict[str, int]:
        """Return the size of each file in bytes. An agent continues from there."""
        self._sizes, self._part = {}, {}
        root = self._folder.path
        for place, _, names in os.walk(root / layout.ATTEMPTS):
            for name in names:
                path = Path(place, name)
                key = path.relative_to(root).as_posix()
                if PATHS.fullmatch(key):
                    self._sizes[key] = path.stat().st_size
        return dict(self._sizes)

    def take(self, header: Mapping[str, Any], body: bytes, clock_offset_s: float) -> None:
        """Write a piece. Ignores paths outside the folders of attempts, because hosts are not trusted.

        Raises OSError. Nothing is lost then: the file did not grow, so the agent sends the piece again.
        """
        key, offset = str(header["path"]), int(header["offset"])
        if not PATHS.fullmatch(key):
            return
        if header["is"] == "chunk":
            folder, _, name = key.rpartition("/")
            if name == layout.TIMES:
                body = _shifted(offset, body, clock_offset_s)
            elif name == layout.OUTPUT:
                self._begin_times(f"{folder}/{layout.TIMES}")
            self._append(key, offset, body)
        elif key.rpartition("/")[2] in WHOLE:
            self._fill(key, offset, body, int(header["size"]), float(header["time"]) + clock_offset_s)

    def tear(self, frames: Sequence[Frame], clock_offset_s: float) -> int:
        """Write the pieces of a lost host, even if some are missing. Returns the number of missing bytes.

        A text in the file replaces each missing part.
        """
        pieces = [frame for frame in frames if frame[0].get("is") in ("chunk", "whole")]
        lost = 0
        # In the order of offsets: bytes that one piece lacks may be in another piece.
        for header, body in sorted(
            pieces, key=lambda frame: (str(frame[0]["path"]), int(frame[0]["offset"]))
        ):
            key, offset = str(header["path"]), int(header["offset"])
            if header["is"] == "chunk" and PATHS.fullmatch(key) and key.rpartition("/")[2] != layout.TIMES:
                size = self._size(key)
                if offset > size:
                    lost += offset - size
                    self._append(key, size, _hole(offset - size))
            self.take(header, body, clock_offset_s)
        return lost

    def keep(self, header: Mapping[str, Any], body: bytes, host: str) -> None:
        """Write a piece of a checkpoint. Raises OSError.

        If two hosts wrote the same file, the second host's file is in a folder with that host's name.
        """
        parts = str(header["path"]).split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            return
        key = "/".join((layout.CHECKPOINTS, *parts))
        if self._keepers.setdefault(key, host) != host:
            key = "/".join((layout.CHECKPOINTS, host, *parts))
        if int(header["size"]) == 0:
            make_private((self._folder.path / key).parent)
            self._write(self._folder.path / key, b"", 0)
        else:
            self._fill(key, int(header["offset"]), body, int(header["size"]), float(header["time"]))

    def _begin_times(self, key: str) -> None:
        """Begin a host's time index before its log exists. Otherwise the supervisor would begin its own."""
        if key not in self._sizes:
            self._append(key, 0, RECORD.pack(0, time.time()))

    def _append(self, key: str, offset: int, body: bytes) -> None:
        path = self._folder.path / key
        size = self._size(key)
        if not body or offset > size or offset + len(body) <= size:
            return
        self._write(path, body[size - offset :], size)
        self._sizes[key] = offset + len(body)

    def _size(self, key: str) -> int:
        if key not in self._sizes:
            path = self._folder.path / key
            make_private(path.parent)
            self._sizes[key] = path.stat().st_size if path.exists() else 0
        return self._sizes[key]

    def _fill(self, key: str, offset: int, body: bytes, size: int, modified: float) -> None:
        path = self._folder.path / key
        part = path.with_name(PARTS.replace("*", path.name))
        if offset == 0:
            make_private(path.parent)
            part.unlink(missing_ok=True)
            self._part[key] = 0
        if self._part.get(key) != offset:
            return
        self._write(part, body, offset)
        self._part[key] = offset + len(body)
        if self._part[key] == size:
            # The supervisor compares file times, so the file's time is when the rank wrote it.
            os.utime(part, (modified, modified))
            os.replace(part, path)
            del self._part[key]

    @staticmethod
    def _write(path: Path, data: bytes, offset: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(path, flags, 0o600)
        try:
            view = memoryview(data)
            while view:
                done = os.pwrite(fd, view, offset)
                view, offset = view[done:], offset + done
        finally:
            os.close(fd)


def _hole(size: int) -> bytes:
    """Return a text that replaces lost bytes. It has the same size, so that later bytes keep their offset."""
    told = f"\n[jupyter_dist: {size:,} bytes are missing here, lost on the way]".encode()
    if len(told) >= size:
        told = f"\n[{size} bytes lost]".encode()
    return told[: size - 1].ljust(size - 1) + b"\n"


def _shifted(offset: int, body: bytes, clock_offset_s: float) -> bytes:
    """Return the whole records of a host's time index, with times by this machine's clock."""
    if offset % RECORD.size:
        return b""
    body = body[: len(body) - len(body) % RECORD.size]
    return b"".join(RECORD.pack(at, when + clock_offset_s) for at, when in RECORD.iter_unpack(body))
