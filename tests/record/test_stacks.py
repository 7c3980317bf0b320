"""Stacks: faulthandler's dumps parsed, grouped and shown; real ones of a real process too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_dist.errors import DistError
from jupyter_dist.job import State
from jupyter_dist.manage import stack_request
from jupyter_dist.record.failures import stacks
from jupyter_dist.text.stack_dumps import escaped, parse
from jupyter_dist.worker import layout
from tests.rigs.run_maker import BEGAN, RunMaker
from tests.rigs.stopwatch import Stopwatch

CELL = "/tmp/ipykernel_1/1234.py"
SOURCE = "def train():\n    dist.all_reduce(x)\n\ntrain()\n"
WORKER = "/site-packages/jupyter_dist/worker/cell.py"


def dump(*frames: tuple[str, int, str], others: int = 1) -> str:
    """As faulthandler writes it: other threads first, the main thread last."""
    text = ""
    for number in range(others):
        text += f"Thread 0x00007f00000000{number:02x} (most recent call first):\n"
        text += '  File "/usr/lib/python3.11/threading.py", line 320 in wait\n\n'
    text += "Current thread 0x00007f1111111111 (most recent call first):\n"
    for file, line, function in frames:
        text += f'  File "{file}", line {line} in {function}\n'
    return text


def waiting(line: int = 2) -> str:
    return dump(
        ("/site-packages/torch/distributed.py", 99, "all_reduce"),
        (CELL, line, "train"),
        (CELL, 4, "<module>"),
        (WORKER, 80, "_run_cell"),
        (WORKER, 31, "run"),
        ("<frozen runpy>", 88, "_run_code"),
    )


def write_payload(made: RunMaker) -> None:
    from jupyter_dist.worker import payload

    header = {
        "version": 1,
        "kind": "cell",
        "source": SOURCE,
        "filename": CELL,
        "label": "In[3]",
        "sources": {CELL: SOURCE},
        "labels": {CELL: "In[3]"},
        "sys_path": [],
        "names": [],
        "legacy_keras": False,
        "python": "3.11",
    }
    payload.write(made.folder.payload, header, b"")


@pytest.fixture
def made(own_folders: Path) -> RunMaker:
    made = RunMaker(own_folders, 8)
    write_payload(made)
    return made


def test_the_newest_dump_of_a_file_counts_and_the_main_thread_is_its_last(made: RunMaker) -> None:
    parsed = parse(waiting() + waiting(3) + dump((CELL, 1, "later"), others=2))
    assert [len(one.threads) for one in parsed] == [2, 2, 3]
    assert parsed[-1].main.frames[0].function == "later"
    assert parsed[-1].main.current
    assert [frame.function for frame in parsed[0].main.frames][-2:] == ["train", "all_reduce"]


def test_a_dump_of_the_main_thread_alone_is_followed_by_one_of_all() -> None:
    alone = "Stack (most recent call first):\n" + f'  File "{CELL}", line 2 in train\n'
    parsed = parse(waiting() + alone + alone + waiting(3) + alone)
    assert [(len(one.threads), one.is_partial) for one in parsed] == [
        (2, False),
        (1, True),
        (1, True),
        (2, False),
        (1, True),
    ]
    assert parsed[1].main.frames[0].function == "train"


def test_what_other_versions_of_python_write() -> None:
    named = "Thread 0x00007f00 [MainThread] (most recent call first):\n  <no Python frame>\n"
    collecting = (
        "Current thread 0x00007f00 [python3] (most recent call first):\n  Garbage-collecting\n"
        '  File ???, line ??? in ???\n  File "a b\\x22.py", line 7 in f\n  ...\n'
    )
    first, second = parse(named + collecting)
    assert (first.main.name, first.main.frames) == ("MainThread", ())
    assert [str(frame) for frame in second.main.frames] == [
        "… (older calls are left out)",
        "a b\\x22.py, line 7, in f",
        "???, in ???",
    ]


@given(
    st.text(st.sampled_from('Thread 0x1f (most recent call first):\n File "x", line 3 in …'), max_size=300)
)
def test_no_text_breaks_the_parser(text: str) -> None:
    for one in parse(text + "\n" + text):
        assert one.threads


def test_file_names_are_found_in_faulthandlers_spelling() -> None:
    assert escaped("/tmp/jürgen/日.py") == "/tmp/j\\xfcrgen/\\u65e5.py"


def test_ranks_with_equal_stacks_are_one_group_and_the_odd_one_comes_first(made: RunMaker) -> None:
    for rank in range(8):
        made.rank(rank).stacks.write_text(waiting(2 if rank != 1 else 1))
    found = stacks.read(made.folder)
    assert [ranks for ranks, _ in found.groups] == [(1,), (0, 2, 3, 4, 5, 6, 7)]
    text = str(found)
    assert text.split("\n")[:2] == ["rank 1 is elsewhere", "rank 1 (1)"]
    majority = text[text.index("ranks 0,2-7 (7)") :].split("\n")
    assert majority[1:] == [
        "  In[3], line 4, in <module>",
        "      train()",
        "  In[3], line 2, in train",
        "      dist.all_reduce(x)",
        "  /site-packages/torch/distributed.py, line 99, in all_reduce",
    ]


def test_without_a_majority_there_is_no_odd_one(made: RunMaker) -> None:
    for rank in range(8):
        made.rank(rank).stacks.write_text(waiting(1 + rank % 2))
    found = stacks.read(made.folder)
    assert found.hint == ""
    assert [ranks for ranks, _ in found.groups] == [(0, 2, 4, 6), (1, 3, 5, 7)]


def test_the_workers_own_frames_stay_where_there_are_no_others(made: RunMaker) -> None:
    made.rank(0).stacks.write_text(dump((WORKER, 31, "run"), ("<frozen runpy>", 88, "_run_code")))
    (_, frames), *_ = stacks.read(made.folder).groups
    assert [frame.function for frame in frames] == ["_run_code", "run"]


def test_frames_of_ours_that_the_cell_called_are_left_out(made: RunMaker) -> None:
    api = WORKER.replace("_cell", "api")
    calls = (("/lib/torch/x.py", 5, "wait"), (api, 9, "barrier"), (CELL, 2, "train"), (WORKER, 31, "run"))
    made.rank(0).stacks.write_text(dump(*calls))
    (_, frames), *_ = stacks.read(made.folder).groups
    assert [frame.function for frame in frames] == ["train", "wait"]


def test_old_stacks_do_not_count_as_new_ones(made: RunMaker) -> None:
    made.rank(0).stacks.write_text(waiting())
    made.rank(1).stacks.write_text(waiting())
    os.utime(made.rank(1).stacks, (BEGAN, BEGAN))
    found = stacks.read(made.folder, since=BEGAN + 1)
    assert set(found.dumps) == {0}
    assert found.missing == tuple(range(1, 8))


def test_a_payload_that_cannot_be_read_costs_the_labels_alone(made: RunMaker) -> None:
    made.folder.payload.write_bytes(b"\x80junk")
    made.rank(0).stacks.write_text(waiting())
    assert f"{CELL}, line 2, in train" in str(stacks.read(made.folder))


def test_stacks_are_text_in_html(made: RunMaker) -> None:
    for rank in range(8):
        made.rank(rank).stacks.write_text(dump(("<script>alert(1)</script>", 1, "<b>f</b>\x1b[2J")))
    html = stacks.read(made.folder)._repr_html_()
    assert "<script>" not in html
    assert "<b>" not in html
    assert "\x1b" not in html
    assert "ranks 0-7 (8)" in html


def answer(made: RunMaker, ranks: list[int], stop: threading.Event) -> None:
    """Be the supervisor and its ranks: see the request, write the dumps, slowly."""
    while not (made.folder.requests / "stacks").exists():
        if stop.wait(0.01):
            return
    for rank in ranks:
        with made.rank(rank).stacks.open("a") as file:
            for line in waiting().splitlines(True):
                file.write(line)
                file.flush()
                time.sleep(0.001)


def test_taking_waits_for_every_rank_and_names_those_that_gave_none(
    made: RunMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.rank(0).stacks.write_text(waiting(1))
    made.set_rank(7, state=State.SUCCEEDED)
    stop, answered = threading.Event(), threading.Event()

    def answer_and_say_so() -> None:
        answer(made, list(range(6)), stop)
        answered.set()

    # The 2 s pass at once when the last line is written, however long that takes.
    clock = SimpleNamespace(monotonic=lambda: 2.0 * answered.is_set(), sleep=time.sleep)
    monkeypatch.setattr(stack_request, "time", clock)
    thread = threading.Thread(target=answer_and_say_so)
    thread.start()
    found = stack_request.take(made.folder, timeout_s=2)
    stop.set()
    thread.join()
    assert set(found.dumps) == set(range(6))
    assert found.missing == (6,)
    assert "rank 6 gave no stack within 2 s" in str(found)
    assert len(found.groups) == 1
    assert found.groups[0][1][1].line == 2


def test_taking_returns_as_soon_as_all_have_given_theirs(made: RunMaker) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=answer, args=(made, list(range(8)), stop))
    thread.start()
    watch = Stopwatch()
    found = stack_request.take(made.folder, timeout_s=60, all_threads=True)
    assert watch.under(30)
    stop.set()
    thread.join()
    assert found.missing == ()
    assert "rank 3, thread 1\n  /usr/lib/python3.11/threading.py, line 320, in wait" in str(found)


def test_taking_does_not_take_half_a_dump(made: RunMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(1, 8):
        made.set_rank(rank, state=State.SUCCEEDED)
    lines = iter(waiting().splitlines(True))

    def write_a_line(seconds: float) -> None:
        with made.rank(0).stacks.open("a") as file:
            file.write(next(lines, ""))

    monkeypatch.setattr(stack_request, "time", SimpleNamespace(monotonic=time.monotonic, sleep=write_a_line))
    (_, frames), *_ = stack_request.take(made.folder).groups
    assert [frame.function for frame in frames] == ["<module>", "train", "all_reduce"]


def test_a_run_that_has_ended_has_no_stacks(made: RunMaker) -> None:
    made.end()
    with pytest.raises(DistError, match="has ended"):
        stack_request.take(made.folder)


REAL = """
import faulthandler, queue, signal, sys, threading, time
file = open(sys.argv[1], "ab", 0)
faulthandler.register(signal.SIGUSR1, file=file, all_threads=True)
idles = queue.SimpleQueue()
def idle():
    idles.put(1); time.sleep(1000)
