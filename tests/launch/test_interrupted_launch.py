"""A launch that is interrupted, or whose kernel is killed, while a large payload is being written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist import folder as folders
from jupyter_dist.commands import dispatch
from jupyter_dist.commands.run_commands import Context
from jupyter_dist.errors import LaunchError
from jupyter_dist.job import State
from jupyter_dist.launch import submission
from jupyter_dist.manage import removal
from jupyter_dist.processes.rank_processes import PACKAGE_ROOT
from tests.rigs.launching import ended, launch_cell
from tests.rigs.run_maker import RunMaker

# Writes a payload whose last part waits for ever, as on a slow disk.
_SLOW = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it starts with `&`
from jupyter_dist.launch import submission
from tests.rigs import launching
from jupyter_dist.capture.payload_builder import Payload
write = Payload.write
def slowly(self, path):
    path.with_name(".payload.buffers.1").write_bytes(bytes(1 << 20))
    print("writing", flush=True)
    time.sleep(600)
Payload.write = slowly
try:
    launching.launch_cell("local", "1")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.fixture
def writing(own_folders: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", _SLOW]
    env = {**os.environ, "PYTHONPATH": PACKAGE_ROOT}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        yield process
        process.kill()


def test_an_interrupt_while_the_payload_is_written_leaves_nothing(
    own_folders: Path, writing: subprocess.Popen[str]
) -> None:
    assert len(os.listdir(own_folders)) == 1
    writing.send_signal(signal.SIGINT)
    assert writing.stdout is not None
    assert writing.stdout.readline() == "interrupted\n"
    assert os.listdir(own_folders) == []


@pytest.mark.parametrize("clean", [lambda: removal.clean(30), removal.remove_abandoned])
def test_what_a_killed_kernel_left_is_removed_but_not_what_is_being_written(
    own_folders: Path, writing: subprocess.Popen[str], clean: Callable[[], Any]
) -> None:
    (name,) = os.listdir(own_folders)
    running = RunMaker(own_folders, 1).folder
    assert clean() == ([], 0)
    writing.kill()
    writing.wait()
    removed, freed = clean()
    assert removed == [name]
    assert freed >= 1 << 20
    assert os.listdir(own_folders) == [running.id]


def test_the_command_counts_what_a_killed_kernel_left(
    own_folders: Path, writing: subprocess.Popen[str]
) -> None:
    writing.kill()
    writing.wait()
    assert str(dispatch("rm --older-than 30d", Context())).startswith("removed 1 run, ")
    assert dispatch("rm --all-ended", Context()) == "no run to remove"


@pytest.mark.parametrize(("hours", "goes"), [(1, False), (25, True)])
def test_a_folder_without_a_lock_is_abandoned_after_a_day(own_folders: Path, hours: int, goes: bool) -> None:
    """It has not yet got a lock, or an earlier version is writing it."""
    made = folders.create(own_folders, folders.new_id(), 1)
    when = made.path.stat().st_mtime - hours * 3600
    os.utime(made.path, (when, when))
    assert removal.clean(1)[0] == ([made.id] if goes else [])


@pytest.mark.parametrize(("hours", "goes"), [(1, False), (25, True)])
def test_a_complete_folder_that_nobody_has_locked_is_abandoned_after_a_day(
    own_folders: Path, hours: int, goes: bool
) -> None:
    """The supervisor of a session may be about to take it."""
    made = folders.create(own_folders, folders.new_id(), 1)
    made.resume_lock.touch()
    made.payload.touch()
    when = made.payload.stat().st_mtime - hours * 3600
    os.utime(made.payload, (when, when))
    assert removal.clean(1)[0] == ([made.id] if goes else [])


def test_the_damaged_folder_of_a_run_is_not_taken_for_a_launch(own_folders: Path) -> None:
    """Its checkpoints may be all that the user has."""
    made = RunMaker(own_folders, 1).folder
    made.supervisor_log.touch()
    made.job.unlink()
    os.utime(made.path, (0, 0))
    assert removal.clean(1) == ([], 0)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError, OSError])
@pytest.mark.parametrize("step", ["make_private", "make_attempt", "write_json"])
def test_whatever_ends_a_launch_before_it_is_handed_over_leaves_no_folder(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], step: str
) -> None:
    before = getattr(folders, step)

    def fail(path: Any, *arguments: Any) -> None:
        before(path, *arguments)
        if own_folders in getattr(path, "path", path).parents:
            raise error("now")

    monkeypatch.setattr(folders, step, fail)
    with pytest.raises((error, LaunchError)):
        launch_cell("local", "1")
    assert os.listdir(own_folders) == []


def test_an_interrupt_while_the_supervisor_starts_leaves_a_run_that_ends(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = submission._start_cold

    def interrupted(*arguments: Any) -> None:
        start(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(submission, "_start_cold", interrupted)
    with pytest.raises(KeyboardInterrupt):
        launch_cell("local", "import time; time.sleep(600)")
    (folder,) = folders.runs()
    assert ended(folder).state in (State.STOPPED, State.FAILED)
