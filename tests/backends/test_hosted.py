"""What `Hosted` tells of ranks of this machine: what they print, and that their place was taken away."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_dist.backends.hosted import (
    Hosted,
    Hosting,
    HostSettings,
    LinkError,
    Pipe,
    by_pipe,
    stage_program,
)
from jupyter_dist.capture.payload_builder import capture_cell
from jupyter_dist.folder import RunFolder, make_attempt
from jupyter_dist.job import Job, State
from jupyter_dist.record import reader
from jupyter_dist.record.outputs import rich_output
from tests.rigs.run_maker import RunMaker
from tests.rigs.stopwatch import WaitFor

LATER_S = 0.5


def _opened(lifeline: int) -> Callable[[str], Pipe]:
    def opened(_: str) -> Pipe:
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", stage_program(), "word"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "JUPYTER_DIST_LIFELINE": str(lifeline)},
            pass_fds=[lifeline],
            start_new_session=True,
        )
        return Pipe.of_process(process, "word")

    return opened


def _one_host(tmp_path: Path, lifeline: int) -> Callable[[Job, RunFolder], Hosting]:
    def hosting(job: Job, folder: RunFolder) -> Hosting:
        settings = HostSettings(remote_dir=str(tmp_path / "there"), grace_s=60)
        return Hosting([{"name": "h1", "slots": 1}], settings, by_pipe(_opened(lifeline)))

    return hosting


def test_a_poll_that_waits_passes_on_at_once_what_comes(tmp_path: Path, wait_for: WaitFor) -> None:
    read, held = os.pipe()

    run = RunMaker(tmp_path / "runs", 1)
    source = (
        f"import os, time\nprint('up', flush=True)\nwhile not os.path.exists({str(tmp_path / 'go')!r}):\n"
    )
    source += "    time.sleep(0.01)\nprint('news', flush=True)\n"
    source += f"while not os.path.exists({str(tmp_path / 'end')!r}):\n    time.sleep(0.01)"
    capture_cell(source, {}, label="In[1]", directory=tmp_path).write(run.folder.payload)
    hosted = Hosted(_one_host(tmp_path, read))
    handle = hosted.submit(run.job, run.folder, 0)

    def said(text: bytes) -> bool:
        return text in reader.output(run.folder, 0)

    try:
        wait_for(lambda: hosted.poll(run.job, run.folder, handle, wait_s=0.05) and said(b"up"))
        # While it waits: it ends with another state of the ranks, and need not for what they print.
        waits = threading.Thread(
            target=hosted.poll, args=(run.job, run.folder, handle), kwargs={"wait_s": 90.0}
        )
        waits.start()
        (tmp_path / "go").touch()
        wait_for(lambda: said(b"news"))
        assert waits.is_alive(), "it has ended for a line"
        (tmp_path / "end").touch()
        waits.join(30)
        assert not waits.is_alive(), "it waits, and the rank has ended"
    finally:
        hosted.release(run.job, run.folder, handle)
        os.close(read)
        os.close(held)


@pytest.mark.parametrize(
    ("knows", "told"),
    [
        (True, "host h1 was lost: the cluster was terminated"),
        (False, "host h1 was lost: the run's allocation there has ended"),
    ],
    ids=["the platform tells why, later", "it tells nothing"],
)
def test_a_place_that_is_taken_away(tmp_path: Path, wait_for: WaitFor, knows: bool, told: str) -> None:
    """That is not the want of a supervisor, which ends ranks as well."""
    read, held = os.pipe()
    closed: list[float] = []

    def gone() -> dict[str, str]:
        known = knows and closed and time.monotonic() - closed[0] > LATER_S
        return {"h1": "the cluster was terminated"} if known else {}

    def hosting(job: Job, folder: RunFolder) -> Hosting:
        settings = HostSettings(remote_dir=str(tmp_path / "there"), grace_s=60)
        hosts = [{"name": "h1", "slots": 2}]
        return Hosting(hosts, settings, by_pipe(_opened(read)), gone=gone, why_s=30.0 if knows else 0.0)

    run = RunMaker(tmp_path / "runs", 2)
    source = "import time\ntime.sleep(600)"
    capture_cell(source, {}, label="In[1]", directory=tmp_path).write(run.folder.payload)
    hosted = Hosted(hosting)
    handle = hosted.submit(run.job, run.folder, 0)
    try:
        # Not the run's state alone: it runs once the agent was asked for ranks, which may be before it knows.
        wait_for(
            lambda: {rank.state for rank in hosted.poll(run.job, run.folder, handle).ranks} == {State.RUNNING}
        )
        os.close(held)
        closed.append(time.monotonic())
        wait_for(lambda: hosted.poll(run.job, run.folder, handle).state is not State.RUNNING)
        poll = hosted.poll(run.job, run.folder, handle)
        assert (poll.state, poll.detail) == (State.FAILED, told)
        assert {rank.state for rank in poll.ranks} == {State.LOST}
    finally:
        hosted.release(run.job, run.folder, handle)
        os.close(read)


def test_a_host_that_has_gone_with_its_link(tmp_path: Path, wait_for: WaitFor) -> None:
    """Nobody has ended its ranks, though they were to be killed before its last words were waited for."""
    read, held = os.pipe()
    opened: list[Pipe] = []
    gone: dict[str, str] = {}

    def opened_once(word: str) -> Pipe:
        if gone:
            raise LinkError("there is no way any more")
        opened.append(_opened(read)(word))
        return opened[-1]

    def hosting(job: Job, folder: RunFolder) -> Hosting:
        settings = HostSettings(remote_dir=str(tmp_path / "there"), grace_s=60)
        return Hosting([{"name": "h1", "slots": 2}], settings, by_pipe(opened_once), gone=lambda: gone)

    run = RunMaker(tmp_path / "runs", 2)
    source = "import time\ntime.sleep(600)"
    capture_cell(source, {}, label="In[1]", directory=tmp_path).write(run.folder.payload)
    hosted = Hosted(hosting)
    handle = hosted.submit(run.job, run.folder, 0)
    try:
        wait_for(
            lambda: {rank.state for rank in hosted.poll(run.job, run.folder, handle).ranks} == {State.RUNNING}
        )
        gone["h1"] = "the cluster was terminated"
        for pipe in opened:
            assert pipe.process is not None
            pipe.process.kill()
        hosted.stop(run.job, run.folder, handle, kill=True)
        wait_for(lambda: hosted.poll(run.job, run.folder, handle).state.ended)
        poll = hosted.poll(run.job, run.folder, handle)
        assert poll.detail == "host h1 was lost: the cluster was terminated"
        assert {rank.state for rank in poll.ranks} == {State.LOST}
    finally:
        os.close(held)
        hosted.release(run.job, run.folder, handle)
        os.close(read)


def test_what_a_rank_shows_comes_along_and_outlives_a_kill(tmp_path: Path, wait_for: WaitFor) -> None:
    """Through the agent, whose pieces of the two files come apart."""
    read, held = os.pipe()

    run = RunMaker(tmp_path / "runs", 1)
    source = (
        "import os, signal, random\n"
        "class Picture:\n"
        "    def _repr_png_(self): return random.Random(1).randbytes(1_000_000)\n"
        "    def __repr__(self): return 'a picture'\n"
        "display(Picture())\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    capture_cell(source, {}, label="In[1]", directory=tmp_path).write(run.folder.payload)
    hosted = Hosted(_one_host(tmp_path, read))
    handle = hosted.submit(run.job, run.folder, 0)
    try:
        wait_for(lambda: hosted.poll(run.job, run.folder, handle, wait_s=0.05).state.ended)
    finally:
        hosted.release(run.job, run.folder, handle)
        os.close(read)
        os.close(held)
    (shown,) = rich_output.standing(rich_output.read(run.rank(0)))
    assert shown.line == 5
    bundle = rich_output.decoded(run.rank(0).media, shown)
    assert bundle["text/plain"] == "a picture"
    assert bundle["image/png"] == random.Random(1).randbytes(1_000_000)
    assert reader.output(run.folder, 0) == b"a picture\n"


def test_another_attempt_elsewhere_finds_what_was_kept(tmp_path: Path, wait_for: WaitFor) -> None:
    """In `dist.checkpoint_dir()`, with the times it had. What is as it was brought there is not sent back."""
    run = RunMaker(tmp_path / "runs", 2)
    source = (
        "import os, pathlib\n"
        "import jupyter_dist as dist\n"
        "kept = dist.checkpoint_dir() / 'steps' / 'last'\n"
        "times = [path.stat().st_mtime for path in kept.parent.glob('f*')]\n"
        "print('found', kept.read_text() if times else None, times)\n"
        "if dist.rank() == 0:\n"
        "    first = kept.with_name('first')\n"
        "    if not first.exists():\n"
        "        kept.parent.mkdir()\n"
        "        first.write_text('1')\n"
        "        os.utime(first, (1234567890.5, 1234567890.5))\n"
        "    kept.write_text(f'of attempt {dist.attempt()}')\n"
    )
    capture_cell(source, {}, label="In[1]", directory=tmp_path).write(run.folder.payload)

    def attempt(number: int) -> list[str]:
        """What its ranks have found, on two hosts that were never there before."""

        def hosting(job: Job, folder: RunFolder) -> Hosting:
            settings = HostSettings(remote_dir=str(tmp_path / f"there{number}"), grace_s=60)
            hosts = [{"name": name, "slots": 1} for name in ("h1", "h2")]
            return Hosting(hosts, settings, by_pipe(_opened(read)))

        read, held = os.pipe()
        hosted = Hosted(hosting)
        make_attempt(run.folder, number, 2)
        handle = hosted.submit(run.job, run.folder, number)
        try:
            wait_for(lambda: hosted.poll(run.job, run.folder, handle, wait_s=0.05).state.ended)
            assert hosted.poll(run.job, run.folder, handle).state is State.SUCCEEDED
        finally:
            hosted.release(run.job, run.folder, handle)
            os.close(read)
            os.close(held)
        return [reader.output(run.folder, rank, number).decode().strip() for rank in (0, 1)]

    assert attempt(0) == ["found None []"] * 2
    assert attempt(1) == ["found of attempt 0 [1234567890.5]"] * 2
    assert attempt(2) == ["found of attempt 1 [1234567890.5]"] * 2
    kept = [path for path in run.folder.checkpoints.rglob("*") if path.is_file()]
    assert {str(path.relative_to(run.folder.checkpoints)): path.read_text() for path in kept} == {
        "steps/first": "1",
        "steps/last": "of attempt 2",
    }
