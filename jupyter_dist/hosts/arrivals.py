"""Put what hosts send into the run folder: each byte once, however often it was sent."""

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

__all__ = ["Arrivals"]


class Arrivals:
    """Writes pieces of files at their offsets; what the folder holds is how far it has come."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._sizes: dict[str, int] = {}
        self._part: dict[str, int] = {}
        self._keepers: dict[str, str] = {}
        """Which host a checkpoint came from."""

    def have(self) -> dict[str, int]:
        """How many bytes there are of each file, for an agent to go on from."""
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
        """Write a piece. OSError passes through; nothing is lost then, as the file did not grow.

        What does not belong into a rank's folder is passed over: hosts are not trusted with more.
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
        """Write what a host has sent before it was lost, though parts are missing in between; returns how
        many bytes those are. Each hole is told in the file itself, where the bytes would be."""
        pieces = [frame for frame in frames if frame[0].get("is") in ("chunk", "whole")]
        lost = 0
        # By offset, so that what one piece lacks may be in another.
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
        """Write a piece of a checkpoint. Of two hosts that wrote the same file, the second one's goes
        into a folder that is named after it. OSError passes through."""
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
        """Before there is a log whose times come from its host: a supervisor would begin with its own."""
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
        part = path.with_name(f".{path.name}.part")
        if offset == 0:
            make_private(path.parent)
            part.unlink(missing_ok=True)
            self._part[key] = 0
        if self._part.get(key) != offset:
            return
        self._write(part, body, offset)
        self._part[key] = offset + len(body)
        if self._part[key] == size:
            # When it was written, in this machine's time: what a supervisor judges by.
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
    """What stands in place of bytes that are lost: as many, so that what comes after keeps its offset."""
    told = f"\n[jupyter_dist: {size:,} bytes are missing here, lost on the way]".encode()
    if len(told) >= size:
        told = f"\n[{size} bytes lost]".encode()
    return told[: size - 1].ljust(size - 1) + b"\n"


def _shifted(offset: int, body: bytes, clock_offset_s: float) -> bytes:
    """Whole records of a host's times, in this machine's time."""
    if offset % RECORD.size:
        return b""
    body = body[: len(body) - len(body) % RECORD.size]
    return b"".join(RECORD.pack(at, when + clock_offset_s) for at, when in RECORD.iter_unpack(body))
