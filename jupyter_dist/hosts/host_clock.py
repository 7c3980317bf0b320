"""How far a host's clock is from this machine's, as pings tell it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

__all__ = ["HostClock"]


class HostClock:
    """Pings on their way, and what the fastest answer has told. Knows nothing at first."""

    def __init__(self) -> None:
        self._sent: dict[int, float] = {}
        self._number = 0
        self._round_trip_s: float | None = None
        self._offset_s = 0.0

    @property
    def known(self) -> bool:
        """Whether a ping was answered."""
        return self._round_trip_s is not None

    def ping(self) -> int:
        """The number of a ping that is sent now."""
        self._number += 1
        self._sent[self._number] = time.time()
        return self._number

    def pong(self, header: Mapping[str, Any]) -> bool:
        """Take the answer to a ping; returns whether the offset is known better now."""
        sent, now = self._sent.pop(header["ping"], None), time.time()
        if sent is None or (self._round_trip_s is not None and now - sent >= self._round_trip_s):
            return False
        self._round_trip_s = now - sent
        self._offset_s = (sent + now) / 2 - float(header["time"])
        return True

    def offset_s(self, *, exact: bool) -> float:
        """Seconds to add to the host's times. `exact`: whether answers come fast enough to be believed.

        What a slow way cannot tell from nothing is nothing: most hosts' clocks are set by the network.
        """
        within = not exact and abs(self._offset_s) <= (self._round_trip_s or 0.0)
        return 0.0 if within else round(self._offset_s, 4)
