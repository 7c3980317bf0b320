"""Following a run: in a kernel's output, in a terminal, in a pipe; interrupts, floods, stalls."""

from __future__ import annotations

import io
import json
import math
import os
import pty
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import pytest

from jupyter_dist.errors import RunFailed
from jupyter_dist.job import RankState, Stall, State, Wait
from jupyter_dist.record import reader
from jupyter_dist.record.cursor import Batch, Tail
from jupyter_dist.showing import live
from jupyter_dist.showing.progress import Progress
from jupyter_dist.showing.run import Run
from jupyter_dist.showing.screens import KernelScreen, PlainScreen, kernel_text
from jupyter_dist.showing.view import View
from jupyter_dist.worker.output import time_index
from tests.record.test_stacks import waiting, write_payload
from tests.rigs.run_maker import BEGAN, RunMaker
from tests.rigs.stopwatch import Stopwatch

MAX_DISPLAY = 12_000


def view_of(made: RunMaker, **options: Any) -> View:
    """A view that has been fed with all that there is."""
    view = View(made.folder, made.job, keep=400, **options)
    for batch in Tail(made.folder, tail_bytes=64 << 10).drain():
        view.feed(batch, time.monotonic())
    return view


def shown(made: RunMaker) -> list[str]:
    return kernel_text(view_of(made), BEGAN + 12.3).split("\n")


def follow_plain(made: RunMaker, **options: Any) -> str:
    file = io.StringIO()
    live.follow(Run(made.folder), display=PlainScreen(file), **options)
    return file.getvalue()


def following(made: RunMaker, file: TextIO) -> threading.Thread:
    """A thread that shows the run in a file. If the test fails, it does not keep the process alive."""
    options = {"display": PlainScreen(file)}
    thread = threading.Thread(target=live.follow, args=(Run(made.folder),), kwargs=options, daemon=True)
    thread.start()
    return thread


# What is shown


def test_lines_are_folded_behind_aligned_ranks_and_the_state_is_under_them(own_folders: Path) -> None:
    made = RunMaker(own_folders, 8)
    for rank in range(8):
        made.print(rank, "epoch 1\n", BEGAN + 1)
        made.print(rank, f"host {rank // 4}\nepoch 2\n", BEGAN + 2)
    assert shown(made) == [
        "[0-7] epoch 1",
        "[4-7] host 1",
        "[0-3] host 0",
        "[0-7] epoch 2",
        "",
        "running · 12.3 s · ranks: 8 running",
    ]


TRACE = """Traceback (most recent call last):
  File "In[3]", line 4, in train
    raise ValueError("bad step")
ValueError: bad step
"""
OTHER = TRACE.replace("bad step", "closed")


def raised(made: RunMaker) -> None:
    """All ranks raise, and write it down: two of them the same, one on a line that was begun."""
    for rank, text in enumerate((TRACE, TRACE, OTHER)):
        made.print(rank, "epoch 1\n" + "10%" * (rank == 1))
        made.fail(rank, "ValueError", text.split(": ")[-1].strip(), text, BEGAN + rank)
        made.print(rank, text)
    made.print(0, "the end\n")
    made.end(State.FAILED)


def test_a_traceback_that_an_exception_tells_is_not_in_the_lines_above_it(own_folders: Path) -> None:
    made = RunMaker(own_folders, 3)
    raised(made)
    file = io.StringIO()
    live.follow(Run(made.folder), display=PlainScreen(file, raises=True))
    above = file.getvalue()
    with pytest.raises(RunFailed) as caught:
        Run(made.folder).raise_for_state()
    story = str(caught.value)
    assert story.count("Traceback") == story.count('raise ValueError("bad step")') == 1
    assert "its last 2 lines besides the traceback:\n  epoch 1\n  the end\n" in story
    assert "rank 2 also failed: ValueError: closed" in story
    assert story.endswith(f"The tracebacks of the other ranks: `jupyter dist logs {made.folder.id}`")
    # A log that ends with the traceback of a rank that is not the cause would mislead.
    assert "Traceback" not in above
    assert "bad step" not in above
    assert "[1]   10%\n" in above
    assert "[0]   the end\n" in above
    # Where nothing follows, the lines are all there is.
    file = io.StringIO()
    live.follow(Run(made.folder), display=PlainScreen(file))
    assert file.getvalue().count('raise ValueError("bad step")') == 1


