"""Descriptors: each has an owner that closes it, and a process that runs out of them says so."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.agent import stage_program
from jupyter_dist.agent.frames import Frame, Frames, encode
from jupyter_dist.agent.tail import Tails
from jupyter_dist.folder import RunFolder
from jupyter_dist.hosts.links.mailbox import Mailbox
from jupyter_dist.hosts.openssh import SshSettings
from jupyter_dist.hosts.rsync import Sync
from jupyter_dist.worker.host.os_errors import reason
from jupyter_dist.worker.process_identity import start_ticks
from tests.rigs.stopwatch import WaitFor

ROOT = Path(__file__).parents[2]


def descriptors() -> set[tuple[str, str]]:
    """This process's descriptors, each with what it is. Threads of other tests may close some meanwhile."""
    place = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
    found = set()
    for name in os.listdir(place):
        with contextlib.suppress(OSError):  # the listing's own
            found.add((name, os.readlink(f"{place}/{name}") if sys.platform == "linux" else ""))
    return found


@pytest.fixture(autouse=True)
def no_garbage() -> Iterator[None]:
    """Close what other tests have left now, and nothing during the test: each count is of this test's own."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def scarce_files() -> Iterator[None]:
    """No further descriptor than the next one can be opened in this process."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def write(run: Path, attempt: int, ranks: int, text: str) -> None:
    for rank in range(ranks):
        place = run / f"attempts/{attempt}/ranks/{rank}"
        place.mkdir(parents=True, exist_ok=True)
        for name in ("output.log", "events.jsonl", "exit.json"):
            with open(place / name, "a") as file:
                file.write(text)


def test_a_tail_keeps_no_file_open_and_still_reads_late_output_of_an_ended_attempt(tmp_path: Path) -> None:
    tails, came, before = Tails(str(tmp_path)), bytearray(), descriptors()
    tails.restart({})
    for attempt in range(5):
        write(tmp_path, attempt, 4, f"attempt {attempt}\n")
        for _ in range(9):
            sum(1 for _ in tails.pieces())
        assert descriptors() <= before
    late = "attempts/1/ranks/2/output.log"
    with open(tmp_path / late, "a") as file:
        file.write("late\n")
    for _ in range(9):
        for header, body in tails.pieces():
            assert header["path"] == late
            came += body
    assert came == b"late\n"


def test_a_tail_without_descriptors_says_so_and_loses_nothing(tmp_path: Path, scarce_files: None) -> None:
    write_later = tmp_path / "attempts/0/ranks/0"
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    write(tmp_path, 0, 1, "first\n")
    tails = Tails(str(tmp_path))
    tails.restart({})
    assert sum(1 for _ in tails.pieces()) == 3
    with open(write_later / "output.log", "a") as file:
        file.write("second\n")
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert list(tails.pieces()) == []
    assert tails.trouble is not None
    assert "ulimit -n" in tails.trouble
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    assert [body for _, body in tails.rest("attempts/0/ranks/0")] == [b"second\n"]
    assert tails.trouble is None


def test_links_of_a_mailbox_share_one_pipe_that_the_mailbox_closes(folder: RunFolder, tmp_path: Path) -> None:
    mailbox, before = Mailbox(f"file://{tmp_path}/mail", folder), descriptors()
    for _ in range(3):
        links = [mailbox.reach(f"h{node}", {"node": node, "grace_s": 1}, []) for node in range(30)]
        for link in links:
            link.open("stage")
        assert len(descriptors() - before) < 30
        for link in links:
            link.close()
    mailbox.close()
    assert descriptors() <= before


def test_a_frame_wakes_its_own_link_though_another_link_was_read_last(
    folder: RunFolder, tmp_path: Path
) -> None:
    mailbox = Mailbox(f"file://{tmp_path}/mail", folder)
    one, other = (mailbox.reach(name, {"node": node, "grace_s": 1}, []) for node, name in enumerate("ab"))
    for link in (one, other):
        link.open("stage")
    assert one.pump() == []
    assert one._keep(one.session, 0, encode({"is": "something"}))
    assert other.pump() == []  # reads the shared pipe
    poll = select.poll()
    for link in (one, other):
        link.register(poll)
    assert poll.poll(0)
    assert [header["is"] for header, _ in one.pump()] == ["something"]
    mailbox.close()


