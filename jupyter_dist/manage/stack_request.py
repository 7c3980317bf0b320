"""Request for the stacks of a run's ranks, with a wait for their answers."""

from __future__ import annotations

import contextlib
import time

from ..errors import DistError
from ..folder import RunFolder
from ..job import State
from ..record import reader
from ..record.failures import stacks

__all__ = ["take"]

_ALL_THREADS_S = 1.0
"""A rank whose threads get the GIL has written all its stacks after this time."""


def take(folder: RunFolder, timeout_s: float = 5.0, *, all_threads: bool = False) -> stacks.Stacks:
    """Ask every running rank for its stack. Blocks until all have written it, at most `timeout_s`.

    The ranks continue to run. Raises DistError if the run has ended or cannot be asked.
    """
    attempt, live = stacks.running(folder)
    status = reader.status(folder)
    if status.state.ended:
        raise DistError(f"Run {folder.id} has ended ({status.state}), so it has no stacks.")
    if status.state is State.UNWATCHED:
        raise DistError(
            f"Run {folder.id} has no supervisor, so nobody can ask its ranks for stacks. Attach "
            f"first with `%dist attach {folder.id}`."
        )
    before = stacks.sizes(folder, attempt, live)
    try:
        folder.request("stacks")
    except OSError as error:
        raise DistError(f"cannot ask run {folder.id} for its stacks: {error}") from error
    begun = time.monotonic()
    last: dict[int, int] = {}
    waiting = set(live)
    asked_again = False
    while waiting and time.monotonic() < begun + timeout_s:
        time.sleep(0.02)
        now = stacks.sizes(folder, attempt, sorted(waiting))
        # A dump is many small writes. It is complete when the file has stopped growing.
        resting = {rank: before[rank] for rank in waiting if before[rank] < now[rank] == last.get(rank)}
        last |= now
        waiting -= {
            rank
            for rank, dump in stacks.written_after(folder, attempt, resting).items()
            if not dump.is_partial
        }
        if resting and waiting and not asked_again and time.monotonic() > begun + _ALL_THREADS_S:
            # The threads of these ranks do not get the GIL. A rank that is asked again needs none.
            with contextlib.suppress(OSError):
                folder.request("stacks")
            asked_again = True
    found = stacks.read_after(folder, attempt, before)
    missing = tuple(rank for rank in live if rank not in found)
    return stacks.Stacks(found, missing, timeout_s, all_threads, folder.id)