def inner():
    print("ready", flush=True); time.sleep(1000)
def outer():
    inner()
threading.Thread(target=idle, daemon=True).start()
threading.Thread(target=idle, daemon=True).start()
idles.get(), idles.get(), outer()
"""
"""A thread that has said a word is on the word's line for ever, in no Python function but its own."""


def test_what_this_pythons_faulthandler_writes(tmp_path: Path, wait_for: Callable[..., Any]) -> None:
    script, path = tmp_path / "real.py", tmp_path / "stacks.txt"
    script.write_text(REAL)
    with subprocess.Popen([sys.executable, script, path], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for number in (1, 2):
            process.send_signal(signal.SIGUSR1)
            wait_for(lambda number=number: _whole(path) == number, what=f"dump {number}")
        process.kill()
    dumps = parse(path.read_text())
    assert [len(one.threads) for one in dumps] == [3, 3]
    assert [frame.function for frame in dumps[1].main.frames] == ["<module>", "outer", "inner"]
    assert dumps[1].main.frames[2].line == 9
    assert {thread.frames[-1].function for thread in dumps[1].threads[1:]} == {"idle"}


def _whole(path: Path) -> int:
    return path.read_text().count("line 14 in <module>\n")


def test_stacks_from_after_the_request_to_end_do_not_show_where_the_cell_was(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1)
    write_payload(made)
    later = dump(("/usr/lib/python3.11/atexit.py", 3, "leave"))
    made.rank(0).stacks.write_text(f"{waiting()}{layout.STACKS_END}{later}")
    made.end(State.STOPPED)
    assert "all_reduce" in str(stacks.kept(made.folder)[0])
    made.rank(0).stacks.write_text(f"{layout.STACKS_END}{later}")
    assert "leave" in str(stacks.kept(made.folder)[0])