@pytest.mark.parametrize("lines", [3, 5_000])
def test_rsync_may_complain_as_much_as_it_likes(
    lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_for: WaitFor
) -> None:
    script = tmp_path / "bin" / "rsync"
    script.parent.mkdir()
    script.write_text(
        f'#!/bin/sh\nfor i in `seq {lines}`; do echo "rsync: cannot read file number $i" >&2; done\nexit 23\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    sync, before = Sync("localhost", SshSettings(rsync=(str(tmp_path),))), descriptors()
    sync.begin(str(tmp_path / "work"))
    failed = wait_for(sync.look)
    assert failed.startswith("rsync failed with exit code 23: rsync: cannot read file number 1 ")
    assert descriptors() <= before


def test_a_running_rsync_is_ended_with_what_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_for: WaitFor
) -> None:
    script, pid = tmp_path / "bin" / "rsync", tmp_path / "pid"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\nsleep 1000 & echo $! > {pid}.part; mv {pid}.part {pid}; wait\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    sync, before = Sync("localhost", SshSettings(rsync=(str(tmp_path),))), descriptors()
    sync.begin(str(tmp_path / "work"))
    wait_for(pid.exists)
    sync.close()
    assert descriptors() <= before
    wait_for(lambda: start_ticks(int(pid.read_text())) is None)


def test_a_refused_set_up_leaves_no_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relay lives long and may be asked again and again. The agent here dies at its start."""
    monkeypatch.chdir(tmp_path)
    wish = {"dir": str(tmp_path), "run": "20261120-120000-abcd12", "node": 0, "mode": "stage", "files": []}
    before = descriptors()
    for _ in range(3):
        with pytest.raises(stage_program.Refused, match="its agent did not start"):
            stage_program.prepare(wish, lambda stage, missing: None, lambda header: None)
        assert descriptors() <= before


def test_an_agent_without_descriptors_tells_its_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent's limit is lowered while it serves. Its output follows when the limit is raised again."""
    stage = tmp_path / "hosts" / "stage"
    (stage / "run").mkdir(parents=True)
    (stage / "code").mkdir()
    (stage / "agent.json").write_text(json.dumps({"grace_s": 60}))
    read, ready = os.pipe()
    agent = subprocess.Popen(
        [sys.executable, "-m", "jupyter_dist.agent", str(stage), str(ready)], cwd=ROOT, pass_fds=[ready]
    )
    os.close(ready)
    assert os.read(read, 1) == b"+"
    os.close(read)
    frames, driver = Frames(), socket.socket(socket.AF_UNIX)
    came: deque[Frame] = deque()
    driver.settimeout(60)
    with monkeypatch.context() as here:
        here.chdir(stage)  # a socket's path must be short
        driver.connect("agent.sock")

    def until(kind: str, **wanted: object) -> tuple[dict[str, Any], bytes]:
        while True:
            while came:
                header, body = came.popleft()
                if header["is"] == kind and wanted.items() <= header.items():
                    return header, body
            data = driver.recv(1 << 16)
            assert data, "the agent has hung up"
            came.extend(frames.feed(data))

    try:
        driver.sendall(encode({"do": "hello", "have": {}}))
        until("facts")
        limits = resource.prlimit(agent.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        write(stage / "run", 0, 1, "a line\n")
        header, _ = until("hindered")
        assert "Too many open files" in header["why"]
        assert "`ulimit -n 65536`" in header["why"]
        resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, limits)
        lines = until("chunk", path="attempts/0/ranks/0/output.log")[1]
        assert lines == b"a line\n"
        until("hindered", why=None)
    finally:
        driver.close()
        agent.send_signal(signal.SIGTERM)
        agent.wait()


def test_the_text_of_any_other_error_is_the_system_s() -> None:
    assert reason(PermissionError(13, "Permission denied")) == "Permission denied"
    assert reason(OSError("only words")) == "only words"
