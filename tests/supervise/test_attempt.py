"""One attempt, turn by turn: moments that a run with real ranks passes too quickly, or by chance."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Poll, RankState, State
from jupyter_dist.record import reader
from tests.rigs.one_attempt import attempt_of
from tests.rigs.run_maker import BEGAN, RunMaker


class Scripted:
    """A backend whose two ranks are as the test has set them, or all in one state. No signal ends them."""

    def __init__(self) -> None:
        self.state, self.attempt = State.RUNNING, 0
        self.ranks: tuple[RankState, ...] = ()
        self.signals: list[str] = []

    def submit(self, job: Any, folder: Any, attempt: int) -> dict[str, Any]:
        return {}

    def poll(self, job: Any, folder: Any, handle: Any, cursor: Any) -> Poll:
        ranks = self.ranks or tuple(RankState(rank, self.state, 1000 + rank, "node1") for rank in range(2))
        return Poll(self.state, ranks, attempt=self.attempt)

    def stop(self, job: Any, folder: Any, handle: Any, *, kill: bool) -> None:
        self.signals.append("SIGKILL" if kill else "SIGTERM")

    def ask(self, job: Any, folder: Any, handle: Any, rank: Any, verb: str) -> None:
        pass


class Turns:
    """The turns of a run's only attempt, on a clock of the test's own."""

    def __init__(self, root: Path) -> None:
        self.made, self.backend = RunMaker(root), Scripted()
        self.folder = self.made.folder
        self.attempt, self._now = attempt_of(self.made, self.backend), time.monotonic()
        self.later(0)

    def later(self, seconds: float) -> None:
        """Let so much time pass, and take two turns: the first may still have an older answer."""
        self._now += seconds
        for _ in range(2):
            if self.attempt.outcome is None:
                self.attempt.tick(self._now, woken=True)

    @property
    def line(self) -> str | None:
        """The line under the cell."""
        return reader.status(self.folder).reason


def breakpoint_of(folder: RunFolder, attempt: int, rank: int) -> None:
    stop = {"time": 5.0, "kind": "stop", "why": "breakpoint", "place": f"In[{rank}], line 3", "error": ""}
    with folder.rank(attempt, rank).prompts.open("a") as file:
        file.write(json.dumps(stop) + "\n")


@pytest.mark.parametrize("signalled", [False, True])
def test_ranks_that_succeed_before_the_first_signal_have_succeeded(
    signalled: bool, own_folders: Path
) -> None:
    """A stop of silent ranks asks them first where they are. Nothing was cut off if they end meanwhile."""
    run = Turns(own_folders)
    run.later(60)
    run.folder.request("stop")
    run.later(1)
    assert (run.line, run.backend.signals) == ("stopped by the user", [])
    if signalled:
        run.later(1)
        assert run.backend.signals == ["SIGTERM"]
    run.backend.state = State.SUCCEEDED
    run.later(0)
    outcome = run.attempt.outcome
    assert outcome is not None
    wanted = (State.STOPPED, "stopped by the user") if signalled else (State.SUCCEEDED, None)
    assert (outcome.state, outcome.reason) == wanted


def test_ranks_that_were_killed_have_no_more_time_to_save(own_folders: Path) -> None:
    run = Turns(own_folders)
    run.folder.request("stop")
    run.later(0)
    assert str(run.line).endswith(" to save. Stop again to kill them now")
    run.folder.request("kill")
    run.later(0)
    assert run.backend.signals == ["SIGTERM", "SIGKILL"]
    assert run.line == "stopped by the user", "a killed process may take a while to end"


def test_after_a_launcher_s_own_restart_the_new_ranks_wait_for_their_user(own_folders: Path) -> None:
    run = Turns(own_folders)
    breakpoint_of(run.folder, 0, 0)
    run.later(1)
    assert run.line == "rank 0 waits at In[0], line 3 (to answer: %dist debug)"
    run.backend.attempt = 1
    run.later(1)
    assert reader.status(run.folder).waits == (), "the rank that waited is gone"
    breakpoint_of(run.folder, 1, 1)
    run.later(1)
    assert run.line == "rank 1 waits at In[1], line 3 (to answer: %dist debug)"
    assert [wait.rank for wait in reader.status(run.folder).waits] == [1]


def test_the_time_at_prompts_is_written_for_another_supervisor(own_folders: Path) -> None:
    """It does not count against --timeout, also if this supervisor dies while the ranks wait."""
    run = Turns(own_folders)
    breakpoint_of(run.folder, 0, 0)
    run.later(1)
    run.later(100)
    breakpoint_of(run.folder, 0, 1)
    run.later(1)
    status = reader.status(run.folder)
    assert [wait.rank for wait in status.waits] == [0, 1]
    assert status.held_s == pytest.approx(101)


def test_a_rank_that_fails_soon_after_the_first_is_not_ended_before(own_folders: Path) -> None:
    """The first failure may follow from another one that comes later."""
    run = Turns(own_folders)
    run.made.fail(0, "ConnectionResetError", "Connection reset by peer", "", when=BEGAN + 1)
    run.backend.ranks = run.made.status.ranks
    run.later(0)
    run.made.fail(1, "ValueError", "boom", "", when=BEGAN + 1.2)
    run.later(0.2)
    assert (run.attempt.outcome, run.backend.signals) == (None, [])
    run.backend.state, run.backend.ranks = State.FAILED, run.made.status.ranks
    run.later(0)
    assert run.attempt.outcome is not None
    assert run.attempt.outcome.reason == "rank 1 failed: ValueError: boom"


@pytest.mark.parametrize("failed", [1, 2])
def test_ranks_that_have_all_failed_have_time_to_show_their_figures(failed: int, own_folders: Path) -> None:
    """A rank that has not failed may wait for the others for ever."""
    run = Turns(own_folders)
    for rank in range(failed):
        run.folder.rank(0, rank).error.write_text("{}")
    run.later(0)
    run.later(1)
    assert run.backend.signals == ["SIGTERM"]
    run.later(2)
    assert run.backend.signals[1:] == ["SIGKILL"] * (2 - failed)
    run.later(5)
    assert run.backend.signals[1] == "SIGKILL"
