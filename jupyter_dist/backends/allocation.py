"""Ranks in a room that a cluster gives: it is asked for, waited for, settled in, and given back.

What a room is (a placement group with an actor on each node, a Job's pods) is the backend's own. Its ranks
are started by our agents there, and followed as on any hosts (hosted.py).
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from ..errors import LaunchError
from ..folder import RunFolder
from ..job import Job, Poll, RankState, State
from .hosted import Hosted, Hosting
from .interface import Handle

__all__ = ["AllocatedRanks", "Allocation"]


class Allocation(Protocol):
    """The room of one attempt, or of several that follow each other in it."""

    handle: Handle

    def __init__(self, handle: Handle, job: Job) -> None: ...

    @classmethod
    def recall(cls, folder: RunFolder, job: Job, attempt: int) -> Any:
        """What is known of an attempt's room; None where none was asked for."""
        ...

    @property
    def connected(self) -> bool:
        """Whether all of it was there, and known: what follows is between the agents and us."""
        ...

    def whole(self) -> bool:
        """Whether another attempt can be made in it."""
        ...

    def write_down(self, attempt: int) -> None:
        """Have it known, as that of an attempt."""
        ...

    def ask(self) -> None:
        """Have the cluster asked for it, where that was not done before. Raises LaunchError, Unreachable."""
        ...

    def asked(self) -> bool:
        """Whether the cluster knows of it, as far as we know."""
        ...

    def wait(self, seconds: float) -> str | None:
        """Go on with what can go on, and wait so long at most; what is waited for, or None: it is settled.
        Raises LaunchError."""
        ...

    def hosting(self) -> Hosting:
        """Its machines, once it is settled."""
        ...

    def leave(self) -> None:
        """Look after it no longer."""
        ...

    def free(self) -> None:
        """Leave it, and have all of it taken away. Repeatable; raises what tells why that cannot be now."""
        ...


R = TypeVar("R", bound=Allocation)


class AllocatedRanks(Generic[R]):
    """The part of a backend that all such clusters have in common."""

    poll_interval_s: ClassVar[float] = 0.05
    _allocation_type: type[R]

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._allocation: R | None = None
        self._hosted = Hosted(self._hosting)
        self._stopping = False

    def _new_room(self, job: Job, folder: RunFolder, attempt: int, before: R | None) -> R:
        """One that is not asked for yet. `before`: that of the attempt before, which is left by now."""
        raise NotImplementedError

    def submit(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        with self._lock:
            self._stopping = False
            before = (
                (self._allocation or self._allocation_type.recall(folder, job, attempt - 1))
                if attempt
                else None
            )
            if before is not None and before.whole():
                before.write_down(attempt)
                self._allocation = before
                return self._begin(job, folder, attempt)
            if before is not None:
                self._leave(before)
            self._allocation = allocation = self._new_room(job, folder, attempt, before)
            allocation.write_down(attempt)  # known before it is there: by that it is found again
            allocation.ask()
            return allocation.handle

    def _begin(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        assert self._allocation is not None
        return {**self._hosted.submit(job, folder, attempt), **self._allocation.handle}

    def _leave(self, allocation: R) -> None:
        """Have end what still runs in a room of which a part was lost, and give the rest back."""
        if self._allocation is allocation and allocation.connected:
            self._hosted.release(allocation.handle)
        self._give_back(allocation)
        self._hosted = Hosted(self._hosting)

    def _give_back(self, allocation: R) -> None:
        allocation.free()

    def find(self, job: Job, folder: RunFolder, attempt: int) -> Handle | None:
        allocation = self._allocation_type.recall(folder, job, attempt)
        if allocation is None:
            return None
        try:
            return allocation.handle if allocation.asked() else None
        finally:
            allocation.leave()

    def poll(self, handle: Handle, cursor: Any) -> Poll:
        with self._lock:
            allocation, job, folder = self._known(handle)
            if not allocation.connected:
                if self._stopping:
                    return Poll(State.STOPPED, _all(job, State.STOPPED))
                try:
                    waits = allocation.wait(self.poll_interval_s)
                except LaunchError as error:
                    return Poll(State.FAILED, _all(job, State.STOPPED), detail=str(error))
                if waits is not None:
                    return Poll(State.PENDING, _all(job, State.PENDING), detail=waits)
                allocation.write_down(handle["attempt"])
                self._begin(job, folder, handle["attempt"])
            return self._hosted.poll(handle, wait_s=self.poll_interval_s)

    def _known(self, handle: Handle) -> tuple[R, Job, RunFolder]:
        folder = RunFolder(Path(handle["folder"]))
        job = Job.from_json(json.loads(folder.job.read_bytes()))
        if self._allocation is None:
            self._allocation = self._allocation_type.recall(
                folder, job, handle["attempt"]
            ) or self._allocation_type(handle, job)
        return self._allocation, job, folder

    def stop(self, handle: Handle, *, kill: bool) -> None:
        self._stopping = True  # before the lock: a poll may be waiting for the cluster
        with self._lock:
            allocation, _, _ = self._known(handle)
            if allocation.connected:
                self._hosted.stop(handle, kill=kill)

    def ask(self, handle: Handle, rank: int | None, verb: str) -> None:
        with self._lock:
            if self._known(handle)[0].connected:
                self._hosted.ask(handle, rank, verb)

    def _hosting(self, job: Job, folder: RunFolder) -> Hosting:
        assert self._allocation is not None
        return self._allocation.hosting()


def _all(job: Job, state: State) -> tuple[RankState, ...]:
    return tuple(RankState(rank, state) for rank in range(job.world_size))
