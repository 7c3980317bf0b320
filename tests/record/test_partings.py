"""What the card says of partings, from the files of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.job import State
from jupyter_dist.record.failures.card import Card, card
from jupyter_dist.record.failures.parting_texts import locks
from jupyter_dist.worker.output.events import COLLECTIVES
from tests.rigs.run_maker import BEGAN, RunMaker

GONE = "[pair.cc:553] Connection closed by peer [127.0.0.1]:7444"
SHUT = "Horovod has been shut down. This was caused by an exception on one of the ranks"


def told(
    made: RunMaker, rank: int, *waits_s: float | None, when: float = BEGAN + 9, final: bool = False
) -> None:
    """A rank's record: one all_reduce for each time that it waited, None if it was done."""
    calls = [["0", number, "all_reduce", [[4]], ["Float"], waits] for number, waits in enumerate(waits_s, 1)]
    made.event(rank, COLLECTIVES, when, groups={"0": [0, 1]}, calls=calls, final=final)


def of(made: RunMaker, state: State = State.FAILED) -> Card:
    made.end(state)
    found = card(made.folder)
    assert found is not None
    return found


def test_a_rank_that_succeeded_before_the_others_failed(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    told(made, 0, None, None, None, final=True)
    told(made, 1, None, None, final=True)
    made.set_rank(1, state=State.SUCCEEDED, exit_code=0)
    made.fail(0, "RuntimeError", GONE, f"RuntimeError: {GONE}", BEGAN + 9)
    made.set_rank(0, state=State.FAILED, exit_code=1)
    found = of(made)
    assert found.headline == "rank 1 ended normally after #2: rank 0 failed in all_reduce #3 of float32[4]"
    assert found.causes[0].startswith("what was noticed first: rank 0 failed first")


@pytest.mark.parametrize(
    ("kind", "message", "parted"),
    [
        ("HorovodInternalError", SHUT, True),
        ("UnavailableError", "Collective ops is aborted by: task:1 stopped sending heartbeats", True),
        ("ConnectionError", "Connection refused by the data base", False),
        ("ValueError", "bad step", False),
    ],
)
def test_only_horovods_own_words_tell_of_an_early_end(
    kind: str, message: str, parted: bool, own_folders: Path
) -> None:
    made = RunMaker(own_folders)
    made.event(1, "result", BEGAN + 3, repr="None", bytes=1, error=None)
    made.set_rank(1, state=State.SUCCEEDED, exit_code=0)
    made.fail(0, kind, message, f"{kind}: {message}", BEGAN + 9)
    made.set_rank(0, state=State.FAILED, exit_code=1)
    assert of(made).title == ("rank 1 ended normally before the others" if parted else "rank 0 failed first")


@pytest.mark.parametrize(("ended", "parted"), [(BEGAN + 3, True), (BEGAN + 20, False)])
def test_a_rank_that_has_called_exit_has_ended_normally(
    ended: float, parted: bool, own_folders: Path
) -> None:
    made = RunMaker(own_folders)
    made.set_rank(1, state=State.SUCCEEDED, exit_code=0, ended=ended)
    made.fail(0, "HorovodInternalError", SHUT, SHUT, BEGAN + 9)
    made.set_rank(0, state=State.FAILED, exit_code=1)
    assert of(made).title == ("rank 1 ended normally before the others" if parted else "rank 0 failed first")


def test_a_rank_that_aborts_alone_is_the_cause(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    made.event(1, "result", BEGAN + 3, repr="None", bytes=1, error=None)
    made.set_rank(1, state=State.SUCCEEDED, exit_code=0)
    made.set_rank(0, state=State.FAILED, signal=6)
    assert of(made).headline.startswith("rank 0 failed first")


def test_ranks_of_which_one_is_only_slower_have_not_parted(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    told(made, 0, None, None, 0.4)
    told(made, 1, None, None)
    assert "did not reach" not in of(made).headline


@pytest.mark.parametrize("asked", [BEGAN + 8, BEGAN - 900])
def test_an_answer_counts_if_the_rank_was_ended_soon_after_it(asked: float, own_folders: Path) -> None:
    """Rank 0 waited; when rank 1 was ended, the collective of rank 0 failed, and counts as done."""
    made = RunMaker(own_folders)
    told(made, 0, None, None, 30.0, when=asked)
    told(made, 1, None, None, when=asked)
    told(made, 0, None, None, None, final=True)
    told(made, 1, None, None, final=True)
    found = of(made, State.STOPPED)
    assert ("rank 1 did not reach all_reduce #3" in found.headline) is (asked > BEGAN)


def test_the_newest_of_a_rank_s_answers_counts(own_folders: Path) -> None:
    """The ranks were asked in two pauses. They got over the first one."""
    made = RunMaker(own_folders)
    for done, when in ((1, BEGAN + 300), (4, BEGAN + 900)):
        told(made, 0, *[None] * done, 30.0, when=when)
        told(made, 1, *[None] * done, when=when)
    assert "rank 1 did not reach all_reduce #5" in of(made, State.STOPPED).headline


@pytest.mark.parametrize("data", [{"groups": 3}, {"calls": [[1, 2]]}, {"calls": None, "groups": {}}])
def test_a_record_that_is_none_is_left_out(data: dict[str, Any], own_folders: Path) -> None:
    made = RunMaker(own_folders)
    made.event(0, COLLECTIVES, BEGAN + 9, **data)
    told(made, 1, None, 40.0)
    assert of(made).title


@pytest.mark.parametrize(
    ("line", "takes"),
    [
        ("x = self.block(x)", False),
        ("x = TransformerBlock()(x)", False),
        ("lock.acquire()", True),
        ("with FileLock(path):", True),
        ("fcntl.flock(file, fcntl.LOCK_EX)", True),
    ],
)
def test_a_block_of_a_network_is_no_lock(line: str, takes: bool) -> None:
    assert locks([f"rank 1 was at In[3], line 4: {line}"]) == takes
