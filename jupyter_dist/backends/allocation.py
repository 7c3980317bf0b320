"""Ranks in an allocation of a cluster: requested, awaited, connected and released.

Each backend defines its allocation, such as a placement group with an actor on each node, or a Job's pods.
Our agents start the ranks there. `hosted.py` follows the ranks as on any other hosts.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from ..errors import LaunchError
from ..folder import RunFolder
from ..job import Job, Poll, RankState, State
from .hosted import Hosted, Hosting
from .interface import Handle

__all__ = ["AllocatedRanks", "Allocation"]


class Allocation(Protocol):
    """The allocation of one attempt, or of several successive attempts."""

    handle: Handle

    def __init__(self, handle: Handle, job: Job, folder: RunFolder) -> None: ...

    @classmethod
    def recall(cls, folder: RunFolder, job: Job, attempt: int) -> Any:
        """Return the recorded allocation of an attempt, or None if none was requested."""
        ...

    @property
    def connected(self) -> bool:
        """Whether all of the allocation was ready and located.

        Afterwards only the agents and the driver communicate.
        """
        ...

    def whole(self) -> bool:
        """Return whether another attempt can use the allocation."""
        ...

    def write_down(self, attempt: int) -> None:
        """Record the allocation as the allocation of an attempt."""
        ...

    def ask(self) -> None:
        """Request the allocation from the cluster, unless that was done before.

        Raises LaunchError, Unreachable.
        """
        ...

    def asked(self) -> bool:
        """Return whether the cluster has the allocation, as far as the driver can find out."""
        ...

    def wait(self, seconds: float) -> str | None:
        """Advance the allocation as far as possible, and block for at most that many seconds.

        Returns what is still missing, or None if the allocation is connected. Raises LaunchError.
        """
        ...

    def hosting(self) -> Hosting:
        """Return the hosts of the allocation. The allocation must be connected."""
        ...

    def leave(self) -> None:
        """Stop watching the allocation."""
        ...

    def free(self) -> None:
        """Stop watching the allocation and release all of it.

        Repeatable. Raises an error with the reason if the release is impossible now.
        """
        ...


R = TypeVar("R", bound=Allocation)


class AllocatedRanks(Generic[R]):
    """The part of a backend that all such clusters share."""

    poll_interval_s: ClassVar[float] = 0.05
    _allocation_type: type[R]

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._allocation: R | None = None
        self._hosted = Hosted(self._hosting)
        self._stopping = False

    def _new_allocation(self, job: Job, folder: RunFolder, attempt: int, before: R | None) -> R:
        """Return an allocation that is not yet requested.

        `before`: the allocation of the previous attempt, which is no longer watched.
        """
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
                self._leave(job, folder, before)
            self._allocation = allocation = self._new_allocation(job, folder, attempt, before)
            allocation.write_down(attempt)  # before the request: a new supervisor needs this record
            allocation.ask()
            return allocation.handle

    def _begin(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        assert self._allocation is not None
        return {**self._hosted.submit(job, folder, attempt), **self._allocation.handle}

    def _leave(self, job: Job, folder: RunFolder, allocation: R) -> None:
        """Stop what still runs in an allocation that lost a part, and release the rest."""
        if self._allocation is allocation and allocation.connected:
            self._hosted.release(job, folder, allocation.handle)
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

    def poll(self, job: Job, folder: RunFolder, handle: Handle, cursor: Any) -> Poll:
        with self._lock:
            allocation = self._known(job, folder, handle)
            if not allocation.connected:
                if self._stopping:
                    return Poll(State.STOPPED, RankState.all(job.world_size, State.STOPPED))
                try:
                    waits = allocation.wait(self.poll_interval_s)
                except LaunchError as error:
                    return Poll(State.FAILED, RankState.all(job.world_size, State.STOPPED), detail=str(error))
                if waits is not None:
                    return Poll(State.PENDING, RankState.all(job.world_size), detail=waits)
                allocation.write_down(handle["attempt"])
                self._begin(job, folder, handle["attempt"])
            return self._hosted.poll(job, folder, handle, None, wait_s=self.poll_interval_s)

    def _known(self, job: Job, folder: RunFolder, handle: Handle) -> R:
        if self._allocation is None:
            recorded = self._allocation_type.recall(folder, job, handle["attempt"])
            self._allocation = recorded or self._allocation_type(handle, job, folder)
        return self._allocation

    def stop(self, job: Job, folder: RunFolder, handle: Handle, *, kill: bool) -> None:
        self._stopping = True  # set before the lock: a poll may own it while it waits for the cluster
        with self._lock:
            allocation = self._known(job, folder, handle)
            if allocation.connected:
                self._hosted.stop(job, folder, handle, kill=kill)

    def ask(self, job: Job, folder: RunFolder, handle: Handle, rank: int | None, verb: str) -> None:
        with self._lock:
            if self._known(job, folder, handle).connected:
                self._hosted.ask(job, folder, handle, rank, verb)

    def exchange(
        self, job: Job, folder: RunFolder, handle: Handle, wishes: Sequence[Mapping[str, Any]], wait_s: float
    ) -> dict[str, Any]:
        """Exchange messages with the ranks of a session; see `Hosted.exchange`."""
        with self._hosted.session.hurry(wishes), self._lock:
            if not self._known(job, folder, handle).connected:
                return {"poll": self.poll(job, folder, handle, None).to_json(), "started": False}
            return self._hosted.exchange(job, folder, handle, wishes, wait_s)

    def _hosting(self, job: Job, folder: RunFolder) -> Hosting:
        assert self._allocation is not None
        return self._allocation.hosting()
