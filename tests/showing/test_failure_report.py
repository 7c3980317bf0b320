"""The failure report, the summary as text and HTML, and its curves."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from IPython.lib.pretty import pretty

from jupyter_dist import folder as folders
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import State
from jupyter_dist.record.failures.card import card
from jupyter_dist.showing import failure_report
from jupyter_dist.showing.run import Run
from jupyter_dist.text import format
from jupyter_dist.text.svg import Series, chart
from jupyter_dist.worker import payload
from tests.rigs.run_maker import BEGAN, RunMaker

TRACEBACK = """Traceback (most recent call last):
  File "In[3]", line 4, in train
    raise ValueError("bad step")
ValueError: bad step
"""
FRAMES = [
    {"file": "/tmp/ipykernel_1/123.py", "label": "In[3]", "line": 4, "function": "train", "source": "raise …"}
]


def failed(root: Path, world_size: int = 8, **job: object) -> RunMaker:
    """Rank 1 raised; the others were in a collective with it."""
    made = RunMaker(root, world_size, **job)  # type: ignore[arg-type]
    for number in range(30):
        made.print(1, f"step {number}\n")
    made.print(1, TRACEBACK)
    made.fail(1, "ValueError", "bad step", TRACEBACK, BEGAN + 5, frames=FRAMES)
    return made


def hints_of(folder: RunFolder) -> list[str]:
    """Return the advice on a run's card. Each is one line behind the headline."""
    lines = failure_report.failure(folder).split("\n")
    found = [line.removeprefix("hint: ") for line in lines if line.startswith("hint: ")]
    assert [line.startswith("hint: ") for line in lines[1 : 1 + len(found)]] == [True] * len(found)
    return found


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


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ("CUDA error: invalid device ordinal", "dist.device()"),
        ("[Errno 98] Address already in use", "MASTER_PORT"),
        ("No module named 'helpers'", "'helpers' lies beside the notebook: --ship-modules helpers"),
        ("No module named 'nowhere'", "'nowhere' is not installed for /usr/bin/python3"),
        # Python says so of a part of a package that it has found.
        ("No module named 'nowhere.sub'", "perhaps 'nowhere' is there for /usr/bin/python3, in a version"),
        ("No module named 'keras.ops': in this cell keras is tf_keras, which lacks it", "at the top"),
        ("Cannot re-initialize CUDA in forked subprocess", "--cold"),
        ("Can't pickle local object 'f.<locals>.<lambda>'", "top level"),
        ("Default process group has not been initialized", "dist.init()"),
        ("Torch not compiled with CUDA enabled", "write .to(dist.device()) in place of .cuda()"),
        ("Virtual devices cannot be modified after being initialized", "in an earlier cell"),
        ("Distributed package doesn't have NCCL built in", "gloo"),
        ("bdb.BdbQuit", "`c` leaves the debugger"),
        (
            "File \"/lib/multiprocessing/pool.py\", line 1\nNameError: name 'lock' is not defined",
            "no 'lock' where",
        ),
    ],
)
def test_a_hint_says_what_to_do(own_folders: Path, message: str, advice: str) -> None:
    made = RunMaker(own_folders, 1)
    (own_folders / "helpers.py").touch()
    made.fail(0, "Error", message, f"Traceback …\nError: {message}\n")
    hints = hints_of(made.end(State.FAILED))
    assert len(hints) == 1
    assert advice in hints[0]


