"""Tests of runs that fail: the named rank, the kept output, the ended ranks, the next attempt."""

from __future__ import annotations

import pytest

from .. import backends
from ..errors import InputError, RunFailed
from ..job import State
from ..record import reader
from ..showing import failure_report
from ..showing.run import Run
from . import cells
from .ports import take_port
from .run_control import Runs, assert_state
from .target import Target

__all__ = ["Failed", "Raised"]

LINES = 2000


def _processes(run: Run) -> list[tuple[str, int]]:
    """Return the processes of all ranks, as the ranks themselves reported them."""
    told = [event.data for event in reader.events(run.folder) if event.kind == "started"]
    return [(event["host"], event["pid"]) for event in told]


class Raised:
    """Tests of a run in which one rank raises an exception."""

    @pytest.fixture(scope="class")
    @classmethod
    def raised(cls, runs: Runs) -> Run:
        run = runs.finish(cells.FAILS, {"PORT": take_port(), "LAST": runs.target.last})
        assert_state(run, State.FAILED)
        return run

    def test_a_rank_that_raises_fails_the_run_and_is_its_reason(self, raised: Run, target: Target) -> None:
        reason = failure_report.headline(raised.status, raised.errors)
        assert reason == f"rank {target.last} failed: ValueError: only here: ünïcode"
        assert raised.status.ranks[target.last].state is State.FAILED
        assert raised.status.ranks[target.last].exit_code == 1

    def test_the_root_cause_comes_first_and_what_follows_from_it_is_folded(
        self, raised: Run, target: Target
    ) -> None:
        first, *others = raised.errors
        assert (first.rank, first.kind, first.type) == (target.last, "exception", "ValueError")
        assert (first.message, first.collateral) == ("only here: ünïcode", False)
        assert [error.rank for error in others if not error.collateral] == []
        with pytest.raises(RunFailed) as told:
            raised.raise_for_state()
        text = str(told.value)
        assert f"rank {target.last} failed" in text.split("\n")[0]
        assert text.count("Traceback") == 1
        assert 'raise ValueError("only here: ünïcode")' in text

    def test_a_traceback_shows_the_cell_and_none_of_our_frames(self, raised: Run) -> None:
        first = raised.errors[0]
        assert 'File "In[1]", line' in first.text
        assert 'raise ValueError("only here: ünïcode")' in first.text
        assert "jupyter_dist" not in first.text

    def test_the_other_ranks_are_ended_and_keep_what_they_wrote(
        self, raised: Run, runs: Runs, target: Target
    ) -> None:
        assert len(_processes(raised)) == target.np
        runs.gone(*_processes(raised))
        assert "waiting for the last rank" in raised.log(0)
        assert "about to fail" in raised.log(target.last)


class Failed:
    """Tests of runs that fail without an exception, and of restarts."""

    @pytest.fixture(scope="class")
    @classmethod
    def killed(cls, runs: Runs) -> Run:
        run = runs.finish(cells.KILLED, {"PORT": take_port(), "LINES": LINES, "LAST": runs.target.last})
        assert_state(run, State.FAILED)
        return run

    def test_a_rank_that_is_killed_is_named_with_its_signal(self, killed: Run, target: Target) -> None:
        assert killed.status.reason == f"rank {target.last} was ended by SIGKILL"
        first = killed.errors[0]
        assert (first.rank, first.kind, first.signal) == (target.last, "signal", 9)
        assert killed.status.ranks[target.last].signal == 9

    def test_nothing_is_lost_that_a_killed_rank_wrote(self, killed: Run, target: Target) -> None:
        lines = [line for line in killed.log(target.last).split("\n") if line.startswith("line ")]
        assert lines == [f"line {number}" for number in range(LINES)]
        events = [e for e in reader.events(killed.folder) if e.rank == target.last and e.kind == "metric"]
        assert [event.data["step"] for event in events] == list(range(LINES))

    def test_ranks_that_ignore_sigterm_are_ended_too(self, killed: Run, runs: Runs) -> None:
        runs.gone(*_processes(killed))
        assert {rank.state for rank in killed.status.ranks[:-1]} == {State.STOPPED}

    def test_an_exit_code_is_a_failure_with_that_code(self, runs: Runs, target: Target) -> None:
        run = runs.finish(cells.EXITS, {"LAST": target.last})
        assert_state(run, State.FAILED)
        assert run.status.reason == f"rank {target.last} ended with exit code 3"
        first, *others = run.errors
        assert (first.rank, first.kind, first.exit_code) == (target.last, "exit", 3)
        assert all(error.collateral for error in others)
        runs.gone(*_processes(run))

    def test_a_restart_is_a_new_attempt(self, runs: Runs, target: Target) -> None:
        """The first attempt ends silently: `os._exit` runs no handler and writes no error."""
        if not backends.declared(target.backend).capabilities.restarts:
            with pytest.raises(InputError, match="cannot restart ranks"):
                runs.plan(max_restarts=1)
            return
        run = runs.finish(cells.RESTARTS, {"LAST": target.last}, max_restarts=1)
        assert_state(run, State.SUCCEEDED)
        assert (run.status.attempt, run.folder.attempts()) == (1, [0, 1])
        assert list(run.results) == [(1, "seen")] * target.np
        for rank in range(target.np):
            assert "attempt 1" in run.log(rank, attempt=1).split("\n")
            assert "attempt 1" not in run.log(rank, attempt=0).split("\n")
        assert "attempt 0" in run.log(target.last, attempt=0).split("\n")

    def test_a_timeout_fails_the_run(self, runs: Runs) -> None:
        """The state of the ranks does not matter: a slow launcher is ended while it starts them."""
        run = runs.finish("import time\ntime.sleep(600)", timeout=1)
        assert_state(run, State.FAILED)
        assert run.status.reason == "not done within --timeout 1 s"
        runs.gone(*_processes(run))
