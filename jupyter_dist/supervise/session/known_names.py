"""What kernels know of the names of a session's ranks: in a file of the session, or in an answer.

A kernel reads the file before each cell, and names its number with the cell. If anything has changed since,
the supervisor refuses the cell, and the kernel asks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ...folder import write_json
from ...worker.session import place
from .ranks import Ranks

__all__ = ["KnownNames"]


class KnownNames:
    """The names of a session. `path`: its folder. `session`: its id."""

    def __init__(self, path: Path, session: str, ranks: Ranks) -> None:
        self._file, self._session, self._ranks = path / place.NAMES, session, ranks
        self._seen: dict[str, str] = {}
        """Digests of the notebook's values of names that belong to the ranks, when a cell last used them."""
        self._number = 0
        self._written: Mapping[str, Any] | None = None
        """The content of the file; None if the last write failed."""

    def see(self, digests: Mapping[str, str]) -> None:
        """Note the digests that a kernel has sent with a cell."""
        self._seen.update(digests)

    def forget(self) -> None:
        self._seen.clear()

    def of(self, chosen: Collection[int] | None = None, *, restart: object = None) -> dict[str, Any]:
        """Return what a kernel has to know. `chosen`, `restart`: the ranks of its cell, and what starts anew.

        By default it is for all ranks.
        """
        everyone = range(len(self._ranks.all))
        ranks = [rank for rank in everyone if chosen is None or rank in chosen]
        anew = restart == "all" and bool(self._ranks.dead(ranks))
        return {
            "names": self._ranks.all[0].names,
            "owned": [] if anew else sorted(self._ranks.owned()),
            "sent": {} if anew else self._ranks.sent(ranks),
            "seen": dict(self._seen),
            "uses": {} if anew else self._ranks.uses(ranks),
        }

    def write(self) -> None:
        """Write the file, if anything has changed. On a full disk the kernels ask."""
        known = self.of()
        if known == self._written:
            return
        self._number += 1
        self._written = None
        with contextlib.suppress(OSError):
            write_json(self._file, {"session": self._session, "number": self._number, **known})
            self._written = known

    def are(self, number: object) -> bool:
        """Return whether the names are still those of the file with this number."""
        return number == self._number and self._written == self.of()
