"""The folder of a run: it is removed, its disk is full, its files are private, and lines have their times."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.folder import RunFolder
from jupyter_dist.job import State
from jupyter_dist.record import reader
from jupyter_dist.record.failures import failures
from jupyter_dist.worker.output import time_index
from tests.rigs.gates import Gates
from tests.rigs.launching import ended, logs, rank_pids
from tests.rigs.local_runs import UP, gone, run, start, supervisor_pid
from tests.rigs.stopwatch import WaitFor

pytestmark = pytest.mark.usefixtures("warm")


def remove(folder: RunFolder) -> None:
    """Remove it as a user does, who asks again where rm says "Directory not empty": the run writes."""
    while folder.path.exists():
        shutil.rmtree(folder.path, ignore_errors=True)


def test_a_run_whose_folder_is_removed_ends(wait_for: WaitFor) -> None:
    folder = start(UP)
    pids = [*rank_pids(folder), supervisor_pid(folder)]
    remove(folder)
    wait_for(lambda: gone(*pids), "the end of the supervisor and its ranks")
    assert not folder.path.exists()


@pytest.mark.parametrize("kept", ["state.json", "attempts/0/ranks/1/output.log", "requests/stop.part"])
def test_a_run_of_whose_folder_a_file_is_left_ends(wait_for: WaitFor, kept: str) -> None:
    """What rm leaves with "Directory not empty", where the run wrote this file meanwhile."""
    folder = start(UP)
    pids = [*rank_pids(folder), supervisor_pid(folder)]
    remove(folder)
    left = folder.path / kept
    left.parent.mkdir(parents=True)
    left.write_text("{}")
    wait_for(lambda: gone(*pids), "the end of the supervisor and its ranks")
    remove(folder)


@pytest.fixture
def small_disk(own_folders: Path) -> Iterator[None]:
    """The runs are on a disk of 1 MB."""
    own_folders.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", own_folders]).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield
    subprocess.run(["umount", "-l", own_folders], check=True)


_FILL = """
import os
import jupyter_dist as dist
ballast = open(os.path.join(os.environ["JUPYTER_DIST_RUNS"], "ballast"), "wb", buffering=0)
def fill():
    try:
        while ballast.write(bytes(100)):
            pass
    except OSError:
        pass
"""


@pytest.mark.usefixtures("small_disk")
def test_a_training_outlives_a_full_disk_and_its_record_counts_what_is_lost() -> None:
    source = f"""{_FILL}
dist.log(loss=1.0, step=0)
fill()
for step in range(1, 2001):
    dist.log(loss=1.0, step=step)
ballast.truncate(0)
dist.log(loss=0.5, step=2001)
"done"
"""
    folder, status = run(source, np=1)
    assert (status.state, status.reason) == (State.SUCCEEDED, None)
    events = reader.events(folder)
    steps = [event.data["step"] for event in events if event.kind == "metric"]
    assert steps[0] == 0
    assert steps[-1] == 2001
    (note,) = (event.data["text"] for event in events if event.kind == "note" and event.seq >= 0)
    assert note.startswith(f"{2002 - len(steps):,} metrics of this rank were not written: No space left")
    assert sum("No space left" in line or "not written" in line for line in logs(folder, 0)) == 1


@pytest.mark.usefixtures("small_disk")
@pytest.mark.parametrize(
    "fill",
    ["while True: print('x' * 999)", f"{_FILL}fill()\ndist.log(loss=1.0)\nresult = bytes(99_999)\nresult"],
)
def test_a_full_disk_is_what_the_run_says_it_failed_of(fill: str) -> None:
    folder, status = run(f"import jupyter_dist as dist\n{fill}", np=1)
    assert status.state is State.FAILED
    assert status.reason is not None
    assert status.reason.startswith("rank 0 failed: OSError: [Errno 28] No space left on device")
    (error,) = failures.failures(folder)
    assert "print" not in fill or fill in error.text


def test_the_time_index_tells_when_a_line_came(wait_for: WaitFor, tmp_path: Path) -> None:
    began, gates = time.time(), Gates(tmp_path)
    folder = start(gates.source + "print('a')\ngate('b')\nprint('b\\nc')", np=1)

    def times() -> dict[str, Any]:
        return {line.text: line.time for line in reader.line_times(folder, 0, 0)}

    # A line that the index does not cover yet has come "just now", which is before its record.
    wait_for(lambda: time_index.covered(folder.rank(0, 0).times) >= len("a\n"), what="the record of a line")
    between = time.time()
    gates.open("b")
    ended(folder)
    found = times()
    assert began <= found["a"] <= between <= found["b"] <= time.time()
    assert found["c"] == found["b"]


def test_files_are_private_whatever_the_umask() -> None:
    before = os.umask(0)
    try:
        folder, _ = run("import jupyter_dist as dist\ndist.log(a=1)\nprint(1)\n1", np=1)
    finally:
        os.umask(before)
    modes = {
        str(path.relative_to(folder.path)): path.stat().st_mode & 0o777 for path in folder.path.rglob("*")
    }
    wrong = {p: oct(m) for p, m in modes.items() if m != (0o700 if (folder.path / p).is_dir() else 0o600)}
    assert wrong == {}
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert folder.path.parent.stat().st_mode & 0o777 == 0o700
