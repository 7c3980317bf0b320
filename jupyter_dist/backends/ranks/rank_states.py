"""The states of ranks, from the hosts' reports about their processes. Pure."""

from __future__ import annotations

import dataclasses

from ...hosts.facts import HostProcess
from ...job import RankState, State

__all__ = ["is_displaced", "rank_state"]


def rank_state(rank: RankState, process: HostProcess) -> RankState:
    """Return the rank's state, with the facts about its process."""
    if process.lost is not None or is_displaced(process):
        return dataclasses.replace(
            rank, state=State.LOST, pid=process.pid, started=process.started, ended=process.ended
        )
    if not process.over:
        state = State.PENDING if process.asked else State.RUNNING
    elif process.exit_code == 0:
        state = State.SUCCEEDED
    else:
        state = State.STOPPED if process.told else State.FAILED
    return dataclasses.replace(
        rank,
        state=state,
        pid=process.pid,
        exit_code=process.exit_code,
        signal=process.signal,
        started=process.started,
        ended=process.ended,
        peak_memory_bytes=process.peak_memory_bytes,
    )


def is_displaced(process: HostProcess) -> bool:
    """Return whether the agent ended the process because our resources on the host were taken away."""
    return process.place_gone and process.over and process.exit_code != 0
