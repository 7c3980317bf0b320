"""The GPUs that an agent holds on its host for its run: taken when the driver says so, until the agent ends.

The answer to a wish is JSON: `gpus`, the names of what was taken; `env`, what every rank there is told of it;
`why`, where it was refused, in words for the user; `final`, whether to wait would be no use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..worker.gpus.devices import order
from ..worker.gpus.lease import GpuRequest, Lease, Refused, TooFew
from ..worker.gpus.record import LEASE

__all__ = ["HostGpus"]


class HostGpus:
    """Not for several threads."""

    def __init__(self) -> None:
        self._lease = Lease()

    def take(self, told: Mapping[str, Any] | None) -> dict[str, Any]:
        """Take what is wished (`Wish.to_json`, and `wait`), or give all back (None). Repeatable."""
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
        """Give all back. Ranks that are still there keep it."""
        self._lease.release()
