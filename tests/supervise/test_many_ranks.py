"""A thousand ranks: what one turn of the supervisor and one question of a view cost, in CPU time."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist import queries
from jupyter_dist.job import Poll, RankState, State, Status
from jupyter_dist.record import reader
from jupyter_dist.supervise.log_index import LogIndexWriter
from jupyter_dist.supervise.phases import Phase
from jupyter_dist.supervise.reported_errors import ReportedErrors, clock_of_files
from jupyter_dist.supervise.status_writer import StatusWriter
from tests.rigs.one_attempt import attempt_of
from tests.rigs.run_maker import BEGAN, RunMaker
from tests.rigs.stopwatch import Stopwatch

RANKS = 1000
_TURN_S, _QUESTION_S = 0.2, 0.05


def cpu_s(act: Callable[[], object]) -> float:
    """CPU time of this thread: what other processes of the machine do does not count."""
    began = time.thread_time()
    act()
    return time.thread_time() - began


def read_plainly(run: RunMaker) -> None:
    """Read and parse every rank's events, and nothing else."""
    for rank in range(RANKS):
        for line in run.rank(rank).events.read_bytes().splitlines():
            json.loads(line)


class Simulated:
    """A backend whose ranks come up a hundred per poll."""

    def __init__(self) -> None:
        self.up = 0

    def submit(self, job: Any, folder: Any, attempt: int) -> dict[str, Any]:
        return {}

    def poll(self, job: Any, folder: Any, handle: Any, cursor: Any) -> Poll:
        self.up = min(RANKS, self.up + 100)
        ranks = tuple(
            RankState(rank, State.RUNNING if rank < self.up else State.PENDING, 1000 + rank, "node1")
            for rank in range(RANKS)
        )
        return Poll(State.RUNNING, ranks)


@pytest.fixture
def many(own_folders: Path) -> Iterator[RunMaker]:
    made = RunMaker(own_folders, RANKS)
    for rank in range(RANKS):
        made.print(rank, "up\n")
        made.metric(rank, 1, {"loss": 0.5})
        made.event(rank, "progress", id=1, n=1, total=10, desc="epoch")
    # What other tests have left in this process is not looked through while a turn is measured.
    gc.collect()
    gc.freeze()
    yield made
    gc.unfreeze()


def test_a_turn_is_short_while_ranks_come_up_write_and_fail(many: RunMaker) -> None:
    backend = Simulated()
    attempt = attempt_of(many, backend)
    for turn in range(30):
        for rank in range(turn, RANKS, 20):
            many.print(rank, f"line {turn}\n")
        if turn == 25:
            many.fail(RANKS - 1, "ValueError", "no", "")
        took = cpu_s(lambda: attempt.tick(time.monotonic(), woken=True))
        assert took < _TURN_S, f"turn {turn}: {took:.3f} s"
        if attempt.phase is Phase.ENDING:
            break
    else:
        for _ in range(10):  # an early error is noticed within ten turns
            attempt.tick(time.monotonic(), woken=True)
    assert attempt.phase is Phase.ENDING
    assert backend.up == RANKS


def test_a_question_about_a_run_is_quick(many: RunMaker) -> None:
    first = cpu_s(lambda: queries.run(many.folder.id))
    plain = min(cpu_s(lambda: read_plainly(many)) for _ in range(3))
    assert first < 8 * plain, (first, plain)  # it reads a thousand files, and makes objects of what they say
    took = []
    for number in range(5):
        many.event(number, "progress", id=1, n=2, total=10, desc="epoch")
        many.write(heartbeat=time.time())
        took.append(cpu_s(lambda: queries.run(many.folder.id)))
    assert min(took) < _QUESTION_S, took
    assert len(queries.run(many.folder.id)["ranks"]) == RANKS


