"""What kernels know of the names of a session's ranks: in a file of the session, or in an answer.

A kernel reads the file before each cell, and names its number with the cell. If anything has changed since,
the supervisor refuses the cell, and the kernel asks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from ...folder import write_json
from ...worker.session import place
from .cell_request import Request
from .ranks import Ranks

__all__ = ["KnownNames"]


class KnownNames:
    """The names of a session.

    `path`: its folder. `session`: its id. `unfinished`: returns the cells that run or wait.
    """

    def __init__(
        self, path: Path, session: str, ranks: Ranks, unfinished: Callable[[], Collection[Request]]
    ) -> None:
        self._file, self._session, self._ranks = path / place.NAMES, session, ranks
        self._unfinished = unfinished
        self._seen: dict[str, dict[str, str]] = {}
        """For each notebook, digests of its values of names that belong to ranks, as a cell last used them.

        The path of a notebook may be unknown: an empty text.
        """
        self._number = 0
        self._known: Mapping[str, Any] = {}
        """What kernels had to know when the number was last increased."""
        self._values: tuple[list[dict[str, str]], list[dict[str, str]]] | None = None
        """The digests that each rank had then, and those of each unfinished cell, for cells of some ranks."""
        self._is_written = False

    def see(self, notebook: str | None, digests: Mapping[str, str]) -> None:
        """Note the digests that a kernel has sent with a cell of this notebook."""
        self._seen.setdefault(notebook or "", {}).update(digests)

    def forget(self) -> None:
        self._seen.clear()

    def of(self, chosen: Collection[int] | None = None, *, restart: object = None) -> dict[str, Any]:
        """Return what a kernel has to know. `chosen`, `restart`: the ranks of its cell, and what starts anew.

        By default it is for all ranks. It has a number, which `are` checks.
        """
        self._count()
        known = self._known if chosen is None and restart != "all" else self._content(chosen, restart)
        return {**known, "number": self._number}

    def _count(self) -> None:
        """Increase the number if anything has changed."""
        known = self._content()
        unfinished = [dict(request.sent) for request in self._unfinished() if request.sent]
        values = [dict(kept.sent) for kept in self._ranks.all], unfinished
        if known != self._known or values != self._values:
            self._number += 1
            self._known, self._values, self._is_written = known, values, False

    def _content(self, chosen: Collection[int] | None = None, restart: object = None) -> dict[str, Any]:
        everyone = range(len(self._ranks.all))
        ranks = [rank for rank in everyone if chosen is None or rank in chosen]
        anew = restart == "all" and bool(self._ranks.dead(ranks))
        return {
            "names": self._ranks.all[0].names,
            "owned": [] if anew else sorted(self._ranks.owned()),
            "sent": {} if anew else self._sent(ranks),
            "seen": {notebook: dict(digests) for notebook, digests in self._seen.items()},
            "uses": {} if anew else self._ranks.uses(ranks),
        }

    def _sent(self, ranks: Collection[int]) -> dict[str, str]:
        """Return the digests of the notebook's values that these ranks still have when the next cell begins.

        The next cell sends a name again that an unfinished cell replaces.
        """
        coming = [request.sent for request in self._unfinished()]
        found = self._ranks.sent(ranks)
        return {
            name: value
            for name, value in found.items()
            if all(sent.get(name, value) == value for sent in coming)
        }

    def write(self) -> None:
        """Write the file, if anything has changed. On a full disk the kernels ask."""
        known = self.of()
        if not self._is_written:
            with contextlib.suppress(OSError):
                write_json(self._file, {"session": self._session, **known})
                self._is_written = True

    def are(self, number: object) -> bool:
        """Return whether the names are still those with this number."""
        self._count()
        return number == self._number
