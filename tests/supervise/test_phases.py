"""The phases of an attempt, as a table: what may follow what, and what cannot happen."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from jupyter_dist.supervise.phases import TABLE, Event, Phase, after

P, E = Phase, Event

STORIES = {
    "it works": [(E.HANDLE, P.PENDING), (E.BEGUN, P.RUNNING), (E.ENDED, P.OVER)],
    "it ends before it was seen to run": [(E.HANDLE, P.PENDING), (E.ENDED, P.OVER)],
    "the backend refuses": [(E.NOTHING, P.OVER)],
    "stopped": [(E.HANDLE, P.PENDING), (E.BEGUN, P.RUNNING), (E.END, P.ENDING), (E.ENDED, P.OVER)],
    "stopped in the queue": [(E.HANDLE, P.PENDING), (E.END, P.ENDING), (E.ENDED, P.OVER)],
    "stopped while ranks begin": [
        *((E.HANDLE, P.PENDING), (E.END, P.ENDING), (E.BEGUN, P.ENDING), (E.ENDED, P.OVER)),
    ],
    "stopped before it was submitted": [(E.END, P.WITHDRAWING), (E.NOTHING, P.OVER)],
    "stopped while it was submitted": [(E.END, P.WITHDRAWING), (E.HANDLE, P.ENDING), (E.ENDED, P.OVER)],
    "submitted again": [
        *((E.DOUBT, P.SEARCHING), (E.NOTHING, P.SUBMITTING), (E.HANDLE, P.PENDING), (E.BEGUN, P.RUNNING)),
    ],
    "found again": [(E.DOUBT, P.SEARCHING), (E.HANDLE, P.PENDING), (E.BEGUN, P.RUNNING)],
    "found again, to be stopped": [
        *((E.DOUBT, P.SEARCHING), (E.END, P.TRACING), (E.HANDLE, P.ENDING), (E.ENDED, P.OVER)),
    ],
    "cut off": [(E.END, P.WITHDRAWING), (E.DOUBT, P.TRACING), (E.NOTHING, P.OVER)],
    "cut off, and never heard of": [(E.END, P.WITHDRAWING), (E.DOUBT, P.TRACING), (E.GIVEN_UP, P.UNKNOWN)],
    "never heard of again": [
        *((E.HANDLE, P.PENDING), (E.BEGUN, P.RUNNING), (E.END, P.ENDING), (E.GIVEN_UP, P.UNKNOWN)),
    ],
}


@pytest.mark.parametrize("story", STORIES)
def test_each_story_goes_as_told(story: str) -> None:
    phase = Phase.SUBMITTING
    for event, follows in STORIES[story]:
        phase = after(phase, event)
        assert phase is follows


def test_the_stories_tell_the_whole_table() -> None:
    told = set()
    for story in STORIES.values():
        phase = Phase.SUBMITTING
        for event, follows in story:
            told.add((phase, event))
            phase = follows
    assert told == set(TABLE)


@pytest.mark.parametrize(
    ("phase", "event"), [pair for pair in itertools.product(Phase, Event) if pair not in TABLE]
)
def test_what_is_not_told_cannot_happen(phase: Phase, event: Event) -> None:
    with pytest.raises(KeyError):
        after(phase, event)


def test_no_phase_is_a_dead_end() -> None:
    """From each there is a way to the end, and whatever is under way can be called off."""
    for phase in Phase:
        reached = {phase}
        while True:
            more = {follows for (start, _), follows in TABLE.items() if start in reached} | reached
            if more == reached:
                break
            reached = more
        assert Phase.OVER in reached or phase is Phase.UNKNOWN
    ending = {Phase.WITHDRAWING, Phase.TRACING, Phase.ENDING}
    for phase in set(Phase) - ending - {Phase.OVER, Phase.UNKNOWN}:
        assert after(phase, Event.END) in ending


def test_what_is_called_off_never_goes_on() -> None:
    """Once an attempt is to be ended, no event brings it back to running or submits it again."""
    ending = {Phase.WITHDRAWING, Phase.TRACING, Phase.ENDING, Phase.OVER, Phase.UNKNOWN}
    assert {follows for (phase, _), follows in TABLE.items() if phase in ending} <= ending


def test_the_documentation_draws_this_table() -> None:
    text = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
    drawn = {
        (Phase[start], Event[event]): Phase[follows]
        for start, follows, event in re.findall(r"^    (\w+) --> (\w+): (\w+)$", text, re.MULTILINE)
    }
    assert drawn == TABLE
    for each in (*Phase, *Event):
        assert f"| {each.name} | {each.value} |" in text
