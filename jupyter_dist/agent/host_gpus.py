"""The GPUs that an agent leases on its host for its run, from the driver's request to the agent's end.

The answer to a request is JSON: `gpus`, the names of the leased GPUs; `env`, variables for each rank on the
host; `why`, the reason of a refusal, for the user; `final`, whether waiting would not help.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..worker.gpus.devices import order
from ..worker.gpus.lease import GpuRequest, Lease, Refused, TooFew
from ..worker.gpus.record import LEASE

__all__ = ["HostGpus"]


class HostGpus:
    """The GPU lease of one agent. Not thread-safe."""

    def __init__(self) -> None:
        self._lease = Lease()

    def take(self, told: Mapping[str, Any] | None) -> dict[str, Any]:
        """Lease the requested GPUs, or release all (None). Repeatable.

        `told`: `for`, a `GpuRequest` as JSON, and `wait`. Returns the answer that the module describes.
        """
        answer: dict[str, Any] = {"gpus": [], "env": {}, "why": None, "final": False}
        if told is None:
            self._lease.release()
            return answer
        try:
            gpus = self._lease.take(GpuRequest.from_json(told["for"]), wait=bool(told["wait"]))
        except Refused as error:
            return {**answer, "why": str(error), "final": isinstance(error, TooFew)}
        held = {} if self._lease.path is None else {LEASE: self._lease.path}
        return {**answer, "gpus": [gpu.name for gpu in gpus], "env": {**held, **order(gpus)}}

    def release(self) -> None:
        """Release all GPUs. Ranks that still run keep the lease."""
        self._lease.release()
