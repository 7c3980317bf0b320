"""One of a backend's calls, made again with growing pauses while it fails in a way that may pass."""

from __future__ import annotations

from typing import Any

from ..worker.jitter import jitter
from .backend_calls import Call, Caller, Failure

__all__ = ["RetriedCall"]

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0
_TRIES = 3
"""How often in a row a call may fail in a way that does not pass, where there is reason to try it again."""


class RetriedCall:
    """At most one call of its kind is under way. Times are by the monotonic clock."""

    def __init__(self, caller: Caller, name: str, grace_s: float) -> None:
        self._caller, self._name, self._grace_s = caller, name, grace_s
        self._call: Call | None = None
        self._in_a_row = self._for_good = 0
        self._not_before = 0.0
        self._began_failing: float | None = None
        self.failure: Failure | None = None
        """Why the newest call failed; None when it did not."""

    @property
    def under_way(self) -> bool:
        return self._call is not None

    def ready(self, now: float) -> bool:
        return self._call is None and now >= self._not_before

    def begin(self, **arguments: Any) -> None:
        self._call = self._caller.begin(self._name, **arguments)

    def since(self) -> float | None:
        """When the call that is under way was made."""
        return None if self._call is None else self._call.began

    def take(self, now: float) -> Call | None:
        """The call, once it is done: with its value, or with a failure that has been taken note of."""
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
        # Many runs may wait for the same service.
        self._not_before = now + pause * jitter(0.5, 1.5)
        return call

    def exhausted(self, now: float) -> bool:
        """It has failed for so long, or so often, that it is not worth trying again."""
        if self._began_failing is None:
            return False
        return self._for_good >= _TRIES or now - self._began_failing >= self._grace_s

    def hurry(self) -> None:
        """The next call need not wait for the end of a pause."""
        self._not_before = 0.0

    def trouble(self, now: float) -> str | None:
        """One line for the user, while it fails."""
        if self.failure is None or self._began_failing is None:
            return None
        so_far = now - self._began_failing
        if not self.failure.may_pass:
            return f"the backend's `{self._name}` fails ({self.failure}); trying again, {so_far:.0f} s so far"
        return f"the backend does not answer ({self.failure}); trying again, {so_far:.0f} s so far"
