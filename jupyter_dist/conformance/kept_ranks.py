"""Tests of sessions: ranks that stay between cells, and what breaks a cell and not its session."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from .. import start
from ..errors import DistError
from ..job import State
from ..launch import session_link
from ..plan import run_plan
from ..queries.sessions import sessions
from ..record import reader
from ..record.sessions import find_session
from ..showing.run import Run
from .deadlines import wait_until
from .run_control import Runs, assert_state, story
from .target import Target

__all__ = ["Kept", "KeptSession"]


class KeptSession:
    """A session of one test."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self.name = f"conformance-{uuid.uuid4().hex[:8]}"
        self.ranks: set[tuple[str, int]] = set()
        """Host and pid of each process that was a rank."""

    def begin(self, source: str, names: Mapping[str, Any] | None = None) -> Run:
        """Start a cell in the session. Does not wait for it."""
        open_ = find_session(self.name) is not None
        given = {} if open_ else self._runs.given()
        given["session"] = self.name
        plan = run_plan.make_plan(given, spelled_as_flags=False, cluster=False)
        origin = start.Origin("In[1]", self._runs.cwd)
        return start.cell_in_session(source, dict(names or {}), plan, origin, given)

    def cell(self, source: str, names: Mapping[str, Any] | None = None) -> Run:
        """Run a cell in the session until it has ended, in whatever state."""
        return self.ended(self.begin(source, names))

    def ended(self, run: Run) -> Run:
        """Wait for the end of a cell, and note which processes ran it."""
        self._runs.wait(run)
        self.ranks |= {(str(r.host), r.pid) for r in run.status.ranks if r.pid is not None}
        return run

    def results(self, source: str, names: Mapping[str, Any] | None = None) -> list[Any]:
        run = self.cell(source, names)
        assert_state(run, State.SUCCEEDED)
        return list(run.results)

    def close(self) -> None:
        """End the session. Repeatable."""
        found = find_session(self.name)
        if found is not None:
            with contextlib.suppress(DistError):
                session_link.close(found)


class Kept:
    """Tests of a session's cells."""

    @pytest.fixture
    def session(self, runs: Runs) -> Iterator[KeptSession]:
        """Return a session that ends with the test. No process of its ranks may be left then."""
        with runs.here():
            session = KeptSession(runs)
            yield session
            session.close()
            runs.gone(*session.ranks)

    def test_a_session_keeps_values_between_cells(self, session: KeptSession, target: Target) -> None:
        everyone = range(target.np)
        first = "import os\nrank = int(os.environ['RANK'])\nprint('first')\nseen = [word, rank]\nrank"
        assert session.results(first, {"word": "a"}) == list(everyone)
        second = (
            "import jupyter_dist as dist\nprint('second')\nseen.append(word)\n"
            "(dist.checkpoint_dir() / str(rank)).write_text('kept')\nseen"
        )
        run = session.cell(second, {"word": "b"})
        assert_state(run, State.SUCCEEDED)
        assert list(run.results) == [["a", rank, "b"] for rank in everyone]
        assert [reader.output(run.folder, rank).decode() for rank in everyone] == ["second\n"] * target.np
        found = {path.name for path in run.folder.checkpoints.rglob("*") if path.is_file()}
        assert found == {str(rank) for rank in everyone}

        def memory() -> list[int | None]:
            found = next(one for one in sessions() if one["name"] == session.name)
            return [rank["memory_bytes"] for rank in found["ranks"]]

        wait_until(lambda: all(memory()), "the memory of each rank")

    def test_an_error_and_an_interrupt_end_the_cell_and_not_its_ranks(
        self, session: KeptSession, target: Target, runs: Runs
    ) -> None:
        session.results("import os, time\nrank = int(os.environ['RANK'])\nheld = [rank]")
        failing = f"if rank == {target.last}:\n    held.append('tried')\n    raise ValueError('planted')"
        run = session.cell(failing)
        assert_state(run, State.FAILED)
        assert run.status.reason is not None
        assert f"rank {target.last}" in run.status.reason
        run = session.begin("held.append('slept')\nprint('up', flush=True)\ntime.sleep(1000)")
        runs.until_up(run)
        run.folder.request("interrupt")
        assert_state(session.ended(run), State.STOPPED)
        kept = [[rank, "slept"] for rank in range(target.np)]
        kept[target.last].insert(1, "tried")
        assert session.results("held") == kept
        assert len(session.ranks) == target.np

    def test_a_dead_rank_is_named_and_replaced(self, session: KeptSession, target: Target) -> None:
        session.results("import os\nrank = int(os.environ['RANK'])\nheld = 1")
        run = session.cell(f"if rank == {target.last}: os._exit(7)")
        assert_state(run, State.FAILED)
        assert f"rank {target.last} has ended, and with it" in str(run.status.told), story(run)
        lost = session.results("'held' in globals()")
        assert lost == [rank != target.last for rank in range(target.np)]
        assert len(session.ranks) == target.np + 1