@pytest.mark.parametrize(
    ("kind", "message", "trace", "hint"),
    [
        ("RuntimeError", "CUDA out of memory. Tried", "", "the GPU is full"),
        ("MemoryError", "out of memory", "", "perhaps the GPU is full"),
        ("ResourceExhaustedError", "failed: OutOfMemoryError", "", "perhaps the GPU is full"),
        # What the failure itself does not say may have been dealt with.
        (
            "ValueError",
            "bad",
            "RuntimeError: Address already in use\n",
            "perhaps another process has the port",
        ),
        ("ValueError", "bad", "ModuleNotFoundError: No module named 'wandb'\n", "perhaps 'wandb' is not"),
        ("RuntimeError", "cannot pickle 'x' object", "", "perhaps something that goes to another process"),
        ("EOFError", "", "", "perhaps the process at the other end"),
        ("EOFError", "EOF when reading a line", "", "the input has ended"),
    ],
)
def test_a_hint_that_cannot_be_sure_says_so(
    own_folders: Path, kind: str, message: str, trace: str, hint: str
) -> None:
    made = RunMaker(own_folders, 1)
    last = f"{kind}: {message}".removesuffix(": ")
    made.fail(0, kind, message, f"Traceback …\n{trace}\nDuring handling …\n{last}\n")
    hints = hints_of(made.end(State.FAILED))
    assert [found.startswith(hint) for found in hints] == [True], hints


def test_a_module_that_is_there_is_not_said_to_be_missing(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1)
    folders.write_json(made.folder.job, dataclasses.replace(made.job, python=sys.executable).to_json())
    made.fail(0, "ModuleNotFoundError", "No module named 'pytest'", "Traceback …\n")
    text = failure_report.failure(made.end(State.FAILED))
    assert "is not installed" not in text
    assert "hint: perhaps 'pytest' is installed for" in text


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("colections", "did you mean 'collections'? 'colections' is not installed for /usr/bin/python3"),
        ("hypotesis", "did you mean 'hypothesis'? 'hypotesis' is not installed"),
        ("helpes", "did you mean 'helpers'? 'helpes' is not installed"),
        ("hypothesis.strategy", "did you mean 'hypothesis.strategies'? 'hypothesis' is there"),
        ("quxly", "'quxly' is not installed"),
        ("hypothesis.qux", "perhaps 'hypothesis' is there"),
    ],
)
def test_a_module_whose_name_has_a_typo(own_folders: Path, name: str, hint: str) -> None:
    made = RunMaker(own_folders, 1)
    (own_folders / "helpers.py").touch()
    made.fail(0, "ModuleNotFoundError", f"No module named {name!r}", "Traceback …\n")
    (found,) = hints_of(made.end(State.FAILED))
    assert found.startswith(hint)


def test_what_a_library_says_at_its_import_is_not_what_came_before_a_failure(own_folders: Path) -> None:
    chatter = [
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
        "I0000 00:00:1795332182.398563   12214 port.cc:153] oneDNN custom operations are on.",
        "2026-11-22 07:00:00.123456: I tensorflow/core/platform/cpu_feature_guard.cc:210] This binary",
        "To enable the following instructions: AVX2 FMA, rebuild TensorFlow with the appropriate flags.",
        "E0000 00:00:1795332182.398563   12214 cuda_dnn.cc:8310] Unable to register cuDNN factory: already",
        "2026-11-22 07:00:00.123: I external/local_xla/xla/service/service.cc:153] XLA service 0x7f",
    ]
    telling = [
        "epoch 1",
        "2026-11-22 07:00:00.123456: W tensorflow/core/framework/op_kernel.cc:1827] INVALID_ARGUMENT: bad",
        "W0000 00:00:1795332182.398563   12214 gpu_device.cc:2344] Cannot dlopen some GPU libraries.",
        "I0000 is a part number",
    ]
    made = RunMaker(own_folders, 1)
    made.print(0, "\n".join([*chatter, telling[0], *chatter, *telling[1:], *chatter]) + "\n" + TRACEBACK)
    made.fail(0, "ValueError", "bad step", TRACEBACK)
    run = made.end(State.FAILED)
    shown = failure_report.failure(run).split("its last 4 lines before the traceback:\n")[1]
    assert shown.split("\n") == [f"  {line}" for line in telling]
    assert Run(run).log(0).count("oneDNN") == 3  # the log has it all


