"""Where an attempt stands, and what brings it from one phase to the next: the table of the state machine."""

from __future__ import annotations

import enum

__all__ = ["TABLE", "Event", "Phase", "after"]


class Phase(enum.Enum):
    """Where one attempt stands."""

    SUBMITTING = "the backend is asked to start the ranks"
    SEARCHING = "a submission was cut off: the backend is asked what came of it, to go on with that"
    WITHDRAWING = "the attempt is to be ended, and its submission is still under way"
    TRACING = "the attempt is to be ended, and the backend is asked whether there is anything to end"
    PENDING = "submitted; no rank runs yet"
    RUNNING = "ranks run"
    ENDING = "the ranks are to be ended"
    OVER = "nothing of the attempt runs"
    UNKNOWN = "nobody can tell whether the ranks have ended"

    @property
    def over(self) -> bool:
        return self in (Phase.OVER, Phase.UNKNOWN)

    @property
    def submitted(self) -> bool:
        """There is a handle, with which the backend is polled."""
        return self in (Phase.PENDING, Phase.RUNNING, Phase.ENDING)


class Event(enum.Enum):
    """What happens to an attempt."""

    HANDLE = "the backend has given a handle"
    NOTHING = "nothing of the attempt runs, nor will: the backend says so, or was never asked to start it"
    DOUBT = "the submission failed in a way that leaves open whether it has come to anything"
    BEGUN = "the backend no longer says pending"
    END = "the attempt is to be ended: the user says so, a time is over, a rank or the backend fails"
    ENDED = "the backend says that all ranks have ended"
    GIVEN_UP = "the backend could not be asked for so long, or so often, that nothing more is to be learned"


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
"""What is not listed cannot happen: `after` raises."""


def after(phase: Phase, event: Event) -> Phase:
    """The phase that follows. Raises KeyError for what cannot happen in this phase."""
    return TABLE[phase, event]