def test_a_traceback_that_nothing_tells_is_shown(own_folders: Path) -> None:
    """One that was printed and is no failure, one of an earlier attempt, one in a run that went well."""
    made = RunMaker(own_folders, 1)
    view, tail = View(made.folder, made.job, keep=400, raises=True), Tail(made.folder)

    def look() -> list[str]:
        view.feed(tail.poll(), time.monotonic())
        return [entry.text for entry in view.fold.shown()]

    made.print(0, TRACE)
    assert look() == TRACE.splitlines()
    made.fail(0, "ValueError", "closed", OTHER)
    made.print(0, "Traceback (most recent call last):\n  something else\n")
    assert look()[4:] == ["Traceback (most recent call last):", "  something else"]
    made.next_attempt()
    made.print(0, "again\n")
    made.fail(0, "ValueError", "closed", OTHER)
    made.print(0, OTHER)
    assert look()[-1] == "again"
    made.next_attempt()
    made.print(0, "and again\n")
    assert look()[-6:] == [*OTHER.splitlines(), view.fold.shown()[-2].text, "and again"]
    made.fail(0, "ValueError", "closed", OTHER)
    made.print(0, OTHER)
    made.end(State.SUCCEEDED)
    look()
    view.end(time.monotonic())
    assert [entry.text for entry in view.fold.shown()][-4:] == OTHER.splitlines()


