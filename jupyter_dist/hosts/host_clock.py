"""Difference between a host's clock and this machine's clock, measured with pings."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

__all__ = ["HostClock"]


class HostClock:
    """The pending pings, and the offset from the ping with the fastest answer.

    This machine's clock may be set between a ping and its answer. So the monotonic clock measures the time
    that an answer takes.
    """

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
        self._sent[self._number] = time.monotonic()
        return self._number

    def pong(self, header: Mapping[str, Any]) -> bool:
        """Process the answer to a ping. Returns whether it has improved the offset."""
        sent = self._sent.pop(header["ping"], None)
        if sent is None:
            return False
        took_s = time.monotonic() - sent
        if self._round_trip_s is not None and took_s >= self._round_trip_s:
            return False
        self._round_trip_s = took_s
        self._offset_s = time.time() - took_s / 2 - float(header["time"])
        return True

    def offset_s(self, *, exact: bool) -> float:
        """Return the seconds to add to the host's times. `exact`: whether answers are fast enough to trust.

        Without `exact`, an offset below the round-trip time counts as 0: most hosts synchronise their clocks.
        """
        within = not exact and abs(self._offset_s) <= (self._round_trip_s or 0.0)
        return 0.0 if within else round(self._offset_s, 4)
