"""The events with which a rank tells its last collectives."""

from __future__ import annotations

import os
from typing import Any

import pytest

from jupyter_dist.worker.output import events
from jupyter_dist.worker.rank import collectives


class Writer:
    def __init__(self) -> None:
        self.final: list[bool] = []

    def event(self, kind: str, data: dict[str, Any]) -> None:
        assert kind == events.COLLECTIVES
        self.final.append(data["final"])


def test_a_request_for_stacks_after_the_end_of_a_cell_does_not_replace_its_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By then, a session's rank has closed its groups, and would tell that it has called none."""
    first, second = Writer(), Writer()
    monkeypatch.setattr(collectives, "_recording", os.getpid())
    monkeypatch.setattr(collectives, "_last_writer", None)
    for writer in (first, second):
        monkeypatch.setattr(events, "_writer", writer)
        collectives.write()
        collectives.write(final=True)
        collectives.write()
    assert first.final == second.final == [False, True]
