"""The GPUs of this machine for a backend's ranks: options, checks before a run, and the lease."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ...errors import Busy, DistError, InputError, LaunchError
from ...job import Job, Poll, RankState, State
from ...worker.gpus import record
from ...worker.gpus.devices import Gpu, named, order, visible_gpus
from ...worker.gpus.lease import GpuRequest, Lease, Refused, TooFew, free_gpus, preview, standing
from ..interface import Handle
from ..shared_options.gpus import GpuOptions, LauncherGpuOptions

__all__ = [
    "GpuWait",
    "check_gpus",
    "detected_gpus",
    "gpu_count",
    "gpu_ranks",
    "gpu_wish",
    "seen_by_all",
    "would_take",
]


_LOOK_EVERY_S = 0.25


class _Asked(Protocol):
    """The GPU options of a backend: `GpuOptions`, or `Wanted` for ranks on hosts."""

    @property
    def gpus_per_worker(self) -> float | None: ...
    @property
    def share_gpus(self) -> bool: ...


def gpu_wish(asked: _Asked, takers: int, job: Job | None = None) -> GpuRequest | None:
    """Return a run's request for a machine's GPUs, or None.

    `takers`: its ranks on that machine that use GPUs.
    """
    if asked.gpus_per_worker == 0 or not takers:
        return None
    notebook = None if job is None or job.notebook is None else os.path.basename(job.notebook)
    spare = asked.gpus_per_worker is None and isinstance(asked, LauncherGpuOptions)
    run = "" if job is None else job.id
    return GpuRequest(run, notebook, takers, asked.gpus_per_worker, asked.share_gpus, spare)


def gpu_count(gpus: Sequence[str], each: float | None) -> str:
    """Return the number of a rank's GPUs for JUPYTER_DIST_GPUS: 0.5 if two ranks share one.

    `each`: the number that the user has requested for each rank. With 0.75, each rank has a GPU of its own.
    """
    return f"{each:g}" if gpus and each is not None and each <= 0.5 else str(len(gpus))


def seen_by_all(gpus: Sequence[str]) -> dict[str, str]:
    """Return the variable for ranks that all see the run's GPUs. On a machine without GPUs it is empty.

    If the run has no GPUs, the value -1 hides those of the machine.
    """
    return {"CUDA_VISIBLE_DEVICES": ",".join(gpus) or "-1"} if visible_gpus() else {}


def gpu_ranks(asked: GpuOptions | None = None) -> int | None:
    """Return how many ranks the GPUs suffice for, or None if there are no GPUs."""
    gpus = visible_gpus()
    if not gpus:
        return None
    all_of_them = asked is not None and (
        asked.share_gpus or asked.wait_for_gpus or asked.gpus_per_worker == 0
    )
    count = len(gpus) if all_of_them else len(free_gpus(gpus, record.holders())) or len(gpus)
    each = None if asked is None else asked.gpus_per_worker
    if each is not None and each >= 1:
        return max(1, count // int(each))
    return count * (1 if asked is None else GpuRequest("", None, 1, each).to_one)


def check_gpus(asked: GpuOptions, takers: int) -> list[str]:
    """Return warnings before the run takes GPUs of this machine.

    Raises Busy if the GPUs are not free and the run does not wait. Raises InputError if there are too few.
    """
    gpus, wish = visible_gpus(), gpu_wish(asked, takers)
    if wish is None or not any(gpu.uuid for gpu in gpus):
        return []
    problem = record.problem()
    if problem is not None:
        return [f"other runs may take the same GPUs: no record can be kept of who uses them ({problem})"]
    try:
        taken = preview(wish)
    except TooFew as error:
        raise InputError(f"{error}.") from None
    except Refused as error:
        if not asked.wait_for_gpus:
            raise Busy(f"{error}.") from None
        return []
    told = standing(gpus, record.holders())
    if told and wish.each is None and not wish.share:
        return [f"{told}. This run gets {named(taken)}."]
    return []


def would_take(wish: GpuRequest | None) -> tuple[tuple[Gpu, ...], dict[str, Any]]:
    """Return the GPUs that a run would take now, and their description for a dry run. Takes nothing."""
    if wish is None or not visible_gpus():
        return (), {}
    try:
        taken = preview(wish)
    except Refused as error:
        return (), {"gpus": str(error)}
    told = standing(visible_gpus(), record.holders())
    return taken, {"gpus": named(taken) + (f" ({told})" if told else "")}


def detected_gpus() -> dict[str, Any]:
    """Return the number of GPUs for a backend's `detect`, and the owners of GPUs in use."""
    gpus = visible_gpus()
    told = standing(gpus, record.holders()) if gpus else ""
    return {"gpus": len(gpus), **({"gpus_in_use": told} if told else {})}


