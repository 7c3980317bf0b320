"""The failure report of a run."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from jupyter_dist.folder import RunFolder
from jupyter_dist.job import State
from jupyter_dist.record.failures.card import card
from jupyter_dist.showing import failure_report
from tests.rigs.failed_runs import FRAMES, TRACEBACK, failed
from tests.rigs.run_maker import BEGAN, RunMaker


def test_the_card_comes_first_then_the_traceback_and_the_log(own_folders: Path) -> None:
    made = failed(own_folders, 2)
    made.set_rank(0, state=State.STOPPED, signal=15)
    text = failure_report.failure(made.end(State.FAILED))
    card, traceback, log = text.split("\n\n")
    assert card.split("\n") == [
        "rank 1 failed first (host node1, exit code 1): ValueError: bad step",
        "rank 1 was at In[3], line 4: raise …",
        "rank 0 was ended because of it",
        f"whole log: {made.rank(1).output}",
    ]
    assert traceback.split("\n")[1:4:2] == ["  In[3], line 4, in train", "ValueError: bad step"]
    lines = log.split("\n")
    assert lines[0] == "Log of rank 1, its last 20 lines before the traceback:"
    assert (lines[1], lines[20:]) == ("  step 10", ["  step 29"])
    assert text.count("Traceback") == 1


def test_a_card_has_at_most_twelve_lines_whatever_happened(own_folders: Path) -> None:
    """Many ranks with different errors and advice, and a reason of many lines."""
    made = RunMaker(own_folders, 40)
    for rank in range(40):
        message = f"invalid device ordinal, Address already in use, CUDA out of memory {chr(97 + rank) * 3}"
        made.fail(rank, f"Error{chr(97 + rank)}", message, TRACEBACK, BEGAN + rank, frames=FRAMES)
    shown = card(made.end(State.FAILED))
    assert shown is not None
    assert len(shown.lines()) <= 12
    assert shown.lines()[-1].startswith("whole log: ")
    assert len(shown.hints) == 3
    lost = RunMaker(own_folders)
    for rank in range(2):
        lost.set_rank(rank, state=State.STOPPED, started=None)
    reason = "\n".join(f"h{number}: does not answer" for number in range(30))
    shown = card(lost.end(State.FAILED, reason=reason))
    assert shown is not None
    assert len(shown.lines()) <= 12
    assert [part.text for part in shown.parts] == [reason]


def test_the_html_has_the_same_card_and_folds_the_rest(own_folders: Path) -> None:
    made = failed(own_folders)
    made.fail(2, "KeyError", "<b>x</b>", "Traceback <b>\nKeyError: <b>x</b>\n", BEGAN + 6)
    run = made.end(State.FAILED)
    found = card(run)
    assert found is not None
    shown = failure_report.card_html(found)
    above, *folded = shown.split("<details>")
    assert [unescape(line) for line in re.findall(r"<div[^>]*>([^<]+)</div>", above)] == found.lines()
    titles = [re.findall(r"<summary>([^<]*)</summary>", part)[0] for part in folded]
    assert titles == [
        "Traceback of rank 1",
        "Log of rank 1, its last 20 lines before the traceback",
        "Traceback of rank 2: KeyError: &lt;b&gt;x&lt;/b&gt;",
    ]
    assert "<b>" not in shown


def test_collateral_is_folded_under_it_whatever_its_time(own_folders: Path) -> None:
    made = failed(own_folders)
    for rank in (0, 2, 3, 4):
        message = f"Connection reset by peer [127.0.0.1]:{4000 + rank}"
        made.fail(rank, "RuntimeError", message, "Traceback …", BEGAN + 4)
    for rank in (5, 6, 7):
        made.set_rank(rank, state=State.STOPPED, signal=15)
    text = failure_report.failure(made.end(State.FAILED))
    assert text.startswith("rank 1 failed first")
    assert "ranks 0,2-4 ended because of it: RuntimeError: Connection reset by peer [127.0.0.1]:4000" in text
    assert "ranks 5-7 were ended because of it" in text
    assert text.count("Connection reset") == 1


def test_a_second_failure_of_its_own_is_named_as_such(own_folders: Path) -> None:
    made = failed(own_folders, 3)
    made.fail(2, "KeyError", "'x'", "Traceback …", BEGAN + 6)
    assert "rank 2 also failed: KeyError: 'x'" in failure_report.failure(made.end(State.FAILED))


@pytest.mark.parametrize("oom_killer", [True, False])
def test_sigkill_says_that_it_may_be_the_memory(own_folders: Path, oom_killer: bool) -> None:
    made = RunMaker(own_folders)
    made.print(0, "loading\n")
    made.set_rank(0, state=State.FAILED, signal=9, ended=BEGAN + 1, peak_memory_bytes=12_300_000_000)
    text = failure_report.failure(made.end(State.FAILED, oom_killer=oom_killer))
    assert text.startswith("rank 0 failed first (host node1, SIGKILL): ended by SIGKILL")
    assert "it may have run out of memory. Its memory had peaked at 12.3 GB." in text
    assert ("killer did run on this machine" in text) is oom_killer
    assert text.endswith("\n\nLog of rank 0, its last line:\n  loading")


def test_an_exit_code_without_a_traceback(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1)
    made.set_rank(0, state=State.FAILED, exit_code=3, ended=BEGAN + 1)
    text = failure_report.failure(made.end(State.FAILED))
    assert text.startswith("rank 0 failed (host node1, exit code 3): ended with exit code 3")
    assert text.endswith(f"whole log: {made.rank(0).output}")


def test_a_failure_without_a_failing_rank_gives_the_reason(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    for rank in range(2):
        made.set_rank(rank, state=State.STOPPED, signal=15)
    text = failure_report.failure(made.end(State.FAILED, reason="not done within --timeout 5 s"))
    assert f"the run failed ({made.folder.id}): not done within --timeout 5 s\nranks 0-1 were ended\n" in text


def test_a_start_that_failed_is_told_in_full_with_the_launchers_words(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    (made.folder.path / "attempts" / "0" / "launcher.log").write_text("mpirun: no such host\n")
    for rank in range(2):
        made.set_rank(rank, state=State.STOPPED, pid=None, host=None, started=None)
    reason = "2 hosts cannot be used:\n  h1: unknown host key SHA256:abc\n  h2: does not answer"
    text = failure_report.failure(made.end(State.FAILED, reason=reason))
    assert text.startswith(f"the run failed ({made.folder.id}): {reason}\n")
    assert "were ended" not in text
    assert "launcher.log, its last lines:\n  mpirun: no such host" in text


def test_a_rank_that_is_lost_with_its_host_is_the_root_cause(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    made.set_rank(1, state=State.LOST, ended=BEGAN + 5)
    made.fail(0, "RuntimeError", "Connection closed by peer [10.0.0.2]:4000", "Traceback …", BEGAN + 4)
    text = failure_report.failure(made.end(State.FAILED))
    assert text.startswith("rank 1 failed first (host node1): nothing more was heard of it on host node1")
    assert "rank 0 ended because of it: RuntimeError: Connection closed" in text


def test_a_supervisors_own_failure_shows_its_log(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1)
    made.folder.supervisor_log.write_text("12:00 started\n12:01 OSError: disk full\n")
    made.set_rank(0, state=State.STOPPED)
    text = failure_report.failure(
        made.end(State.FAILED, reason="the supervisor failed: x (see supervisor.log)")
    )
    assert text.endswith("The supervisor, its last lines:\n  12:00 started\n  12:01 OSError: disk full")


def test_control_sequences_of_a_rank_do_not_reach_the_reader(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1)
    made.print(0, "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m\r\n 10%\r 20%\n")
    made.fail(0, "Bad\x1b[2J", "multi\nline\x1b]0;t\x07", "Trace\x1b[2Jback\nBad\n")
    text = failure_report.failure(made.end(State.FAILED))
    assert "\x1b" not in text
    assert text.endswith("\n  red\n   20%")
    assert text.split("\n")[0].endswith("Bad: multi line")


def test_a_huge_log_is_read_from_its_end(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1)
    made.print(0, b"".join(b"line %d\n" % n for n in range(200_000)))
    made.set_rank(0, state=State.FAILED, exit_code=1)
    text = failure_report.failure(made.end(State.FAILED))
    assert "  line 199980\n" in text
    assert "  line 199979\n" not in text


def test_what_was_asked_of_nobody_stands_before_the_traceback_once(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1)
    trace = "Traceback …\n  File …\nEOFError: EOF when reading a line\n"
    made.print(0, f"hello\nyour name? {trace}")
    made.fail(0, "EOFError", "EOF when reading a line", trace)
    text = failure_report.failure(made.end(State.FAILED))
    assert text.endswith("its last 2 lines before the traceback:\n  hello\n  your name? ")
    assert "hint: the input has ended" in text


def test_a_spawned_process_says_in_the_log_what_it_lacks(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1)
    made.print(0, "AttributeError: Can't get attribute 'Data' on <module '__main__' (built-in)>\n")
    made.fail(0, "RuntimeError", "DataLoader worker exited unexpectedly", "Traceback …\n")
    assert "define 'Data' before" in failure_report.failure(made.end(State.FAILED))


def test_a_crash_shows_where_the_rank_was(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1)
    made.print(
        0, "loading\nFatal Python error: Segmentation fault\n\nThread 0x00007f01 (most recent call first):\n"
    )
    made.print(
        0, '  File "/lib/queue.py", line 1 in get\n\nCurrent thread 0x00007f02 (most recent call first):\n'
    )
    made.print(
        0, '  File "/lib/torch/x.py", line 7 in forward\n  File "/home/me/train.py", line 3 in <module>\n'
    )
    made.print(0, "\nExtension modules: numpy (total: 1)\n")
    made.set_rank(0, state=State.FAILED, signal=11, ended=BEGAN + 1)
    lines = failure_report.failure(made.end(State.FAILED)).split("\n")
    assert lines == [
        "rank 0 failed (host node1, SIGSEGV): ended by SIGSEGV",
        "rank 0 was at /lib/torch/x.py, line 7",
        f"whole log: {made.rank(0).output}",
        "",
        "Fatal Python error: Segmentation fault",
        "  /home/me/train.py, line 3, in <module>",
        "  /lib/torch/x.py, line 7, in forward",
        "",
        "Log of rank 0, its last line before the traceback:",
        "  loading",
    ]


def test_a_message_with_a_traceback_in_it_is_told_by_its_ends(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1)
    message = (
        "Caught ValueError in worker 0.\nTraceback (most recent call last):\n  File …\nValueError: bad item"
    )
    made.fail(0, "ValueError", message, "Traceback …\n")
    first = failure_report.failure(made.end(State.FAILED)).split("\n")[0]
    assert first.endswith("ValueError: Caught ValueError in worker 0. ValueError: bad item")


def with_own_lines(root: Path, own: list[str]) -> RunFolder:
    """Three ranks print 250 lines each. Rank 1 prints its own ones far above its error."""
    made = RunMaker(root, 3)
    for rank in range(3):
        made.print(rank, f"rank {rank} of 3 starts\n")
        if rank == 1:
            made.print(rank, "".join(f"{line}\n" for line in own))
        made.print(rank, "".join(f"step {step} loss {step / (rank + 2):.3f}\n" for step in range(250)))
    made.print(1, TRACEBACK)
    made.fail(1, "ValueError", "bad step", TRACEBACK, frames=FRAMES)
    for rank in (0, 2):
        made.set_rank(rank, state=State.STOPPED, signal=15)
    return made.end(State.FAILED)


def test_the_line_that_only_the_failed_rank_printed_is_shown(own_folders: Path) -> None:
    text = failure_report.failure(with_own_lines(own_folders, ["shard 7 is empty, using zeros"]))
    assert text.split("\n")[1] == "Only rank 1 printed: shard 7 is empty, using zeros"
    assert "\n\nLines that only rank 1 printed:\n  shard 7 is empty, using zeros\n\nLog of rank 1" in text
    text = failure_report.failure(with_own_lines(own_folders, ["shard 7 is empty", "using zeros"]))
    assert "Only rank 1 printed" not in text
    assert "Lines that only rank 1 printed:\n  shard 7 is empty\n  using zeros\n" in text
    text = failure_report.failure(with_own_lines(own_folders, ["step 9999 loss 3.1"]))
    assert "only rank 1 printed" not in text


def test_a_run_that_went_well_has_no_failure(own_folders: Path) -> None:
    assert failure_report.failure(RunMaker(own_folders).end()) == ""