def test_a_progress_bar_without_a_newline_shows_its_last_state(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    for rank in range(2):
        made.print(rank, "start\n")
        made.print(rank, "\r 10%|#    |\r 20%|##   |")
    assert shown(made)[:2] == ["[0-1] start", "[0-1]  20%|##   |"]


def test_progress_events_make_one_line_for_all_ranks(own_folders: Path) -> None:
    made = RunMaker(own_folders, 4)
    for rank in range(4):
        for n in range(0, 51 - 10 * (rank == 2), 10):
            made.event(rank, "progress", BEGAN + n / 10, id=0, n=n, total=100, desc="train")
    assert shown(made)[0] == (
        "train:  40% ▕████████            ▏ 40/100  10/s  0:06 left  slowest is rank 2, the fastest is at 50"
    )


def test_progress_is_rounded_down_from_what_is_done() -> None:
    """In floats, 100 * (29 / 100) is less than 29."""
    progress = Progress()
    for n in range(101):
        bar = {"id": 0, "n": n, "total": 100, "desc": ""}
        progress.feed(reader.Event(0, 0, n, float(n), "progress", bar))
        assert progress.lines()[0].startswith(f"{n:3d}% ")


def test_progress_forgets_old_bars_and_survives_nonsense(own_folders: Path) -> None:
    progress = Progress()
    for number in range(1000):
        progress.feed(
            reader.Event(0, 0, number, float(number), "progress", {"id": number, "n": 1, "total": 1})
        )
    nonsense: list[dict[str, Any]] = [
        {},
        {"id": "x", "n": 1},
        {"id": 1, "n": "1"},
        {"id": 2, "n": 10**400},
        {"id": 3, "n": float("nan")},
        {"id": 4, "n": 5, "total": -3, "desc": "\x1b[2J" * 50},
        {"id": 5, "n": 7, "total": 5},
    ]
    for number, data in enumerate(nonsense):
        progress.feed(reader.Event(0, 0, number, float("nan") if number == 5 else 2000.0, "progress", data))
    assert 1 <= len(progress.lines()) <= 3
    assert all(line.isprintable() for line in progress.lines())


def test_progress_counts_with_all_digits() -> None:
    progress = Progress()
    for rank in range(2):
        bar = {"id": 0, "n": 1_234_567 + rank, "total": 2_000_000, "desc": ""}
        progress.feed(reader.Event(rank, 0, 0, BEGAN, "progress", bar))
    (line,) = progress.lines()
    assert "1234567/2000000" in line
    assert line.endswith("the fastest is at 1234568")


def test_a_new_attempt_is_marked_and_nothing_folds_across_it(own_folders: Path) -> None:
    made = RunMaker(own_folders, 2, max_restarts=2)
    made.print(0, "epoch 1\n")
    made.event(0, "progress", id=0, n=1, total=9, desc="old")
    view = View(made.folder, made.job, keep=400)
    tail = Tail(made.folder)
    view.feed(tail.poll(), 0)
    made.next_attempt("rank 1 failed; restart 1 of 2")
    made.print(1, "epoch 1\n")
    view.feed(tail.poll(), 1)
    assert kernel_text(view, BEGAN + 1).split("\n") == [
        "[0] epoch 1",
        "── attempt 1: rank 1 failed; restart 1 of 2 ──",
        "[1] epoch 1",
        "",
        "running · 1.0 s · ranks: 2 running · 1 of 2 restarts",
    ]
    made.write(reason="host h2 has not answered since 12:04:10")
    assert view.feed(tail.poll(), 2)
    assert kernel_text(view, BEGAN + 1).endswith("1 of 2 restarts · host h2 has not answered since 12:04:10")
    made.write(reason="rank 1 failed; restart 1 of 2")
    assert view.feed(tail.poll(), 3)
    assert kernel_text(view, BEGAN + 1).endswith("1 of 2 restarts")


def test_notes_of_ranks_are_shown(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    for rank in range(2):
        made.event(rank, "note", text="tf_keras is used\nhere")
    made.event(0, "note", text="and this", printed=True)
    assert [line for line in shown(made) if "note" in line] == ["[0-1] note: tf_keras is used here"]


def test_the_last_note_is_shown_although_much_came_before_it(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1)
    made.rank(0).events.write_bytes(b'{"seq": 0, "time": 1.0, "kind": "metric"}\n' * 120_000)
    made.event(0, "note", text="at the end")
    made.end()
    assert "[0] note: at the end" in follow_plain(made)


def test_a_stall_shows_where_the_ranks_are(own_folders: Path) -> None:
    made = RunMaker(own_folders, 4)
    write_payload(made)
    for rank in range(4):
        made.rank(rank).stacks.write_text(waiting(1 if rank == 3 else 2))
    made.write(stall=Stall(since=BEGAN, noticed=time.time()))
    lines = shown(made)
    assert lines[0].startswith("no rank has printed or logged since ")
    assert lines[1:3] == ["rank 3 is elsewhere", "rank 3 (1)"]
    assert "      dist.all_reduce(x)" in lines
    made.write(stall=None)
    assert shown(made)[0] == "running · 12.3 s · ranks: 4 running"


def test_a_rank_that_has_failed_is_told_while_the_others_run(own_folders: Path) -> None:
    made = RunMaker(own_folders, 4)
    made.set_rank(2, state=State.FAILED, exit_code=3, ended=BEGAN + 2)
    assert shown(made) == ["running · 12.3 s · ranks: 3 running, 1 failed (rank 2, exit code 3)"]
    made.set_rank(1, state=State.FAILED, signal=9, ended=BEGAN + 1)
    assert shown(made) == ["running · 12.3 s · ranks: 2 running, 2 failed (rank 1, SIGKILL)"]


def test_colours_stay_and_everything_else_goes(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1)
    made.print(0, "\x1b[31mred\x1b[2J\x1b]0;title\x07\n<b>text</b>\n")
    assert shown(made)[:2] == ["[0] \x1b[31mred\x1b[0m", "[0] <b>text</b>"]


@pytest.mark.parametrize("world_size", [1, 8, 1000])
def test_the_display_is_bounded_whatever_is_printed(own_folders: Path, world_size: int) -> None:
    made = RunMaker(own_folders, world_size)
    for rank in range(0, world_size, 7):
        made.print(rank, b"".join(b"\x1b[3%dm%d\xe2\x96\x88" % (n % 8, n) for n in range(3000)) + b"\n")
        made.print(rank, "".join(f"rank {rank} {'日本' * 300} {n}\n" for n in range(60)))
        made.print(rank, "\r" + "█" * 5000)
        made.event(rank, "progress", id=rank, n=3, total=7, desc="d" * 1000)
    text = kernel_text(view_of(made), BEGAN)
    assert len(json.dumps(text, ensure_ascii=False).encode()) <= MAX_DISPLAY
    assert len(text.split("\n")) <= 60
    assert "not shown here, whole logs: " in text.split("\n")[0]
    assert "running" in text.split("\n")[-1]


# In a kernel

FOLLOW = """
import sys, threading, time
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.rigs.run_maker import RunMaker
from jupyter_dist.showing import live
from jupyter_dist.showing.run import Run
made = RunMaker(Path({runs!r}), {world_size})
"""


def prepare(kernel: Any, runs: Path, world_size: int = 2) -> None:
    root = str(Path(__file__).parents[2])
    kernel.run(FOLLOW.format(root=root, runs=str(runs), world_size=world_size))


def test_a_flood_is_one_small_output_that_is_updated_in_place(kernel: Any, own_folders: Path) -> None:
    prepare(kernel, own_folders)
    cell = kernel.run(
        """
def flood():
    for block in range(200):
        for rank in range(2):
            made.print(rank, "".join(f"rank {rank} line {block * 1000 + n}\\n" for n in range(1000)))
        time.sleep(0.005)
    made.end(after_s=time.time() - made.status.created)
thread = threading.Thread(target=flood)
thread.start()
began = time.monotonic()
live.follow(Run(made.folder))
took = time.monotonic() - began
thread.join()
"""
    )
    took = float(kernel.run("took").displays[0]["text/plain"])
    assert [kind for kind, _ in cell.messages if kind == "display_data"] == ["display_data"]
    updates = [content for kind, content in cell.messages if kind == "update_display_data"]
    assert len(updates) <= 5 * took + 5
    assert sum(len(json.dumps(content)) for content in updates) < 1_000_000
    (bundle,) = cell.displays
    assert len(bundle["text/plain"].encode()) <= MAX_DISPLAY
    assert cell.stdout == ""
    lines = bundle["text/plain"].split("\n")
    assert re.match(r"… [\d,]+ lines? and .* not shown here, whole logs: ", lines[0])
    # The end of both ranks is there.
    assert {"[0] rank 0 line 199999", "[1] rank 1 line 199999"} <= set(lines)
    assert lines[-1].startswith("succeeded")


def test_the_first_line_is_there_at_once_and_later_ones_come(kernel: Any, own_folders: Path) -> None:
    prepare(kernel, own_folders, 1)
    cell = kernel.start("live.follow(Run(made.folder))")
    cell.until(lambda cell: "running" in cell.text)
    made = _attached(own_folders)
    _append(made, "first\n")
    cell.until(lambda cell: "[0] first" in cell.text)
    _append(made, "second\n")
    cell.until(lambda cell: "[0] first\n[0] second" in cell.text)
    kernel.interrupt()
    cell.until(lambda cell: "stopping … interrupt again to kill it" in cell.text)
    assert (made / "requests/interrupt").exists()
    assert not cell.done
    kernel.interrupt()
    cell.until(lambda cell: "killing … interrupt again to leave it" in cell.text)
    assert (made / "requests/kill").exists()
    kernel.interrupt()
    cell.finish()
    assert cell.error is not None
    assert cell.error.startswith("KeyboardInterrupt")


def test_a_restart_of_the_kernel_does_not_stop_what_a_cell_shows(kernel: Any, own_folders: Path) -> None:
    prepare(kernel, own_folders, 1)
    cell = kernel.start("run = Run(made.folder)\nlive.follow(run, result=True)\nrun")
    cell.until(lambda cell: "running" in cell.text)
    made = _attached(own_folders)
    # As the server does for Restart Kernel and at its own end: interrupted, then asked to end.
    kernel.manager.restart_kernel(now=False)
    assert not (made / "requests/stop").exists()


def _attached(runs: Path) -> Path:
    (made,) = runs.iterdir()
    return made


def _append(run: Path, text: str) -> None:
    with (run / "attempts/0/ranks/0/output.log").open("a") as file:
        file.write(text)


# In a terminal and in a pipe


def test_plain_output_has_every_line_once_and_folded(own_folders: Path, capsys: Any) -> None:
    made = RunMaker(own_folders, 8)
    for rank in range(8):
        made.print(rank, f"epoch 1\nrank {rank}\nepoch 2", BEGAN + rank)
    made.end()
    live.follow(Run(made.folder))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "[0-7] epoch 1"
    assert "[3]   rank 3" in lines
    assert lines.count("[0-7] epoch 2") == 1
    assert "\x1b" not in "".join(lines)


def test_lines_of_a_running_run_come_before_its_end(own_folders: Path, wait_for: Callable[..., Any]) -> None:
    made = RunMaker(own_folders)
    made.print(0, "a\n")
    made.print(1, "a\n")
    file = io.StringIO()
    thread = following(made, file)
    wait_for(lambda: "[0-1] a\n" in file.getvalue(), what="a folded line")
    made.print(1, "b\n")
    wait_for(lambda: "[1]   b\n" in file.getvalue(), what="a second line")
    made.end()
    thread.join(10)
    assert not thread.is_alive()


def test_a_prompt_that_is_answered_draws_no_line_before_its_equals(own_folders: Path) -> None:
    """The supervisor reports for some tenths of a second that the ranks still wait."""
    made, file = RunMaker(own_folders), io.StringIO()
    made.write(waits=tuple(Wait(rank, "input", "In[1], line 1", "Name: ", BEGAN) for rank in range(2)))
    follower = live._Follower(made.folder, PlainScreen(file), answers=True)
    made.print(0, "Name: Ada\n")
    follower.step()
    assert file.getvalue() == ""
    made.print(1, "Name: Ada\n")
    made.end()
    while not follower.step():
        pass
    assert "[0-1] Name: Ada\n" in file.getvalue()


def test_noted_output_and_the_end_of_the_run_end_a_pause(
    own_folders: Path, wait_for: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_QUICK_S", 1000.0)
    made = RunMaker(own_folders, 1)
    file = io.StringIO()
    thread = following(made, file)
    for line in "ab":
        made.print(0, f"{line}\n")
        time_index.note_complete(made.folder.moment, BEGAN)
        wait_for(lambda wanted=line: f"[0] {wanted}\n" in file.getvalue(), what=f"line {line}")
    made.end()
    wait_for(lambda: not thread.is_alive(), what="the end")


def test_output_shortens_no_pause_that_leaves_the_cpu_to_the_ranks(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_FLOOD_S", 0.4)
    made = RunMaker(own_folders, 1)
    follower = live._Follower(made.folder, PlainScreen(io.StringIO()), answers=False)
    follower.step()
    poll = follower._tail.poll

    def more() -> Batch:
        time_index.note_complete(made.folder.moment, BEGAN)
        return replace(poll(), skipped=1)

    monkeypatch.setattr(follower._tail, "poll", more)
    began = time.monotonic()
    follower.step()
    assert time.monotonic() - began >= 0.4
    follower.close()


@pytest.mark.parametrize("ended", [True, False])
def test_a_pipe_gets_every_line_of_a_flood(
    own_folders: Path, ended: bool, wait_for: Callable[..., Any]
) -> None:
    made = RunMaker(own_folders, 2)
    for rank in range(2):
        made.print(rank, "".join(f"{n}\n" for n in range(30_000)) + "x" * 5000 + "\n")
    if ended:
        made.end()
        text = follow_plain(made)
    else:
        file = io.StringIO()
        thread = following(made, file)
        wait_for(lambda: "xxx" in file.getvalue(), what="the last line")
        made.end()
        wait_for(lambda: not thread.is_alive(), what="the end")
        text = file.getvalue()
    lines = text.splitlines()
    for rank in range(2):
        own = [line.split()[1] for line in lines if line.startswith(("[0-1] ", f"[{rank}] "))]
        assert own == [*map(str, range(30_000)), "x" * 5000]


def test_a_flood_in_a_terminal_is_cut_and_says_where_the_rest_is(own_folders: Path) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    made = RunMaker(own_folders, 1)
    made.print(0, "".join(f"line {n}\n" for n in range(100_000)))
    made.end()
    file = Terminal()
    live.follow(Run(made.folder), display=PlainScreen(file))
    lines = file.getvalue().splitlines()
    assert re.match(r"… [\d,]+ lines and .* not shown here, whole logs: /.*output\.log$", lines[0])
    assert lines[-1] == "[0] line 99999"
    assert len(lines) < 1000


def test_a_reader_that_is_gone_does_not_break_the_run(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1)
    made.print(0, "text\n")
    made.end()
    read_end, write_end = os.pipe()
    os.close(read_end)
    file = os.fdopen(write_end, "w")
    live.follow(Run(made.folder), display=PlainScreen(file))
    with pytest.raises(BrokenPipeError):
        file.close()  # it flushes again: nobody could be reading
    live.follow(Run(made.folder), display=PlainScreen(file))


def test_a_terminal_that_knows_ascii_alone_still_gets_the_lines(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1)
    made.print(0, "naïve ✓\nplain\n")
    made.end()
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    live.follow(Run(made.folder), display=PlainScreen(file))
    assert raw.getvalue() == b"[0] na?ve ?\n[0] plain\n"


def test_a_terminal_has_a_last_line_that_is_rewritten(
    own_folders: Path, wait_for: Callable[..., Any]
) -> None:
    made = RunMaker(own_folders, 1)
    made.event(0, "progress", id=0, n=3, total=9, desc="fit")
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as file, os.fdopen(leader, "rb", buffering=0) as terminal:
        thread = following(made, file)
        seen = b""

        def sees(text: bytes) -> bool:
            nonlocal seen
            seen += terminal.read(10_000)
            return text in seen

        wait_for(lambda: sees(b"fit:  33%"), what="the progress line")
        made.print(0, "\x1b[31mred\x1b[0m\n")
        wait_for(lambda: sees(b"\r\x1b[2K[0] \x1b[31mred\x1b[0m\r\n"), what="the line")
        made.event(0, "progress", id=1, n=1, total=2, desc="batch")
        wait_for(lambda: sees(b"/9\r\nbatch:  50%"), what="a line for each bar")
        made.print(0, "more\n")
        wait_for(lambda: sees(b"\r\x1b[2K\x1b[A\x1b[2K\x1b[A\x1b[2K[0] more\r\n"), what="the line above")
        made.end()
        # The last draw ends with the progress line taken away. It may come in several pieces.
        gone = b"\r\x1b[2K\x1b[A\x1b[2K\x1b[A\x1b[2K"
        wait_for(lambda: sees(gone) and seen.endswith(gone), what="the end")
        thread.join(10)
        assert not thread.is_alive()


# Ends and interrupts


class Interrupting:
    """A screen on which interrupts arrive while it is drawn."""

    colour = False
    keep = 100
    raises = True
    whole = False
    reads_along = True

    def __init__(self, made: RunMaker, interrupts: int, end_on: str | None) -> None:
        self.made, self.left, self.end_on = made, interrupts, end_on
        self.notes: list[str | None] = []
        self.closed = 0

    def show(self, view: View, changed: bool) -> None:
        self.notes.append(view.note)
        if self.end_on and (self.made.folder.requests / self.end_on).exists():
            self.made.end(State.STOPPED)
        elif self.left and view.note == (self.notes[-2] if len(self.notes) > 1 else None):
            self.left -= 1
            raise KeyboardInterrupt

    def pause(self, view: View) -> None:
        pass

    def close(self, view: View) -> None:
        self.closed += 1


@pytest.mark.parametrize(("interrupts", "request_name"), [(1, "interrupt"), (2, "kill")])
def test_an_interrupt_stops_and_a_second_one_kills(
    own_folders: Path, interrupts: int, request_name: str
) -> None:
    made = RunMaker(own_folders)
    screen = Interrupting(made, interrupts, end_on=request_name)
    live.follow(Run(made.folder), display=screen)
    assert screen.left == 0
    assert screen.closed == 1
    assert Run(made.folder).state is State.STOPPED


class Drawing(KernelScreen):
    """A kernel's screen whose draws are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def _draw(self, view: View, last: bool = False) -> None:
        self.texts.append(kernel_text(view, BEGAN))


def test_the_first_lines_are_drawn_at_once(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    pending = RankState.all(made.job.world_size)
    made.write(state=State.PENDING, ranks=())
    view, tail, screen = View(made.folder, made.job, keep=400), Tail(made.folder), Drawing()

    def shown() -> str:
        drawn = len(screen.texts)
        screen._drawn = math.inf  # the elapsed time alone draws nothing, however long a step takes
        screen.show(view, view.feed(tail.poll(), time.monotonic()))
        return "".join(screen.texts[drawn:])

    assert shown().startswith("pending")
    made.write(ranks=pending)
    assert shown() == "", "the supervisor has written its state, which looks the same"
    more = RankState.all(made.job.world_size + 1)
    made.write(ranks=more)
    assert f"{len(more)} ranks" in shown(), "a rank has joined before the run began"
    made.write(state=State.RUNNING, ranks=tuple(replace(rank, state=State.RUNNING) for rank in pending))
    assert shown().startswith("running")
    made.print(0, "first\n")
    assert "first" in shown()


def test_a_prompt_follows_all_lines_that_were_printed_before_it(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    view, tail, screen = View(made.folder, made.job, keep=400), Tail(made.folder), Drawing()
    for number in range(20):
        made.print(0, f"line {number}\n")
        screen.show(view, view.feed(tail.poll(), time.monotonic()))
    screen.pause(view)
    assert "line 19" in screen.texts[-1]
    drawn = len(screen.texts)
    screen.pause(view)
    assert len(screen.texts) == drawn, "a prompt that repeats draws nothing again"


def test_a_third_interrupt_leaves_with_keyboard_interrupt(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    screen = Interrupting(made, 3, end_on=None)
    with pytest.raises(KeyboardInterrupt):
        live.follow(Run(made.folder), display=screen)
    assert screen.closed == 1
    assert sorted(path.name for path in made.folder.requests.iterdir()) == ["interrupt", "kill"]


def test_leaving_asks_nobody_and_says_how_to_come_back(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    file = io.StringIO()

    class Leaving(PlainScreen):
        def show(self, view: View, changed: bool) -> None:
            raise KeyboardInterrupt

    live.follow(Run(made.folder), interrupt="leave", display=Leaving(file))
    assert not any(made.folder.requests.iterdir())
    text = f"jupyter dist attach {made.folder.id}, stop it: jupyter dist stop {made.folder.id}"
    assert text in file.getvalue()


def test_a_request_that_cannot_be_written_is_said(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    made.folder.requests.rmdir()
    screen = Interrupting(made, 3, end_on=None)
    with pytest.raises(KeyboardInterrupt):
        live.follow(Run(made.folder), display=screen)
    assert any(note and "cannot be asked to stop: No such file" in note for note in screen.notes)


def test_a_lost_supervisor_ends_the_showing(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    made.print(0, "last words\n")
    made.write(supervisor=None, created=0.0)
    assert "[0]   last words" in follow_plain(made)


def test_a_run_that_has_ended_long_ago_is_shown_and_left_at_once(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    made.print(0, "done\n")
    made.end()
    watch = Stopwatch()
    assert follow_plain(made) == "[0]   done\n"
    assert watch.under(10)


def test_a_broken_front_end_does_not_break_the_run(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("the front-end is gone")

    monkeypatch.setattr("IPython.display.display", gone)
    made = RunMaker(own_folders)
    made.print(0, "x\n")
    made.end()
    live.follow(Run(made.folder), display=KernelScreen())