class GpuWait:
    """The GPUs of a run on this machine: taken before its first rank starts, and kept for all attempts.

    The run can wait for them. Not for several threads.
    """

    def __init__(self) -> None:
        self._lease = Lease()
        self._start: Callable[[Sequence[str], Mapping[str, str]], Handle] | None = None
        """The start that follows once there are GPUs. None: it has been done."""
        self._wish: GpuRequest | None = None
        self._ranks = 0
        self._why = ""
        self._looked = 0.0
        self._final: Poll | None = None

    def submit(
        self,
        job: Job,
        wish: GpuRequest | None,
        *,
        wait: bool,
        start: Callable[[Sequence[str], Mapping[str, str]], Handle],
    ) -> Handle:
        """Take the requested GPUs and call `start`, now or, with `wait`, in a later `poll`.

        `start` gets the GPUs' names for CUDA_VISIBLE_DEVICES, and the variables that every rank needs. Raises
        LaunchError, and what `start` raises.
        """
        self._wish, self._ranks, self._final, self._start = wish, job.world_size, None, None
        try:
            gpus = () if wish is None else self._lease.take(wish, wait=wait)
        except Refused as error:
            if not wait or isinstance(error, TooFew):
                raise LaunchError(f"{error}. Nothing was started.") from None
            self._start, self._why, self._looked = start, str(error), time.monotonic()
            return {"waits": self._why}
        return self._begin(start, gpus)

    def _begin(
        self, start: Callable[[Sequence[str], Mapping[str, str]], Handle], gpus: Sequence[Gpu]
    ) -> Handle:
        if self._lease.unrecorded:
            print(self._lease.unrecorded, flush=True)
        if gpus:
            print(f"{named(gpus)} taken", flush=True)
        held = {} if self._lease.path is None else {record.LEASE: self._lease.path}
        try:
            return start([gpu.name for gpu in gpus], {**held, **order(gpus)})
        except BaseException:
            self.release()
            raise

    def poll(self) -> Poll | None:
        """Return the state of the run while it has no GPUs, or None once it has started."""
        if self._final is not None or self._start is None:
            return self._final
        if time.monotonic() - self._looked >= _LOOK_EVERY_S:
            self._looked = time.monotonic()
            assert self._wish is not None
            try:
                gpus = self._lease.take(self._wish, wait=True)
                start, self._start = self._start, None
                self._begin(start, gpus)
            except Refused as error:
                self._why = str(error)
            except DistError as error:
                self._final = Poll(State.FAILED, RankState.all(self._ranks, State.STOPPED), detail=str(error))
            if self._start is None:
                return self._final
        return Poll(State.PENDING, RankState.all(self._ranks), detail=self._why)

    def stop(self) -> bool:
        """Stop waiting. Returns False if the run was not waiting."""
        if self._start is None:
            return self._final is not None
        self._start = None
        self._lease.release()
        self._final = Poll(State.STOPPED, RankState.all(self._ranks, State.STOPPED))
        return True

    def release(self) -> None:
        """Release the GPUs. Repeatable."""
        self._lease.release()
