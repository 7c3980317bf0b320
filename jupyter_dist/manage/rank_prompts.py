"""The user's side of the prompts at which ranks wait: what they ask, and the user's answers."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..errors import DistError
from ..folder import RunFolder
from ..job import State, Status, Wait
from ..record import reader
from ..record.prompts import RankPrompts
from ..worker import layout
from ..worker.debugger.channel import INPUT

__all__ = ["PAUSE_S", "Prompts"]

PAUSE_S = 0.02


class Prompts:
    """The prompts of a run's ranks. Other objects, in this kernel or another one, may answer as well."""

    def __init__(self, folder: RunFolder, ranks: Sequence[int] | None = None) -> None:
        """`ranks`: only these ranks. By default all."""
        self.folder = folder
        self.status: Status = reader.status(folder)
        self._only = None if ranks is None else set(ranks)
        self._ranks: dict[int, RankPrompts] = {}
        self._attempt = self.status.attempt
        self._texts: dict[int, str] = {}
        """By rank: what its debugger has printed, and was not fetched by `printed`."""
        self.ending: set[int] = set()
        """Ranks that end because the user has left their debugger."""
        self._ended: set[int] = set()
        self._sent: set[int] = set()
        """Ranks whose answer file is to be removed."""
        self.look()

    def look(self) -> None:
        """Read what the ranks have written."""
        self.status = reader.status(self.folder)
        if self.status.attempt != self._attempt:
            self._attempt = self.status.attempt
            self._ranks.clear()
            self._ended.clear()
            self.ending.clear()
        for state in self.status.ranks:
            rank = state.rank
            if self._only is not None and rank not in self._only:
                continue
            if rank not in self._ranks and rank not in self._ended:
                self._ranks[rank] = RankPrompts(self.folder, self._attempt, rank)
            if (found := self._ranks.get(rank)) is None:
                continue
            self._texts[rank] = self._texts.get(rank, "") + "".join(found.read())
            if found.ends:
                self.ending.add(rank)
            if state.state.ended:
                self._ended.add(rank)
                self._ranks.pop(rank)
            if rank in self._sent and found.prompt is None:
                self._sent.discard(rank)
                self._withdraw(rank)

    @property
    def ended(self) -> bool:
        return self.status.state.ended

    @property
    def running(self) -> list[int]:
        """Return the ranks of this object that run, and so may stop."""
        return [
            state.rank
            for state in self.status.ranks
            if state.state is State.RUNNING and state.rank in self._ranks
        ]

    @property
    def waits(self) -> list[Wait]:
        """Return the ranks that have stopped. Some of them may still work on a line."""
        return [wait for one in self._ranks.values() if (wait := one.wait) is not None]

    @property
    def ready(self) -> list[RankPrompts]:
        """Return the ranks that wait for a line, those that stopped first at the front."""
        waiting = [one for one in self._ranks.values() if one.prompt is not None and one.wait is not None]
        return sorted(waiting, key=lambda one: one.wait.since if one.wait else 0.0)

    @property
    def busy(self) -> list[int]:
        """Return the ranks that work on a line, or run to the next line at which they stop."""
        return [rank for rank in self._ranks if self.is_busy(rank)]

    def is_busy(self, rank: int) -> bool:
        """Return whether a rank works on a line, or runs to the next line at which it stops."""
        one = self._ranks.get(rank)
        return one is not None and (one.steps or (one.stopped and one.prompt is None))

    def together(self) -> list[RankPrompts]:
        """Return the ranks that wait at the same kind of prompt as the rank that has waited longest."""
        ready = self.ready
        if not ready:
            return []
        kind = _kind(ready[0])
        return sorted((one for one in ready if _kind(one) == kind), key=lambda one: one.rank)

    def printed(self) -> dict[int, str]:
        """Return what the debuggers have printed since the last call, by rank."""
        found = {rank: text for rank, text in sorted(self._texts.items()) if text}
        self._texts.clear()
        return found

    def file(self, rank: int) -> Path:
        """Return the file with all that the rank's debugger has printed."""
        return self.folder.rank(self._attempt, rank).prompts

    def answer(self, ranks: Iterable[RankPrompts], line: str | None, reason: str = "") -> list[int]:
        """Send a line to these ranks, and return them. Returns at once.

        `line`: None at the end of the user's input. `reason`: why the user's side has no input.
        """
        sent = []
        for one in ranks:
            if one.prompt is None:
                continue
            text = json.dumps({"prompt": one.prompt, "line": line, "reason": reason})
            try:
                self.folder.request(layout.answer(one.rank), text)
            except OSError as error:
                raise DistError(f"cannot answer rank {one.rank} of run {self.folder.id}: {error}") from error
            self._sent.add(one.rank)
            sent.append(one.rank)
        return sent

    def wait(self, ranks: Sequence[int], limit_s: float) -> list[int]:
        """Wait until these ranks have worked off their line. Returns those that have not within the limit."""
        deadline = time.monotonic() + limit_s
        asked = {rank: self._ranks[rank].prompt for rank in ranks if rank in self._ranks}
        while True:
            self.look()
            busy = [
                rank
                for rank, prompt in asked.items()
                if (one := self._ranks.get(rank)) is not None
                and (self.is_busy(rank) or (prompt is not None and one.prompt == prompt))
            ]
            if not busy or self.ended or time.monotonic() > deadline:
                return busy
            time.sleep(PAUSE_S)

    def close(self) -> None:
        """Remove the answers of this object. A rank that has not read its answer yet still gets it."""
        for rank in self._sent:
            if rank not in self._ranks or self._ranks[rank].prompt is None:
                self._withdraw(rank)

    def _withdraw(self, rank: int) -> None:
        with contextlib.suppress(OSError):
            (self.folder.requests / layout.answer(rank)).unlink()


def _kind(one: RankPrompts) -> tuple[bool, str]:
    return one.why == INPUT, one.prompt_text
