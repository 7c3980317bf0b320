"""Detection of ranks that wait for their user, in a debugger or in `input()`."""

from __future__ import annotations

from collections.abc import Sequence

from ..folder import RunFolder
from ..job import RankState, Wait
from ..record.prompts import RankPrompts, sentence

__all__ = ["PromptWatch", "waiting"]

_EVERY_S, _EVERY_S_PER_RANK = 0.1, 0.001
"""Seconds between two looks. A look costs some microseconds for each rank."""


class PromptWatch:
    """The ranks of one attempt that wait for their user."""

    def __init__(self, folder: RunFolder, attempt: int, *, waited: bool = False) -> None:
        """`waited`: ranks waited when the previous supervisor died."""
        self._folder, self._attempt = folder, attempt
        self._ranks: list[RankPrompts] = []
        self._due = 0.0
        self._waited = waited
        self.waits: tuple[Wait, ...] = ()

    @property
    def holds(self) -> bool:
        """Return whether time limits stand still. After a resume they do until the ranks are known."""
        return self._waited or bool(self.waits)

    def look(self, now: float, ranks: Sequence[RankState]) -> None:
        """Look which ranks wait now. Call it in each turn. A rank that has ended waits for nobody."""
        if not ranks:
            self.waits = ()
            return
        if now < self._due:
            return
        self._waited = False
        self._due = now + _EVERY_S + _EVERY_S_PER_RANK * len(ranks)
        self._ranks += [
            RankPrompts(self._folder, self._attempt, rank) for rank in range(len(self._ranks), len(ranks))
        ]
        found = []
        for prompts, state in zip(self._ranks, ranks, strict=False):
            prompts.read()
            wait = None if state.state.ended else prompts.wait
            if wait is not None:
                found.append(wait)
        self.waits = tuple(found)


def waiting(waits: Sequence[Wait]) -> str:
    """Return the line under the cell: who waits, and how the user answers. Empty if none waits."""
    return f"{sentence(waits)} (to answer: %dist debug)" if waits else ""
