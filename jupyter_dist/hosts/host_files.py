"""The files of one host's ranks, which its agent sends and the driver writes to the run's folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..worker.host.os_errors import reason
from ..worker.session import place
from .arrivals import Arrivals
from .links.link import Link

__all__ = ["HostFiles"]


class HostFiles:
    """The files of the host at the other end of a link."""

    def __init__(self, arrivals: Arrivals, cells: Mapping[str, Arrivals], link: Link) -> None:
        """`cells`: the files of a session's cells, by the ids of their runs."""
        self._arrivals, self._cells, self._link = arrivals, cells, link
        self.not_kept: str | None = None
        """Which files the driver could not write in the end, why, and where they are."""

    def take(self, header: Mapping[str, Any], body: bytes, offset_s: float, *, is_last: bool) -> None:
        """Write a piece of a file. `offset_s`: the offset of the host's clock.

        If this fails for a checkpoint, or if `is_last` is set, the file stays on the host.
        Else raises OSError.
        """
        is_checkpoint = header["is"] == "checkpoint"
        arrivals = self._cells.get(header["cell"]) if "cell" in header else self._arrivals
        if arrivals is None or ("cell" in header and arrivals.is_removed):
            return  # late output of an old cell, or of a cell that the user has removed
        try:
            if is_checkpoint:
                arrivals.keep(header, body, self._link.host)
            else:
                arrivals.take(header, body, offset_s)
        except OSError as error:
            if not (is_checkpoint or is_last):
                raise
            what = "a checkpoint" if is_checkpoint else "what its ranks wrote last"
            why = f"on host {self._link.host} cannot be written here ({reason(error)})"
            there = os.path.join(str(self._link.stage), "run")
            if "cell" in header:
                there = os.path.join(str(self._link.stage), place.CELLS, header["cell"])
                self._link.send({"do": "keep", "cell": header["cell"]})
            self.not_kept = f"{what} {why}: it stays there in {there!r}"
