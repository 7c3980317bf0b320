"""A user who answers the ranks of a run, as `%dist debug` does."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from jupyter_dist.conformance.deadlines import wait_until
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Status
from jupyter_dist.manage.rank_prompts import Prompts
from jupyter_dist.record import reader
from tests.rigs.launching import story, until

__all__ = ["AT_CALL", "User", "waiting"]

AT_CALL = int(sys.version_info >= (3, 13))
"""Python 3.13 stops at the line of `breakpoint()`, and earlier ones at the line after it."""


def waiting(folder: RunFolder, ranks: int, why: str = "") -> str:
    """Wait until the run's state says that so many ranks wait; returns the line under the cell."""

    def wait(status: Status) -> bool:
        return len(status.waits) == ranks and all(why in ("", one.why) for one in status.waits)

    return str(until(folder, lambda status: wait(status) and status.reason, f"{ranks} to wait").reason)


class User:
    """Answers these ranks of a run."""

    def __init__(self, folder: RunFolder, *ranks: int) -> None:
        self.folder, self.ranks = folder, ranks
        self.prompts = Prompts(folder, ranks)

    def prompt(self) -> tuple[str, dict[int, str]]:
        """Wait until all ranks wait; returns the prompt of the first, and what all have printed."""

        def ready() -> bool:
            self.prompts.look()
            found = [one.rank for one in self.prompts.ready]
            assert not self.prompts.ended, story(self.folder)
            return sorted(found) == sorted(self.ranks)

        wait_until(ready, f"the prompts of ranks {self.ranks}", lambda: story(self.folder))
        return self.prompts.ready[0].prompt_text, self.prompts.printed()

    def say(self, line: str | None, ranks: Sequence[int] | None = None) -> None:
        """Send a line to all ranks, or to some of them."""
        self.prompt()
        chosen = [one for one in self.prompts.ready if ranks is None or one.rank in ranks]
        self.prompts.answer(chosen, line)
        asked = {one.rank: one.prompt for one in chosen}

        def taken() -> bool:
            self.prompts.look()
            now = {one.rank: one.prompt for one in self.prompts.ready}
            return all(now.get(rank) != prompt for rank, prompt in asked.items())

        wait_until(taken, f"{line!r} to be read", lambda: story(self.folder))

    def asks(self, line: str) -> dict[int, str]:
        """Send a line that the debugger answers; returns what each rank prints."""
        self.say(line)
        return self.prompt()[1]

    @property
    def state(self) -> str:
        return str(reader.status(self.folder).state)
