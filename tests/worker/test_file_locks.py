"""Locks with `flock`, and on file systems that refuse it. No lock outlives its process."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist import folder as folders
from jupyter_dist.errors import InputError
from jupyter_dist.job import State
from jupyter_dist.manage import actions
from jupyter_dist.processes.rank_processes import PACKAGE_ROOT
from jupyter_dist.record import reader, run_labels
from jupyter_dist.worker.file_locks import locked, try_lock
from tests.rigs.launching import ended, launch_cell, logs
from tests.rigs.run_maker import RunMaker
from tests.rigs.stopwatch import WaitFor

Python = Callable[..., "subprocess.Popen[str]"]

_REFUSALS = {"flock": None, "lustre": errno.ENOSYS, "nfs": errno.ENOLCK, "fuse": errno.EOPNOTSUPP}


@pytest.fixture(params=list(_REFUSALS))
def file_system(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let `flock` fail as on this file system, in this process and in all that it starts."""
    number = _REFUSALS[request.param]
    if number is not None:
        refuse(tmp_path, monkeypatch, number)
    return str(request.param)


def refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def flock(fd: Any, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", flock)
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import fcntl, os\n"
        f"def flock(fd, how): raise OSError({number}, os.strerror({number}))\n"
        "fcntl.flock = flock\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{site}{os.pathsep}{PACKAGE_ROOT}")


@pytest.fixture
def python() -> Iterator[Python]:
    """Start a Python process, whose input stays open until the end of the test."""
    with contextlib.ExitStack() as stack:

        def start(code: str, *arguments: Any) -> subprocess.Popen[str]:
            env = {"PYTHONPATH": PACKAGE_ROOT, **os.environ}
            command = [sys.executable, "-c", code, *map(str, arguments)]
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


_COUNT = """
import sys
from jupyter_dist.worker.file_locks import locked
lock, number = sys.argv[1], sys.argv[2]
for _ in range(60):
    with locked(lock):
        with open(number) as file: n = int(file.read())
        with open(number, "w") as file: file.write(str(n + 1))
"""
_OWN = """
import sys
from jupyter_dist.worker.file_locks import try_lock
lock = try_lock(sys.argv[1])
print("owner" if lock else "busy", flush=True)
sys.stdin.read()
"""


@pytest.mark.usefixtures("file_system")
def test_no_increment_of_several_processes_is_lost(tmp_path: Path, python: Python) -> None:
    number = tmp_path / "number"
    number.write_text("0")
    processes = [python(_COUNT, tmp_path / "lock", number) for _ in range(4)]
    assert [process.wait(120) for process in processes] == [0] * 4
    assert number.read_text() == "240"


@pytest.mark.usefixtures("file_system")
def test_no_increment_of_several_threads_is_lost(tmp_path: Path) -> None:
    counts = {"n": 0}

    def count(_: int) -> None:
        for _ in range(30):
            with locked(tmp_path / "lock"):
                n = counts["n"]
                os.stat(tmp_path)  # lets other threads run
                counts["n"] = n + 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))
    assert counts["n"] == 120


@pytest.mark.usefixtures("file_system")
def test_the_lock_of_a_killed_process_is_free_at_once(
    tmp_path: Path, python: Python, dice: random.Random
) -> None:
    path = tmp_path / "lock"
    for _ in range(3):
        owner = python(_OWN, path)
        assert owner.stdout is not None
        assert owner.stdout.readline() == "owner\n"
        assert try_lock(path) is None
        owner.kill()
        owner.wait()
        if dice.random() < 0.5:
            lock = try_lock(path)
            assert lock is not None
            lock.release()
    assert try_lock(path) is not None


