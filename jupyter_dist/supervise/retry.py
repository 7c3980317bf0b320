"""Retries of one of a backend's calls, with growing pauses, while its failures are temporary."""

from __future__ import annotations

from typing import Any

from ..worker.jitter import jitter
from .backend_calls import Call, Caller, Failure

__all__ = ["RetriedCall"]

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0
_TRIES = 3
"""How many permanent failures in a row end the retries, if the caller retries such failures at all."""


class RetriedCall:
    """One kind of call, of which at most one is pending. Times are by the monotonic clock."""

    def __init__(self, caller: Caller, name: str, grace_s: float) -> None:
        self._caller, self._name, self._grace_s = caller, name, grace_s
        self._call: Call | None = None
        self._in_a_row = self._for_good = 0
        self._not_before = 0.0
        self._began_failing: float | None = None
        self.failure: Failure | None = None
        """Why the newest call failed; None if it succeeded."""

    @property
    def under_way(self) -> bool:
        return self._call is not None

    def ready(self, now: float) -> bool:
        return self._call is None and now >= self._not_before

    def begin(self, **arguments: Any) -> None:
        self._call = self._caller.begin(self._name, **arguments)

    def since(self) -> float | None:
        """Return when the pending call was made; None if no call is pending."""
        return None if self._call is None else self._call.began

    def take(self, now: float) -> Call | None:
        """Return the call if it is done, and record its failure, if any. Returns None while it is pending."""
        call = self._call
        if call is None or not call.done:
            return None
        self._call = None
        self.failure = call.failure
        if call.failure is None:
            self._in_a_row = self._for_good = 0
            self._began_failing = None
            return call
        self._began_failing = self._began_failing or now
        self._in_a_row += 1
        self._for_good = 0 if call.failure.may_pass else self._for_good + 1
        pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(self._in_a_row, 20))
        # The jitter spreads the load: many runs may retry the same service.
        self._not_before = now + pause * jitter(0.5, 1.5)
        return call

    def exhausted(self, now: float) -> bool:
        """Return whether the call has failed too long or too often for another retry."""
        if self._began_failing is None:
            return False
        return self._for_good >= _TRIES or now - self._began_failing >= self._grace_s

    def hurry(self) -> None:
        """Skip the rest of the pause before the next call."""
        self._not_before = 0.0

    def trouble(self, now: float) -> str | None:
        """Describe the failure in one line for the user; None if the newest call succeeded."""
        if self.failure is None or self._began_failing is None:
            return None
        so_far = now - self._began_failing
        if not self.failure.may_pass:
            return f"the backend's `{self._name}` fails ({self.failure}); trying again, {so_far:.0f} s so far"
        return f"the backend does not answer ({self.failure}); trying again, {so_far:.0f} s so far"
