"""What ranks leave of an error in their logs and in what is told of it: the user's files, nothing of ours."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest

from jupyter_dist.capture.payload_builder import Payload, capture_cell
from jupyter_dist.conformance.deadlines import run_process
from jupyter_dist.folder import RankFolder, RunFolder
from jupyter_dist.job import State
from jupyter_dist.record import reader
from jupyter_dist.record.failures.failures import failures
from jupyter_dist.showing import failure_report
from jupyter_dist.worker import layout
from jupyter_dist.worker import payload as container
from tests.rigs.launching import ended, launch_cell, logs, story, until_up

pytestmark = pytest.mark.usefixtures("warm")

OURS = str(Path(failure_report.__file__).parents[1])
MODULE = """import inspect, warnings

def step(loss):
    warnings.warn("careful")
    raise ValueError(f"bad {loss}")
"""
PACKAGE = """from pathlib import Path
import beside_mod

TEXT = Path(__file__).with_name("words.txt").read_text()

class Trainer:
    def fit(self):
        return beside_mod.step(3)
"""


@pytest.fixture
def beside(own_folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module and a package that a cell there uses."""
    folder = tmp_path / "note books"
    (folder / "beside_pkg").mkdir(parents=True)
    (folder / "beside_mod.py").write_text(MODULE)
    (folder / "beside_pkg" / "__init__.py").write_text("")
    (folder / "beside_pkg" / "words.txt").write_text("some words")
    (folder / "beside_pkg" / "train.py").write_text(PACKAGE)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_modules_beside_the_notebook_are_the_users_files(beside: Path) -> None:
    source = (
        "import beside_mod, inspect, jupyter_dist\n"
        "from beside_pkg import train\n"
        "print(train.TEXT, inspect.getsource(beside_mod.step).splitlines()[0])\n"
        "print(beside_mod.__file__.removeprefix(__import__('os').environ['JUPYTER_DIST_RUN']))\n"
        "try:\n"
        "    train.Trainer().fit()\n"
        "finally:\n"
        "    jupyter_dist.barrier()  # the first rank to fail ends the other one\n"
    )
    # The second rank may find what the first has compiled.
    run = launch_cell("local", source)
    status = ended(run)
    assert status.state is State.FAILED, story(run)
    for rank in range(2):
        said = logs(run, rank)
        assert said[0] == "some words def step(loss):"
        assert said[1] == "/modules/beside_mod.py"
        assert said[2] == f"{beside}/beside_mod.py:4: UserWarning: careful"
        assert said[3] == '  warnings.warn("careful")'
        assert not [line for line in said[2:] if str(run.path) in line or OURS in line]
    first = failures(run)[0]
    assert [(Path(frame["file"]).name, frame["line"], frame["source"]) for frame in first.frames][1:] == [
        ("train.py", 8, "return beside_mod.step(3)"),
        ("beside_mod.py", 5, 'raise ValueError(f"bad {loss}")'),
    ]
    assert f'  File "{beside}/beside_mod.py", line 5, in step\n    raise ValueError' in first.text
    assert str(run.path) not in failure_report.failure(run).split("whole log")[0]


def failed_rank(folder: Path, payload: Payload) -> RankFolder:
    """Run the payload as the only rank, without a supervisor. It has to fail."""
    rank = RunFolder(folder).rank(0, 0)
    rank.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    for file in payload.modules:
        (folder / layout.MODULES / file.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / layout.MODULES / file.path).write_bytes(file.data)
    container.write(folder / layout.PAYLOAD, payload.header, payload.body, payload.buffers)
    own = {"JUPYTER_DIST_RUN": str(folder), "JUPYTER_DIST_ATTEMPT": "0", "RANK": "0", "WORLD_SIZE": "1"}
    done = run_process([sys.executable, "-m", "jupyter_dist.worker"], env={**os.environ, **own}, cwd="/")
    assert done.returncode == 1
    return rank


def test_lines_of_a_module_are_shown_where_its_file_is_not(beside: Path, tmp_path: Path) -> None:
    """As on another host; or the file there is another one, or was edited while the run went on."""
    payload = capture_cell("import beside_mod\nbeside_mod.step(1)\n", {}, label="In[1]", directory=beside)
    found = []
    for text in (None, "# edited\n\n\n\n\n"):
        (beside / "beside_mod.py").unlink()
        if text is not None:
            (beside / "beside_mod.py").write_text(text)
        found.append(failed_rank(tmp_path / "run", payload).output.read_text())
        (beside / "beside_mod.py").write_text("")
    for said in found:
        assert (
            f'  File "{beside}/beside_mod.py", line 5, in step\n    raise ValueError(f"bad {{loss}}")\n'
            in said
        )


