"""Frames between a driver and its agents: the two lengths, a JSON header, then raw bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

__all__ = ["Frame", "FrameError", "Frames", "encode"]

Frame = tuple[dict[str, Any], bytes]

_LENGTHS = struct.Struct(">IQ")
_MOST_HEADER = 64 << 20
_MOST_BODY = 64 << 20


class FrameError(Exception):
    """The received bytes are not a frame: something else writes to the connection."""


def encode(header: Mapping[str, Any], body_size: int = 0) -> bytes:
    """Return the beginning of a frame. The caller must send `body_size` raw bytes after it."""
    data = json.dumps(header).encode()
    return _LENGTHS.pack(len(data), body_size) + data


class Frames:
    """Parser that cuts a byte stream into frames."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Add received bytes. Returns the frames that are complete now. Raises FrameError."""
        self._data += data
        found: list[Frame] = []
        start = 0
        while len(self._data) - start >= _LENGTHS.size:
            head, body = _LENGTHS.unpack_from(self._data, start)
            if head > _MOST_HEADER or body > _MOST_BODY:
                raise FrameError(f"a frame of {head} + {body} bytes")
            middle = start + _LENGTHS.size + head
            if len(self._data) < middle + body:
                break
            try:
                header = json.loads(self._data[start + _LENGTHS.size : middle])
            except ValueError as error:
                raise FrameError(f"a header that is not JSON: {error}") from None
            if not isinstance(header, dict):
                raise FrameError("a header that is not an object")
            found.append((header, bytes(self._data[middle : middle + body])))
            start = middle + body
        del self._data[:start]
        return found