def test_questions_after_each_heartbeat_are_answered_within_the_limit(many: RunMaker) -> None:
    """On the clock of the user, who waits for the answers."""
    writer = StatusWriter(many.folder, many.status)
    queries.run(many.folder.id)
    watch = Stopwatch()
    for number in range(10):
        many.event(number, "progress", id=1, n=2, total=10, desc="epoch")
        writer.write()
        found = queries.run(many.folder.id)
        assert found["progress_by_rank"][number]["n"] == 2
    assert watch.under(10 * _QUESTION_S)
    assert [row["rank"] for row in found["progress_by_rank"]] == list(range(RANKS))


def test_ranks_are_encoded_again_only_if_they_have_changed(
    many: RunMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    dumps = json.dumps

    def counted(data: Any) -> str:
        encoded.append(len(data))
        return dumps(data)

    monkeypatch.setattr("jupyter_dist.supervise.status_writer.json.dumps", counted)
    writer = StatusWriter(many.folder, many.status)
    for _ in range(3):
        writer.write()
        assert json.loads(many.folder.state.read_bytes()) == writer.status.to_json()
    assert encoded.count(RANKS) == 1
    ranks = list(writer.status.ranks)
    ranks[7] = RankState(7, State.FAILED, host='a "b": []}')
    for changed in (tuple(ranks), (), tuple(ranks[:5])):
        writer.update(ranks=changed, reason='"ranks": []}')
        assert json.loads(many.folder.state.read_bytes()) == writer.status.to_json()
        assert reader.status(many.folder).ranks == changed


def test_a_state_is_parsed_once_and_each_new_one_is_seen(many: RunMaker) -> None:
    first = reader.status(many.folder)
    assert reader.status(many.folder).ranks is first.ranks
    many.set_rank(700, state=State.FAILED, exit_code=3)
    assert reader.status(many.folder).ranks[700].exit_code == 3
    many.end()
    assert reader.status(many.folder).state is State.SUCCEEDED
    assert Status.from_json(many.status.to_json()) == many.status


@pytest.mark.parametrize("hears", [True, False])
def test_every_line_is_indexed_though_a_tick_looks_at_few_ranks(many: RunMaker, hears: bool) -> None:
    """Also on a system that reports no changes of files."""
    index = LogIndexWriter(many.folder, 0)
    if not hears:
        index._hears = False
    index.tick(BEGAN, RANKS)
    written: Sequence[int] = (0, 333, RANKS - 1)
    for rank in written:
        many.print(rank, "another line\n")
    grown = [index.tick(BEGAN + tick, RANKS) for tick in range(1, 12)]
    assert any(grown)
    for rank in written:
        folder = many.rank(rank)
        assert folder.times.stat().st_size > 0
        assert index._sizes[rank] == folder.output.stat().st_size
    many.print(5, "the last line\n")
    index.finish(BEGAN + 20, RANKS)
    assert index._sizes[5] == many.rank(5).output.stat().st_size


def test_an_early_error_is_found_in_ten_looks(many: RunMaker) -> None:
    errors = ReportedErrors(many.folder, 0)
    ranks = many.status.ranks
    assert [errors.first(ranks) for _ in range(10)] == [None] * 10
    many.rank(777).error.write_text("{}")
    found = [rank for _ in range(10) if (rank := errors.first(ranks)) is not None]
    assert [rank.rank for rank in found] == [777]


def test_an_error_in_the_moment_of_a_signal_is_no_earlier_error(many: RunMaker) -> None:
    many.folder.supervisor_log.touch()  # as the supervisor of each run does: its clock is the one of files
    errors = ReportedErrors(many.folder, 0)
    told = clock_of_files(many.folder)
    many.rank(777).error.write_text("{}")
    assert not errors.has(777, told)
    assert errors.has(777, many.rank(777).error.stat().st_mtime + 0.01)


def test_no_later_file_is_earlier_by_the_clock_of_files(many: RunMaker) -> None:
    many.folder.supervisor_log.touch()
    late = many.folder.path / "late"
    for _ in range(300):
        now = clock_of_files(many.folder)
        late.write_text("")
        assert late.stat().st_mtime >= now
    many.folder.supervisor_log.unlink()
    assert clock_of_files(many.folder) == pytest.approx(time.time(), abs=60)
