"""Throughput of one number of ranks, from the steps that its run has recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..folder import RunFolder
from ..queries.rank_reports import said
from ..record import reader
from ..record.scaling.measurement import measure

__all__ = ["Throughput"]


class Throughput:
    """Has the interface of `Objective`, for --scaling."""

    reported: tuple[tuple[int, float], ...] = ()
    compared = reported
    reached = ""
    paused = False
    measured: Mapping[str, Any] | None = None
    """The measurement of a run that has ended, as JSON."""

    def __init__(self, folder: RunFolder, ranks: int) -> None:
        self._folder, self._ranks = folder, ranks

    def refresh(self, *, final: bool = False) -> None:
        """Read the steps of a run that has ended."""
        if not final:
            return
        attempt = reader.status(self._folder).attempt
        found = measure(said(self._folder, attempt, self._ranks).refresh().steps, self._ranks)
        self.measured = None if found is None else found.to_json()

    def outcome(self) -> tuple[float | None, str | None]:
        """Return the throughput, or None and why there is none."""
        if self.measured is None:
            return None, (
                "no rank recorded two steps. A step is a torch optimizer's, a batch of Keras, an item of "
                "dist.progress, or a dist.log"
            )
        return self.measured["samples_per_s"] or self.measured["steps_per_s"], None