def test_an_error_of_another_version_of_a_library_comes_with_a_note_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the rank cannot load is what the note explains."""
    library = tmp_path / "site-packages" / "versioned_tools.py"
    library.parent.mkdir()
    library.write_text('__version__ = "1.0"\nclass Settings:\n    pass\n')
    monkeypatch.syspath_prepend(str(library.parent))
    names = {"settings": importlib.import_module("versioned_tools").Settings()}
    payload = capture_cell("print(settings)", names, label="In[1]", directory=tmp_path / "own", here=False)
    del sys.modules["versioned_tools"]
    library.write_text('__version__ = "2.0"\n')
    rank = failed_rank(tmp_path / "run", payload)
    assert "AttributeError" in rank.output.read_text()
    notes = [event["text"] for event in reader.last_events(rank, "note")]
    assert notes == [
        "Ranks have other versions of libraries than the notebook: versioned_tools 2.0 (notebook: 1.0)."
    ]


ENDS = """
import os, pathlib, time, traceback
rank = int(os.environ["RANK"])
ready = [pathlib.Path(place, str(other)) for other in range(1, 5)]

def wait():
    ready[rank - 1].touch()
    time.sleep(100)

class Slow:
    def __del__(self):
        wait()

print("up")
if rank == 0:
    while not all(other.exists() for other in ready):
        time.sleep(0.01)
    time.sleep(0.1)
    raise ValueError("the cause")
if rank == 1:
    wait()
if rank == 2:
    try:
        wait()
    finally:
        print("cleaned up")
if rank == 3:
    try:
        wait()
    except BaseException:
        raise OSError("while it was ended")
if rank == 4:
    try:
        thing = Slow()
        del thing
        time.sleep(100)
    finally:
        print("heard in spite of it")
"""


IN_A_DESTRUCTOR = """
import time

class Slow:
    def __del__(self):
        print("up")
        time.sleep(1000)

thing = Slow()
try:
    del thing
    time.sleep(1000)
except KeyboardInterrupt:
    print("heard in spite of it")
    raise
"""


def test_an_interrupt_in_a_destructor_is_heard(own_folders: Path) -> None:
    run = launch_cell("local", IN_A_DESTRUCTOR, 1)
    until_up(run, 1)
    run.request("interrupt")
    assert ended(run).state is State.STOPPED, story(run)
    assert logs(run, 0)[:2] == ["up", "heard in spite of it"]


def test_a_log_ends_with_what_its_rank_said(own_folders: Path, tmp_path: Path) -> None:
    """Ranks that are ended in the midst of things because another one has failed."""
    run = launch_cell("local", ENDS, 5, names={"place": str(tmp_path)})
    status = ended(run)
    assert (status.state, status.ranks[0].exit_code) == (State.FAILED, 1), story(run)
    assert [logs(run, rank)[1:] for rank in (1, 2, 4)] == [[], ["cleaned up"], ["heard in spite of it"]]
    assert [logs(run, 3)[1], logs(run, 3)[-1]] == [
        "Traceback (most recent call last):",
        "OSError: while it was ended",
    ]
    everything = "\n".join(line for rank in range(5) for line in logs(run, rank))
    for noise in ("Terminated", "143", "SystemExit", "Exception ignored", OURS, "During handling"):
        assert noise not in everything
    told = failures(run)
    assert [(error.rank, error.collateral) for error in told] == [(0, False), (3, True)]
    assert told[1].text.count("Traceback") == 1


def test_a_traceback_within_a_message_has_no_frames_of_ours(own_folders: Path) -> None:
    """As one that a library formats where it catches an error, and passes on as text."""
    source = (
        "import traceback\n"
        "def deep(): raise RuntimeError('calls:\\n' + ''.join(traceback.format_stack()) + 'the end')\n"
        "deep()\n"
    )
    run = launch_cell("local", source, 1)
    assert ended(run).state is State.FAILED
    (error,) = failures(run)
    for text in (error.message, error.text):
        assert OURS + "/worker" not in text
        assert text.count('File "In[1]", line 3, in <module>\n    deep()\n') >= 1
        assert text.rstrip().endswith("the end")


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("from_thread", [False, True])
def test_a_request_to_end_does_not_disturb_a_rank_that_writes_its_error(
    own_folders: Path, number: str, from_thread: bool
) -> None:
    """Another rank raises at the same moment, so the signal can arrive at any time. Here it surely does."""
    source = (
        "import os, signal, threading\n"
        f"def send(): os.kill(os.getpid(), signal.{number})\n"
        "class Late(Exception):\n"
        "    def __str__(self):\n"
        f"        if {from_thread}:\n"
        "            thread = threading.Thread(target=send)\n"
        "            thread.start(), thread.join()\n"
        "        else:\n"
        "            send()\n"
        "        return 'said in full'\n"
        "raise Late\n"
    )
    run = launch_cell("local", source, 1)
    assert ended(run).state is State.FAILED, story(run)
    (error,) = failures(run)
    assert (error.type, error.message, error.exit_code) == ("Late", "said in full", 1)
    assert logs(run, 0) == error.text.rstrip("\n").split("\n")
    assert error.text.endswith("Late: said in full\n")


def test_a_request_to_end_between_the_error_and_the_exit_prints_nothing(own_folders: Path) -> None:
    """`multiprocessing` stands for all that a rank does when its error is written."""
    source = (
        "import multiprocessing, os, signal\n"
        "multiprocessing.active_children = lambda: os.kill(os.getpid(), signal.SIGTERM) or []\n"
        "raise KeyError('mine')\n"
    )
    run = launch_cell("local", source, 1)
    assert ended(run).state is State.FAILED, story(run)
    assert logs(run, 0)[-1] == "KeyError: 'mine'"
    assert [error.message for error in failures(run)] == ["'mine'"]
