"""The state machine of an attempt, as a table. docs/architecture.md draws it."""

from __future__ import annotations

import enum

__all__ = ["TABLE", "Event", "Phase", "after"]


class Phase(enum.Enum):
    """The phases of one attempt."""

    SUBMITTING = "The supervisor is asking the backend to start the ranks."
    SEARCHING = (
        "A submission was interrupted. The supervisor is asking the backend whether it started the ranks."
    )
    WITHDRAWING = "The attempt is to end while its submission is still running."
    TRACING = "The attempt is to end. The supervisor is asking the backend whether anything was started."
    PENDING = "The backend accepted the job. No rank is running yet."
    RUNNING = "Ranks are running."
    ENDING = "The supervisor is stopping the ranks."
    OVER = "Nothing of the attempt is running."
    UNKNOWN = "The supervisor cannot find out whether the ranks have ended."

    @property
    def over(self) -> bool:
        return self in (Phase.OVER, Phase.UNKNOWN)

    @property
    def submitted(self) -> bool:
        """Return whether the attempt has a handle with which to poll the backend."""
        return self in (Phase.PENDING, Phase.RUNNING, Phase.ENDING)


class Event(enum.Enum):
    """The events that change the phase of an attempt."""

    HANDLE = "The backend returned a handle."
    NOTHING = "Nothing of the attempt is running, and nothing will start."
    DOUBT = "The submission failed, and the backend may have started the ranks anyway."
    BEGUN = "The backend no longer reports pending."
    END = "The attempt is to end: a user stopped it, a time limit passed, or a rank or the backend failed."
    ENDED = "The backend reports that all ranks have ended."
    GIVEN_UP = "The backend has not answered for so long that the supervisor stops asking."


_P, _E = Phase, Event
TABLE: dict[tuple[Phase, Event], Phase] = {
    (_P.SUBMITTING, _E.HANDLE): _P.PENDING,
    (_P.SUBMITTING, _E.NOTHING): _P.OVER,
    (_P.SUBMITTING, _E.DOUBT): _P.SEARCHING,
    (_P.SUBMITTING, _E.END): _P.WITHDRAWING,
    (_P.SEARCHING, _E.HANDLE): _P.PENDING,
    (_P.SEARCHING, _E.NOTHING): _P.SUBMITTING,
    (_P.SEARCHING, _E.END): _P.TRACING,
    (_P.WITHDRAWING, _E.HANDLE): _P.ENDING,
    (_P.WITHDRAWING, _E.NOTHING): _P.OVER,
    (_P.WITHDRAWING, _E.DOUBT): _P.TRACING,
    (_P.TRACING, _E.HANDLE): _P.ENDING,
    (_P.TRACING, _E.NOTHING): _P.OVER,
    (_P.TRACING, _E.GIVEN_UP): _P.UNKNOWN,
    (_P.PENDING, _E.BEGUN): _P.RUNNING,
    (_P.PENDING, _E.END): _P.ENDING,
    (_P.PENDING, _E.ENDED): _P.OVER,
    (_P.RUNNING, _E.END): _P.ENDING,
    (_P.RUNNING, _E.ENDED): _P.OVER,
    (_P.ENDING, _E.BEGUN): _P.ENDING,
    (_P.ENDING, _E.ENDED): _P.OVER,
    (_P.ENDING, _E.GIVEN_UP): _P.UNKNOWN,
}
"""`after` raises KeyError for a pair that is not listed."""


def after(phase: Phase, event: Event) -> Phase:
    """Return the next phase. Raises KeyError for an event that cannot happen in this phase."""
    return TABLE[phase, event]
