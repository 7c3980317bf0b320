"""Tests of runs that are ended from outside: stopped, killed, or without their supervisor."""

from __future__ import annotations

import os
import re
import secrets
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from .. import backends, start
from ..errors import InputError, RunStopped
from ..job import State, Status
from ..manage import removal, stop
from ..manage.rank_prompts import Prompts
from ..record import reader
from ..showing.run import Run
from . import cells
from .failed_runs import _processes
from .ports import take_port
from .run_control import Runs, assert_state, story, wait_until
from .target import Target

__all__ = ["Ended", "Stopped"]

_ANSWER = 'it\'s "me", ünï {x} 🚀'


def _children(run: Run) -> list[tuple[str, int]]:
    """Return the processes that the ranks have started, by each rank's host and the pid that it printed."""
    found = []
    for rank in run.status.ranks:
        match = re.search(r"^child (\d+)$", reader.output(run.folder, rank.rank).decode(), re.MULTILINE)
        assert match is not None, f"rank {rank.rank} has started nothing"
        found.append((str(rank.host), int(match[1])))
    return found


def _arguments() -> bytes:
    """Return the arguments of every process on this machine."""
    found = b""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += path.read_bytes() + b"\n"
        except OSError:
            continue
    return found


def _answer(run: Run, target: Target) -> None:
    """Answer the ranks, which all ask."""
    prompts = Prompts(run.folder)

    def asked() -> bool:
        prompts.look()
        assert not prompts.ended, story(run)
        return len(prompts.ready) == target.np

    wait_until(asked, "every rank to ask", run, target.patience_s)
    prompts.answer(prompts.ready, _ANSWER)
    slow = prompts.wait(range(target.np), target.patience_s)
    assert slow == [], f"ranks {slow} have not read their answer\n{story(run)}"
    prompts.close()


@dataclass(frozen=True)
class _StoppedRun:
    """A run that one process started and another stopped, and observations meanwhile."""

    run: Run
    status: Status
    """Status while the run was running."""
    stacks: dict[int, str]
    secret_in_argv: bool
    children: list[tuple[str, int]]
    told: list[str]
    """States of the run that the stopping process saw."""


class Stopped:
    """Tests of a run that another process has stopped."""

    @pytest.fixture(scope="class")
    @classmethod
    def stopped(cls, runs: Runs) -> _StoppedRun:
        secret = secrets.token_hex(16)
        hears = backends.declared(runs.target.backend).capabilities.stacks
        env = {"CONFORMANCE_SECRET": secret, "CONFORMANCE_ASKS": "yes" if hears else "no"}
        run = runs.adopt(runs.elsewhere(cells.DETACHED, **runs.given(env=env)).split("\n")[-1])
        if hears:
            _answer(run, runs.target)
        runs.until_up(run)
        status = run.status
        dumps = {}
        if hears:
            dumps = {rank: repr(dump) for rank, dump in run.stacks(runs.target.patience_s).dumps.items()}
        in_argv = secret.encode() in _arguments()
        children = _children(run)
        told = runs.elsewhere(cells.STOPS_IT, run.id, str(runs.target.patience_s / 2)).split("\n")
        return _StoppedRun(run, status, dumps, in_argv, children, told)

    def test_a_detached_run_goes_on_and_says_where(self, stopped: _StoppedRun, target: Target) -> None:
        status = stopped.status
        assert status.state is State.RUNNING
        assert {rank.state for rank in status.ranks} == {State.RUNNING}
        assert [(rank.host, rank.pid) for rank in status.ranks if not rank.host or not rank.pid] == []
        assert len({(rank.host, rank.pid) for rank in status.ranks}) == target.np

    def test_another_process_attaches_and_stops_it(self, stopped: _StoppedRun) -> None:
        assert stopped.told == ["running", "stopped"]
        assert stopped.run.status.reason == "stopped by the user"
        assert {rank.state for rank in stopped.run.status.ranks} == {State.STOPPED}
        assert stopped.run.errors == []
        with pytest.raises(RunStopped):
            stopped.run.raise_for_state()

    def test_a_stop_lets_finally_blocks_run(self, stopped: _StoppedRun, target: Target) -> None:
        for rank in range(target.np):
            assert stopped.run.log(rank).split("\n")[-2:] == ["saved", ""]

    def test_what_the_ranks_have_started_ends_with_them(self, stopped: _StoppedRun, runs: Runs) -> None:
        runs.gone(*_processes(stopped.run), *stopped.children)

    def test_stacks_of_ranks_that_hang(self, stopped: _StoppedRun, target: Target) -> None:
        if not backends.declared(target.backend).capabilities.stacks:
            assert stopped.stacks == {}
            return
        assert sorted(stopped.stacks) == list(range(target.np))
        assert [rank for rank, text in stopped.stacks.items() if "waits_here" not in text] == []

    def test_ranks_ask_their_user(self, stopped: _StoppedRun, target: Target) -> None:
        """Backends that carry requests to ranks carry answers."""
        if not backends.declared(target.backend).capabilities.stacks:
            return
        for rank in range(target.np):
            assert f"who? {_ANSWER}\nanswered {_ANSWER!a}\n" in stopped.run.log(rank)

    def test_no_value_of_a_variable_stands_in_an_argument(self, stopped: _StoppedRun) -> None:
        """`ps` shows arguments to every user of the machine."""
        assert not stopped.secret_in_argv


