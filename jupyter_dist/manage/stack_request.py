"""Request for the stacks of a run's ranks, with a wait for their answers."""

from __future__ import annotations

import time

from ..errors import DistError
from ..folder import RunFolder
from ..job import State
from ..record import reader
from ..record.failures import stacks

__all__ = ["take"]


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
    deadline = time.monotonic() + timeout_s
    last: dict[int, int] = {}
    waiting = set(live)
    while waiting and time.monotonic() < deadline:
        time.sleep(0.02)
        now = stacks.sizes(folder, attempt, sorted(waiting))
        # A dump is many small writes. It is complete when the file has stopped growing.
        waiting -= {rank for rank, size in now.items() if size > before[rank] and size == last.get(rank)}
        last |= now
    found = stacks.read_after(folder, attempt, before)
    missing = tuple(rank for rank in live if rank not in found)
    return stacks.Stacks(found, missing, timeout_s, all_threads)
