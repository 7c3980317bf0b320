"""The difference between the clocks of a host and of this machine."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from jupyter_dist.hosts import host_clock
from jupyter_dist.hosts.host_clock import HostClock


class Clocks:
    """The clocks of this machine. That of the host shows the same time as the monotonic one."""

    def __init__(self) -> None:
        self.now, self.ahead_s = 1000.0, 0.0
        self.module = SimpleNamespace(time=lambda: self.now + self.ahead_s, monotonic=lambda: self.now)

    def answer(self, clock: HostClock, takes_s: float, set_back_s: float = 0.0) -> bool:
        """Send a ping, whose answer takes so long. This machine's clock is set back meanwhile."""
        number = clock.ping()
        self.now += takes_s / 2
        told = {"ping": number, "time": self.now}
        self.now += takes_s / 2
        self.ahead_s -= set_back_s
        return clock.pong(told)


@pytest.mark.parametrize("exact", [True, False])
def test_a_clock_that_is_set_back_during_a_ping(monkeypatch: pytest.MonkeyPatch, exact: bool) -> None:
    """Else the answer would be the fastest of all, and its wrong offset would stay."""
    clocks, clock = Clocks(), HostClock()
    monkeypatch.setattr(host_clock, "time", clocks.module)
    assert clocks.answer(clock, 1.0)
    assert clock.offset_s(exact=exact) == 0.0
    assert not clocks.answer(clock, 1.5, set_back_s=30.0)
    assert clock.offset_s(exact=exact) == 0.0
    assert clocks.answer(clock, 0.5)
    assert clock.offset_s(exact=exact) == -30.0
