"""The GPUs of a run on its hosts. Each host's agent takes its own, and the ranks start once all are taken."""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping

from ...errors import LaunchError
from ...hosts.facts import HostFacts
from ...hosts.fleet import Fleet
from ...job import Job
from ...worker.gpus.lease import GpuRequest
from ...worker.jitter import jitter
from ..shared_options.gpus import GpuOptions
from ..shared_options.hosts import HostOptions
from .local_gpus import gpu_wish

__all__ = ["HostGpuWait", "gpus_there", "launcher_turn"]

_ASK_EVERY_S = 1.0


class _At(enum.Enum):
    START = enum.auto()
    ASKED = enum.auto()
    WAITS = enum.auto()
    TAKEN = enum.auto()


class HostGpuWait:
    """The wait of one attempt for the GPUs of its hosts. An agent keeps taken GPUs for the next attempt.

    While one host's GPUs are not free, no GPUs are kept on the others: two runs would otherwise block each
    other.
    """

    def __init__(self, wishes: Mapping[str, GpuRequest], *, wait: bool) -> None:
        """`wishes`: requests by host. A host without a request needs no GPUs.

        The attribute `wishes` has what `Fleet.lease` sends to each host.
        """
        self.wishes = {name: {"for": wish.to_json(), "wait": wait} for name, wish in wishes.items()}
        self._wait = wait
        self._at = _At.START if wishes else _At.TAKEN
        self._again_at = 0.0
        self.why: str | None = None
        """What the attempt waits for."""

    def come(self, fleet: Fleet) -> bool:
        """Return whether all GPUs were taken. Call it again and again while the fleet is ready.

        Raises LaunchError before anything has started, if the GPUs are not free and the run does not wait.
        """
        now = time.monotonic()
        if self._at is _At.START or (self._at is _At.WAITS and now >= self._again_at):
            self._at = _At.ASKED
            fleet.lease(self.wishes)
        elif self._at is _At.ASKED:
            told = {name: fleet.facts(name).leased or {} for name in self.wishes}
            refused = {name: about for name, about in told.items() if about.get("why")}
            self.why = "; ".join(f"host {name}: {about['why']}" for name, about in refused.items()) or None
            if not refused:
                self._at = _At.TAKEN
            elif not self._wait or any(about["final"] for about in refused.values()):
                raise LaunchError(f"{self.why}. Nothing was started.")
            else:
                self._at, self._again_at = _At.WAITS, now + _ASK_EVERY_S * jitter(1, 2)
                fleet.lease({name: None for name in self.wishes if name not in refused})
        return self._at is _At.TAKEN


def launcher_turn(job: Job, asked: HostOptions, ranks: Mapping[str, int], fleet: Fleet) -> HostGpuWait:
    """Return the wait of launchers. `ranks`: the number of ranks on each host."""
    if not isinstance(asked, GpuOptions):
        return HostGpuWait({}, wait=False)
    there = {name: gpu_wish(asked, count, job) for name, count in ranks.items() if fleet.facts(name).gpus}
    wishes = {name: wish for name, wish in there.items() if wish is not None}
    return HostGpuWait(wishes, wait=asked.wait_for_gpus)


def gpus_there(asked: HostOptions, facts: HostFacts) -> dict[str, str]:
    """Return the variables with the run's GPUs on a host, for the ranks of a launcher."""
    if not facts.gpus or not isinstance(asked, GpuOptions):
        return {}
    if facts.leased is None:
        return {"CUDA_VISIBLE_DEVICES": "-1"} if asked.gpus_per_worker == 0 else {}
    return {**facts.leased["env"], "CUDA_VISIBLE_DEVICES": ",".join(facts.leased["gpus"]) or "-1"}
