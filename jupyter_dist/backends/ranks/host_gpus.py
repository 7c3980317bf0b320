"""The GPUs of a run on its hosts: each host's agent takes its own, and the ranks start once all have."""

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
    """The turn of one attempt on the GPUs of its hosts. An agent that has taken some keeps them for the next.

    While a host's GPUs are waited for, none are kept on the others: two runs would wait for each other.
    """

    def __init__(self, wishes: Mapping[str, GpuRequest], *, wait: bool) -> None:
        """`wishes`: by host; those that are not named need none."""
        self._wishes = {name: {"for": wish.to_json(), "wait": wait} for name, wish in wishes.items()}
        self._wait = wait
        self._at = _At.START if wishes else _At.TAKEN
        self._again_at = 0.0
        self.why: str | None = None
        """What is waited for."""

    def come(self, fleet: Fleet) -> bool:
        """Whether all GPUs were taken; has to be called again and again while the fleet is ready.

        Raises LaunchError, as long as nothing was started, where they are not free and nobody waits.
        """
        now = time.monotonic()
        if self._at is _At.START or (self._at is _At.WAITS and now >= self._again_at):
            self._at = _At.ASKED
            fleet.lease(self._wishes)
        elif self._at is _At.ASKED:
            told = {name: fleet.facts(name).leased or {} for name in self._wishes}
            refused = {name: about for name, about in told.items() if about.get("why")}
            self.why = "; ".join(f"host {name}: {about['why']}" for name, about in refused.items()) or None
            if not refused:
                self._at = _At.TAKEN
            elif not self._wait or any(about["final"] for about in refused.values()):
                raise LaunchError(f"{self.why}. Nothing was started.")
            else:
                self._at, self._again_at = _At.WAITS, now + _ASK_EVERY_S * jitter(1, 2)
                fleet.lease({name: None for name in self._wishes if name not in refused})
        return self._at is _At.TAKEN


def launcher_turn(job: Job, asked: HostOptions, ranks: Mapping[str, int], fleet: Fleet) -> HostGpuWait:
    """The turn of launchers whose hosts have so many ranks each."""
    if not isinstance(asked, GpuOptions):
        return HostGpuWait({}, wait=False)
    there = {name: gpu_wish(asked, count, job) for name, count in ranks.items() if fleet.facts(name).gpus}
    wishes = {name: wish for name, wish in there.items() if wish is not None}
    return HostGpuWait(wishes, wait=asked.wait_for_gpus)


def gpus_there(asked: HostOptions, facts: HostFacts) -> dict[str, str]:
    """What the ranks of a launcher on a host are told of the GPUs that the run has there."""
    if not facts.gpus or not isinstance(asked, GpuOptions):
        return {}
    if facts.leased is None:
        return {"CUDA_VISIBLE_DEVICES": "-1"} if asked.gpus_per_worker == 0 else {}
    return {**facts.leased["env"], "CUDA_VISIBLE_DEVICES": ",".join(facts.leased["gpus"]) or "-1"}