def test_a_rank_that_raises_while_it_is_ended_did_not_fail_by_itself(own_folders: Path) -> None:
    made = failed(own_folders, 2)
    made.fail(0, "OSError", "gone", "Traceback …\nOSError: gone\n", BEGAN + 4, asked_to_end=True)
    text = failure_report.failure(made.end(State.FAILED))
    assert text.startswith("rank 1 failed first")
    assert "rank 0 ended because of it: OSError: gone" in text


def test_a_name_of_an_earlier_cell_is_told_from_one_of_a_library(own_folders: Path) -> None:
    trace = "Traceback …\nNameError: name 'model' is not defined\n"
    for frame, hinted in ((FRAMES[0], True), ({**FRAMES[0], "label": FRAMES[0]["file"]}, False)):
        made = RunMaker(own_folders, 1, label="In[3]")
        made.fail(0, "NameError", "name 'model' is not defined", trace, frames=[frame])
        assert (
            "'model' is neither in the notebook" in failure_report.failure(made.end(State.FAILED))
        ) is hinted


@pytest.mark.parametrize(
    ("kind", "message", "source"),
    [
        ("NameError", "name 'model' is not defined", "model(3)"),
        ("UndefinedVariableError", "local variable 'model' is not defined", "raise"),
        ("UndefinedVariableError", "name 'model' is not defined", "raise"),
        ("AttributeError", "Can't get attribute 'model' on <module '__main__'>", "load(f)"),
        ("KeyError", "'model'", "globals()[name]"),
    ],
)
@pytest.mark.parametrize("reason", ["", "it has more than 10 kB"])
def test_a_name_of_the_notebook_that_the_cell_does_not_name(
    own_folders: Path, kind: str, message: str, source: str, reason: str
) -> None:
    made = RunMaker(own_folders, 1, label="In[3]")
    payload.write(made.folder.payload, {"unnamed": {"model": reason}}, b"")
    frame = {**FRAMES[0], "source": source}
    made.fail(0, kind, message, f"Traceback …\n{kind}: {message}\n", frames=[frame])
    hints = hints_of(made.end(State.FAILED))
    why = f", and it was left out ({reason})" if reason else ""
    assert hints == [
        f"model is in the notebook, but this cell does not name it{why}. Write model on a line of the cell."
    ]


def test_a_class_that_a_file_names_and_the_notebook_lacks(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1, label="In[3]")
    made.fail(0, "AttributeError", "Can't get attribute 'Net' on <module '__main__'>", "Traceback …\n")
    text = failure_report.failure(made.end(State.FAILED))
    assert "hint: 'Net' is not in the notebook" in text
    assert "spawned" not in text


def test_an_object_that_needs_a_process_group_before_the_cell_runs(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1, label="In[3]")
    file = "/lib/site-packages/torch/d.py"
    frame = {"file": file, "label": file, "line": 1, "function": "__setstate__"}
    message = "Default process group has not been initialized, please make sure to call init_process_group."
    made.fail(0, "ValueError", message, f"Traceback …\nValueError: {message}\n", frames=[frame])
    (hint,) = hints_of(made.end(State.FAILED))
    assert "from before the cell" in hint
    assert "Create the object in the cell" in hint


def test_a_function_of_a_script_that_needs_a_process_group(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1, label="train()")
    frame = {"file": "/home/me/train.py", "label": "/home/me/train.py", "line": 1, "function": "train"}
    message = "Default process group has not been initialized, please make sure to call init_process_group."
    made.fail(0, "ValueError", message, f"Traceback …\nValueError: {message}\n", frames=[frame])
    (hint,) = hints_of(made.end(State.FAILED))
    assert hint.startswith("call dist.init()")


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


def test_no_hint_without_a_cause(own_folders: Path) -> None:
    assert "hint:" not in failure_report.failure(failed(own_folders).end(State.FAILED))


def test_a_run_that_went_well_has_no_failure(own_folders: Path) -> None:
    assert failure_report.failure(RunMaker(own_folders).end()) == ""


# The summary


def summary(made: RunMaker) -> str:
    return str(pretty(Run(made.folder)))


