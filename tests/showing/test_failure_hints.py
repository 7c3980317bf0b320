"""The advice on the card of a failed run."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from jupyter_dist import folder as folders
from jupyter_dist.job import State
from jupyter_dist.showing import failure_report
from jupyter_dist.showing.run import Run
from jupyter_dist.worker import payload
from tests.rigs.failed_runs import FRAMES, TRACEBACK, failed, hints_of
from tests.rigs.run_maker import BEGAN, RunMaker


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
        ("hypothesis", "'hypothesis' is not installed"),  # for the ranks' Python, and for ours it is
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


def test_a_wrong_import_of_our_functions(own_folders: Path) -> None:
    made = RunMaker(own_folders, 1)
    message = "cannot import name 'dist' from 'jupyter_dist' (/env/jupyter_dist/__init__.py)"
    made.fail(0, "ImportError", message, f"Traceback …\nImportError: {message}\n")
    assert hints_of(made.end(State.FAILED)) == ["write import jupyter_dist as dist"]


def test_unions_of_types_have_a_hint_only_where_another_python_has_them(own_folders: Path) -> None:
    wrong = "unsupported operand type(s) for |: '{}' and '{}'"
    types = ["type", "types.GenericAlias", "_UnionGenericAlias", "_SpecialForm", "ABCMeta", "TypeVar"]
    asked = {(kind, "NoneType"): 1 for kind in types} | {("NoneType", kind): 1 for kind in types}
    for (left, right), count in {**asked, ("NoneType", "NoneType"): 0, ("int", "NoneType"): 0}.items():
        made, message = RunMaker(own_folders, 1), wrong.format(left, right)
        made.fail(0, "TypeError", message, f"Traceback …\nTypeError: {message}\n")
        assert len(hints_of(made.end(State.FAILED))) == count, (left, right)


def test_no_hint_without_a_cause(own_folders: Path) -> None:
    assert "hint:" not in failure_report.failure(failed(own_folders).end(State.FAILED))