class Ended:
    """Tests of a run that is killed, or whose supervisor is killed."""

    def test_a_kill_ends_ranks_that_ignore_sigterm(self, runs: Runs) -> None:
        run = runs.until_up(runs.start(cells.STUBBORN))
        run.stop()
        run.stop(kill=True)
        runs.wait(run)
        assert_state(run, State.STOPPED)
        assert run.status.reason in ("killed by the user", "stopped by the user")
        runs.gone(*_processes(run))

    def test_an_interrupt_is_a_keyboard_interrupt_in_each_rank(self, runs: Runs, target: Target) -> None:
        """As in any cell: the ranks may save and return a result. The run counts as stopped.

        On a backend that cannot interrupt ranks, they end as after a stop.
        """
        run = runs.until_up(runs.start(cells.SAVES_WHEN_INTERRUPTED))
        stop.stop(run.folder, interrupt=True)
        runs.wait(run)
        assert_state(run, State.STOPPED)
        assert run.status.reason == "interrupted by the user"
        if not backends.declared(target.backend).capabilities.interrupts:
            return
        assert run.results == ["interrupted 1 times"] * target.np
        assert {run.log(rank).split("\n")[-2] for rank in range(target.np)} == {"saved"}

    def test_a_run_whose_supervisor_is_killed(self, runs: Runs, target: Target) -> None:
        """Its ranks and all that they started end. Or they continue, and a new supervisor starts for them."""
        # The run must last until the test has seen the first line, however distant the hosts are.
        lines = max(200, round(50 * target.startup_s))
        run = runs.until_up(runs.start(cells.COUNTS, {"PORT": take_port(), "LINES": lines}))
        children, supervisor = _children(run), run.status.supervisor
        assert supervisor is not None
        os.kill(supervisor.pid, signal.SIGKILL)
        outlives = backends.declared(target.backend).capabilities.outlives
        without = State.UNWATCHED if outlives else State.LOST
        wait_until(lambda: run.state is without, f"the state {without}", run, target.patience_s)
        if outlives:
            with runs.here():
                # Only its folder can find the ranks again.
                with pytest.raises(InputError, match="has not ended"):
                    removal.remove([run.folder])
                start.attach(run.id)
            runs.wait(run)
            assert_state(run, State.SUCCEEDED)
            assert list(run.results) == [lines - 1] * target.np
        runs.gone(*_processes(run), *children)
        for rank in range(target.np):
            log = [line for line in run.log(rank).split("\n") if line.startswith("line ")]
            assert log == [f"line {number}" for number in range(lines if outlives else len(log))]
            steps = [
                e.data["step"] for e in reader.events(run.folder) if (e.rank, e.kind) == (rank, "metric")
            ]
            assert steps == list(range(len(steps)))
            assert abs(len(steps) - len(log)) <= 1