@pytest.mark.usefixtures("file_system")
def test_of_many_that_find_the_lock_of_a_killed_process_one_gets_it(tmp_path: Path, python: Python) -> None:
    path = tmp_path / "lock"
    for _ in range(3):
        contenders = [python(_OWN, path) for _ in range(5)]
        said = [process.stdout.readline() for process in contenders if process.stdout is not None]
        assert sorted(said) == ["busy\n"] * 4 + ["owner\n"]
        for process in contenders:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("owner", "age_s", "free"),
    [
        (["elsewhere", "boot", 1, 1], 5, False),
        (["elsewhere", "boot", 1, 1], 60, True),
        (None, 5, False),
        (None, 60, True),
    ],
    ids=["young, elsewhere", "old, elsewhere", "about to be written", "killed before it was written"],
)
def test_an_owner_that_cannot_be_asked_counts_by_its_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: list[Any] | None, age_s: float, free: bool
) -> None:
    refuse(tmp_path, monkeypatch, errno.ENOLCK)
    path = tmp_path / "lock"
    path.touch()
    claim = tmp_path / "lock.7"
    claim.write_text("" if owner is None else json.dumps(owner))
    made = path.stat().st_mtime - age_s
    os.utime(claim, (made, made))
    lock = try_lock(path)
    assert (lock is not None) == free
    assert sorted(each.name for each in tmp_path.glob("lock.*")) == ["lock.8" if free else "lock.7"]
    if lock is not None:
        lock.release()
        assert try_lock(path) is not None


def test_another_error_of_a_lock_is_no_lack_of_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(tmp_path, monkeypatch, errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        try_lock(tmp_path / "lock")


@pytest.mark.usefixtures("file_system")
def test_a_run_has_one_supervisor_which_runs_to_its_end(wait_for: WaitFor, python: Python) -> None:
    folder = launch_cell(
        "local",
        "print('up')\nimport time\nwhile not FILE.exists(): time.sleep(0.01)",
        2,
        names={"FILE": Path(os.environ["JUPYTER_DIST_RUNS"]) / "go"},
    )
    wait_for(lambda: logs(folder, 0) == ["up"])
    supervisor = reader.status(folder).supervisor
    second = python(
        "import sys; from jupyter_dist.supervise import supervisor as s; s.main(sys.argv[1:])",
        folder.path,
        "--resume",
    )
    second.wait(60)
    wait_for(lambda: folder.supervisor_log.read_text().count("supervisor ") == 2)
    (folder.path.parent / "go").touch()
    status = ended(folder)
    assert (status.state, status.reason) == (State.SUCCEEDED, None)
    assert status.supervisor == supervisor


@pytest.mark.usefixtures("file_system")
def test_labels_that_threads_and_processes_change_at_once_are_all_kept(
    own_folders: Path, python: Python
) -> None:
    """Each of them changes a label that the others do not, and thus reads what they have written."""
    folder = RunMaker(own_folders, 1).folder
    code = "import sys; from jupyter_dist.manage import actions\n" + (
        "for n in range(50): actions.about(sys.argv[1], tags=[f't{n}'])"
    )
    process = python(code, folder.id)
    written: dict[str, list[str]] = {"a": [], "n": []}

    def edit(n: int) -> None:
        now = actions.about(folder.id, **({"note": f"n{n}"} if n % 2 else {"name": f"a{n}"}))  # type: ignore[arg-type]
        written["n" if n % 2 else "a"].append(now["note"] if n % 2 else now["name"])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(edit, range(100)))
    assert process.wait(60) == 0
    found = run_labels.read(folder)
    assert found.tags == ("t49",)
    for letter, last in (("a", found.name), ("n", found.note)):
        assert last in written[letter][-4:], "each thread's last label, not one of long ago"


def test_a_label_that_is_refused_leaves_no_lock(own_folders: Path) -> None:
    folder = RunMaker(own_folders, 1).folder
    with pytest.raises(InputError):
        actions.about(folder.id, name="x" * 100_000)
    assert actions.about(folder.id, name="fine")["name"] == "fine"


def test_a_file_that_threads_replace_at_once_is_always_one_of_theirs(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    texts = [letter * size for letter, size in (("a", 10), ("b", 100_000), ("c", 3000))]
    folders.write_json(path, texts[0])

    def write(text: str) -> None:
        for _ in range(100):
            folders.write_json(path, text)
            assert json.loads(path.read_bytes()) in texts

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, texts))
    assert [each.name for each in tmp_path.iterdir()] == ["file.json"], "no temporary file is left"
