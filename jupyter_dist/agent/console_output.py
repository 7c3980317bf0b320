"""Readable output of a host's ranks for the platform's console, such as CloudWatch.

Each line begins with its rank's number. The console is a copy for people, and jupyter-dist does not read it.
If a mailbox relay starts again, lines may be missing from the console. Metrics of `dist.log` are there too,
one line each, so that a platform's metric definitions can find them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..worker import layout

__all__ = ["ConsoleOutput"]

_PATH = re.compile(rf"{layout.ATTEMPTS}/(\d+)/{layout.RANKS}/(\d+)/([^/]+)")
_MOST_BYTES = 8192
"""Maximum bytes of a line. A longer line, such as a progress bar without a newline, becomes several lines."""


class ConsoleOutput:
    """Console output of one host. Each call of `write` gets one or more whole lines."""

    def __init__(self, write: Callable[[str], Any]) -> None:
        self._write = write
        self._begun: dict[str, bytes] = {}
        self._seen: dict[str, int] = {}

    def take(self, header: Mapping[str, Any], body: bytes) -> None:
        """Process a frame that the relay sends to the driver."""
        match = _PATH.fullmatch(str(header.get("path", ""))) if header.get("is") == "chunk" else None
        if match is None or match[3] not in (layout.OUTPUT, layout.EVENTS):
            return
        path, offset = match[0], int(header["offset"])
        seen = self._seen.get(path, 0)
        new = body[max(0, seen - offset) :]  # a new connection may repeat bytes
        if not new:
            return
        self._seen[path] = max(seen, offset + len(body))
        *lines, rest = (self._begun.pop(path, b"") + new).split(b"\n")
        while len(rest) > _MOST_BYTES:
            lines.append(rest[:_MOST_BYTES])
            rest = rest[_MOST_BYTES:]
        self._begun[path] = rest
        read = self._metrics if match[3] == layout.EVENTS else _shown
        told = [f"[{match[2]}] {text}\n" for line in lines if (text := read(line)) is not None]
        if told:
            self._write("".join(told))

    def finish(self) -> None:
        """Write the lines that have no newline yet."""
        for path, rest in self._begun.items():
            match = _PATH.fullmatch(path)
            if rest and match is not None and match[3] == layout.OUTPUT:
                self._write(f"[{match[2]}] {_shown(rest)}\n")
        self._begun.clear()

    @staticmethod
    def _metrics(line: bytes) -> str | None:
        try:
            event = json.loads(line)
            values = event["values"] if event["kind"] == "metric" else None
        except (ValueError, KeyError, TypeError):
            return None
        if not isinstance(values, dict):
            return None
        return " ".join(f"{name}={value}" for name, value in values.items())


def _shown(line: bytes) -> str | None:
    """Return the final state of a line as in a terminal, such as the last state of a progress bar."""
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")
