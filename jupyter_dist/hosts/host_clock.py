"""Difference between a host's clock and this machine's clock, measured with pings."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

__all__ = ["HostClock"]


class HostClock:
    """The pending pings, and the offset from the ping with the fastest answer."""

    def __init__(self) -> None:
        self._sent: dict[int, float] = {}
        self._number = 0
        self._round_trip_s: float | None = None
        self._offset_s = 0.0

    @property
    def known(self) -> bool:
        """Return whether the host has answered a ping."""
        return self._round_trip_s is not None

    def ping(self) -> int:
        """Register a ping that is sent now. Returns its number."""
        self._number += 1
        self._sent[self._number] = time.time()
        return self._number

    def pong(self, header: Mapping[str, Any]) -> bool:
        """Process the answer to a ping. Returns whether it has improved the offset."""
        sent, now = self._sent.pop(header["ping"], None), time.time()
        if sent is None or (self._round_trip_s is not None and now - sent >= self._round_trip_s):
            return False
        self._round_trip_s = now - sent
        self._offset_s = (sent + now) / 2 - float(header["time"])
        return True

    def offset_s(self, *, exact: bool) -> float:
        """Return the seconds to add to the host's times. `exact`: whether answers are fast enough to trust.

        Without `exact`, an offset below the round-trip time counts as 0: most hosts synchronise their clocks.
        """
        within = not exact and abs(self._offset_s) <= (self._round_trip_s or 0.0)
        return 0.0 if within else round(self._offset_s, 4)
