"""Requests to ranks, which the driver copies to the hosts: for a trace, and answers to waiting ranks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ..folder import RunFolder
from ..worker import layout, listing

__all__ = ["RankRequests"]


class RankRequests:
    """The requests to the ranks of one run. Ranks look for them in the run's folder on their host."""

    def __init__(self, folder: RunFolder) -> None:
        self._place = folder.requests
        self._seen: dict[str, tuple[int, int]] = {}
        """Inode and modification time of each request that was returned. Two may have the same time."""

    def new(self) -> Iterator[tuple[str, str]]:
        """Yield the requests since the last call: the path in the run's folder, and the text."""
        for name in listing.names(self._place):
            if name != layout.TRACE_REQUEST and not name.startswith(layout.ANSWER):
                continue
            try:
                info = os.stat(self._place / name)
                written = info.st_ino, info.st_mtime_ns
                if self._seen.get(name) == written:
                    continue
                text = Path(self._place, name).read_text()
            except OSError:  # it was withdrawn
                continue
            self._seen[name] = written
            yield f"{layout.REQUESTS}/{name}", text