def test_the_summary_is_one_table(own_folders: Path) -> None:
    made = RunMaker(own_folders, 8)
    for rank in range(8):
        made.metric(rank, 1, {"loss": 9.0})
        made.metric(rank, 2, {"loss": 0.1 * (rank + 1), "acc": 0.97})
        made.result(rank, {"acc": 0.97})
        made.set_rank(rank, peak_memory_bytes=(500 + rank) * 10**6)
    made.end()
    assert summary(made).split("\n") == [
        f"run {made.folder.id} succeeded: 8 ranks on local, 12.3 s",
        "",
        "rank  state      host   exit  duration  peak memory   result",
        "0-7   succeeded  node1  0     12.3 s    500 – 507 MB  {'acc': 0.97}",
        "",
        "metric  step  mean  min – max    ranks",
        "loss    2     0.45  0.1 – 0.8    0-7",
        "acc     2     0.97  0.97 – 0.97  0-7",
        "",
        f"logs: {made.folder.path}/attempts/0/ranks/*/output.log",
    ]


def test_ranks_that_differ_have_rows_of_their_own(own_folders: Path) -> None:
    made = RunMaker(own_folders, 4)
    for rank in (0, 1, 3):
        made.result(rank, rank // 3)
        made.set_rank(rank, state=State.SUCCEEDED, exit_code=0, ended=BEGAN + 2)
    made.set_rank(2, state=State.FAILED, signal=9, ended=BEGAN + 3)
    made.end(State.FAILED)
    lines = summary(made).split("\n")
    assert lines[1] == "rank 2 failed: ended by SIGKILL"
    assert [line.split()[:2] for line in lines[4:7]] == [
        ["0-1", "succeeded"],
        ["2", "failed"],
        ["3", "succeeded"],
    ]
    assert "1002  SIGKILL" in lines[5]


def test_the_rank_that_failed_first_is_told_from_its_victims(own_folders: Path) -> None:
    made = failed(own_folders, 4)
    for rank in (0, 2, 3):
        made.fail(rank, "RuntimeError", f"Connection reset by peer {rank}", "", BEGAN + 6)
    made.end(State.FAILED)
    rows = [line for line in summary(made).split("\n") if " failed " in line]
    assert [row.split()[0] for row in rows] == ["0", "1", "2-3"]
    assert rows[1].endswith("ValueError: bad step")
    assert rows[2].endswith("because of rank 1")


@pytest.mark.parametrize("same", [True, False])
def test_a_thousand_ranks_stay_short(own_folders: Path, same: bool) -> None:
    made = RunMaker(own_folders, 1000)
    for rank in range(0, 1000):
        made.event(rank, "result", repr="same" if same else f"result {rank}", bytes=3, error=None)
    made.set_rank(500, state=State.FAILED, exit_code=7, ended=BEGAN + 1)
    made.end(State.FAILED)
    text = summary(made)
    assert len(text.split("\n")) < 20
    assert re.search(r"^500 +failed", text, re.MULTILINE)
    assert "0-499" in text
    html = Run(made.folder)._repr_html_()
    assert html is not None
    assert len(html.encode()) < 60_000


def test_a_running_run_says_how_to_come_back(own_folders: Path) -> None:
    made = RunMaker(own_folders)
    assert f"%dist attach {made.folder.id}" in summary(made)


class _Checker(HTMLParser):
    """Every element is closed, and none of them does anything."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)
        self.open.append(tag)
        self.tags.add(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>'\"&"


def test_what_ranks_write_is_text_in_the_html(own_folders: Path) -> None:
    made = RunMaker(own_folders, 2)
    made.metric(0, 1, {EVIL: 1.0})
    made.metric(0, 2, {EVIL: 2.0})
    made.event(0, "result", repr=EVIL, bytes=1, error=None)
    made.event(1, "result", repr="x", bytes=None, error=EVIL)
    made.print(0, EVIL)
    made.set_rank(1, host=EVIL)
    made.fail(0, EVIL, EVIL, EVIL)
    made.end(State.FAILED, reason=EVIL)
    html = Run(made.folder)._repr_html_()
    assert html is not None
    checker = _Checker()
    checker.feed(html)
    assert checker.open == []
    assert not checker.tags & {"script", "img", "style", "link", "iframe"}
    assert "&lt;script&gt;" in html


def test_the_html_stays_small_whatever_there_is(own_folders: Path) -> None:
    made = RunMaker(own_folders, 8)
    for rank in range(8):
        lines = [
            json.dumps(
                {
                    "seq": n,
                    "time": BEGAN + n,
                    "kind": "metric",
                    "step": n,
                    "values": {f"metric number {m} {'x' * 40}": math.sin(n * m + rank) for m in range(20)},
                }
            )
            for n in range(300)
        ]
        made.rank(rank).events.write_text("\n".join(lines) + "\n")
        made.event(rank, "result", repr="<>" * 5000, bytes=1, error=None)
    made.fail(1, "E", "m" * 20_000, ("<line>\n" * 40) + "&" * 50_000)
    made.end(State.FAILED)
    html = Run(made.folder)._repr_html_()
    assert html is not None
    assert len(html.encode()) < 60_000
    assert "more metrics" in html
    assert "<svg" in html
    checker = _Checker()
    checker.feed(html)
    assert checker.open == []


# Curves

values = st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=400)


@example("", [*[[]] * 6, [sys.float_info.max], [sys.float_info.max], [sys.float_info.max, 0.0]])
@given(st.text(max_size=40), st.lists(values, max_size=12))
def test_any_values_make_a_wellformed_small_chart(name: str, ranks: list[list[float]]) -> None:
    series = [Series(r, [float(i) for i in range(len(v))], v) for r, v in enumerate(ranks)]
    svg = chart(name, series)
    if len({i for one in ranks for i, value in enumerate(one) if math.isfinite(value)}) < 2:
        assert svg == ""
        return
    ElementTree.fromstring(svg)
    assert len(svg.encode()) < 20_000
    shown = re.findall(r'points="([^"]*)"', svg)
    for point in " ".join(shown).split():
        x, y = map(float, point.split(","))
        assert -1 <= x <= 301
        assert -1 <= y <= 171


def test_a_spike_survives_thinning() -> None:
    series = [0.0] * 5000
    series[1234] = 100.0
    svg = chart("loss", [Series(0, [float(i) for i in range(5000)], series)])
    lowest = min(float(p.split(",")[1]) for p in re.findall(r'polyline points="([^"]*)"', svg)[0].split())
    assert lowest == 24.0  # the top of the chart
    assert len(svg) < 5000


def test_many_ranks_are_a_mean_and_a_band() -> None:
    svg = chart("loss", [Series(r, [0.0, 1.0], [r / 100, r / 50]) for r in range(100)])
    assert svg.count("<polyline") == 1
    assert svg.count("<polygon") == 1
    assert "mean and range of 100 ranks" in svg


# Words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.1234, "0.12 s"), (12.34, "12.3 s"), (59.97, "1 min 0 s"), (125, "2 min 5 s"), (3780, "1 h 3 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert format.duration(seconds) == text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (812, "812 B"),
        (12_345, "12.3 kB"),
        (999_600, "1 MB"),
        (507e6, "507 MB"),
        (2e15, "2000 TB"),
    ],
)
def test_sizes(nbytes: float, text: str) -> None:
    assert format.size(nbytes) == text


def test_numbers_and_signals() -> None:
    assert [format.number(v) for v in (3.0, 0.12345, math.nan, -math.inf, 1.5e-5)] == [
        "3",
        "0.1235",
        "nan",
        "-inf",
        "1.5e-05",
    ]
    assert (format.signal_name(9), format.signal_name(200)) == ("SIGKILL", "signal 200")
    assert [format.clock(s) for s in (7, 725, 3723)] == ["0:07", "12:05", "1:02:03"]
