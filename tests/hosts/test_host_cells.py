"""The driver's and the agent's side of a session on one host: files, messages and what stays there."""

from __future__ import annotations

import contextlib
import selectors
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_dist.agent.children import Children
from jupyter_dist.agent.session_ranks import FOLLOWED, SessionRanks
from jupyter_dist.backends import hosted_session
from jupyter_dist.backends.hosted_session import HostedSession
from jupyter_dist.conformance.deadlines import wait_for_exit
from jupyter_dist.folder import RunFolder
from jupyter_dist.hosts.arrivals import Arrivals
from jupyter_dist.hosts.facts import HostProcess
from jupyter_dist.hosts.fleet import Fleet
from jupyter_dist.hosts.host_cells import HostCells
from jupyter_dist.hosts.host_files import HostFiles
from jupyter_dist.hosts.links import stream
from jupyter_dist.hosts.links.stream import Pipe, StreamLink, by_pipe, stage_program
from jupyter_dist.hosts.settings import HostSettings
from jupyter_dist.hosts.staged_files import Shipped
from jupyter_dist.hosts.start import Start
from jupyter_dist.job import Job, RankState, State
from tests.rigs.stopwatch import WaitFor

LINE = 400_000
"""Bytes a second of the slow line."""


class Line:
    """A link that notes what is sent."""

    host, up, waiting = "h1", True, 0

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        self.sent.append(dict(header))


def told(agent: str, got: int = 0) -> dict[str, Any]:
    return {"session": {"agent": agent, "got": got}}


def test_another_agent_gets_messages_with_numbers_from_1() -> None:
    line = Line()
    cells = HostCells(line, {})  # type: ignore[arg-type]
    cells.hello()
    cells.connected(told("first"))
    cells.message("0.0", {"do": "cell"})
    cells.hello()
    cells.message("0.0", {"do": "leave"})  # for a rank that has ended with the first agent
    cells.connected(told("second"))
    cells.message("0.0.1", {"do": "cell"})
    assert [(each["process"], each["number"]) for each in line.sent] == [("0.0", 1), ("0.0.1", 1)]


def test_files_that_cannot_be_read_are_told_as_such(tmp_path: Path) -> None:
    cells = HostCells(Line(), {})  # type: ignore[arg-type]
    cells.hello()
    cells.connected(told("agent"))
    cells.stage("cell", [Shipped("payload.pkl", 1, tmp_path / "gone")], [0])
    cells.advance()
    assert cells.ready == {"cell": "the cell's folder here cannot be read: No such file or directory"}


def test_late_output_of_a_removed_cell_makes_no_folder(folder: RunFolder) -> None:
    files = HostFiles(Arrivals(folder), {"cell": Arrivals(folder)}, Line())  # type: ignore[arg-type]
    header = {"is": "chunk", "cell": "cell", "path": "attempts/0/ranks/0/output.log"}
    files.take({**header, "offset": 0}, b"one\n", 0.0, is_last=False)
    assert folder.rank(0, 0).output.read_bytes() == b"one\n"
    shutil.rmtree(folder.path)
    files.take({**header, "offset": 4}, b"two\n", 0.0, is_last=False)
    checkpoint = {"is": "checkpoint", "cell": "cell", "path": "file", "size": 0, "time": 0.0, "offset": 0}
    files.take(checkpoint, b"", 0.0, is_last=False)
    assert not folder.path.exists()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[SessionRanks]:
    with selectors.DefaultSelector() as selector:
        made = SessionRanks(str(tmp_path), Children(str(tmp_path)), selector)
        yield made
        made._listener.close()


def test_payloads_of_cells_that_are_not_followed_go_and_checkpoints_that_may_be_missing_stay(
    agent: SessionRanks, tmp_path: Path
) -> None:
    cells = [f"cell{number}" for number in range(FOLLOWED + 2)]
    for cell in cells:
        for path in ("payload.pkl", "on-start-1.pkl", "on-start-1.buffers", "checkpoints/file"):
            agent.obey({"do": "file", "cell": cell, "path": path, "offset": 0}, b"content")
    left = {cell: sorted(path.name for path in (tmp_path / "cells" / cell).iterdir()) for cell in cells}
    assert [left[cell] for cell in cells[:2]] == [["checkpoints"]] * 2
    assert len(left[cells[2]]) == 4
    agent.restart({"agent": "", "heard": 0, "cells": {cells[-1]: {}}})
    left = {cell: sorted(path.name for path in (tmp_path / "cells" / cell).iterdir()) for cell in cells}
    assert left[cells[2]] == ["checkpoints"]
    assert len(left[cells[-1]]) == 4


def test_the_state_of_a_killed_rank_on_an_absent_host_is_the_same_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise each look would be news for the session's supervisor, thousands of times a second."""

    class Absent:
        name, away, processes = "h1", time.time(), {"0.0": HostProcess("0.0", "h1", 0, 0, pid=1)}
        cells = HostCells(Line(), {})  # type: ignore[arg-type]

    class Hosts:
        members, elastic = (Absent(),), False

        def ask_for_ports(self, counts: Mapping[str, int]) -> None:
            pass

    monkeypatch.setattr(hosted_session, "_KILL_AWAY_S", -1.0)
    ranks = HostedSession(Hosts(), [RankState(0)], [Start("h1", (), {}, 0)], {})  # type: ignore[arg-type]
    ranks.obey({"do": "kill", "rank": 0})
    first, second = (ranks._state(RankState(0)) for _ in range(2))
    assert first.state is State.LOST
    assert first == second


def slow(
    source: socket.socket, target: socket.socket, is_slow: threading.Event, passed: Callable[[int], object]
) -> None:
    with contextlib.suppress(OSError):  # the other end has left
        while data := source.recv(16_384):
            if is_slow.is_set():
                time.sleep(len(data) / LINE)
                passed(len(data))
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def test_files_arrive_over_a_slow_line_without_the_loss_of_the_connection(
    folder: RunFolder, tmp_path: Path, wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[int] = []
    # The link's time is that of the line. On a busy machine, a silence is no longer than the line makes it.
    clock = SimpleNamespace(monotonic=lambda: sum(passed) / LINE)
    monkeypatch.setattr(stream, "time", clock)
    monkeypatch.setattr(stream, "_SILENT_S", 1.5)
    monkeypatch.setattr(StreamLink, "ping_every_s", 0.3)
    is_slow = threading.Event()
    opened: list[subprocess.Popen[bytes]] = []
    threads: list[threading.Thread] = []
    ends: list[socket.socket] = []

    def dial(host: str) -> Pipe:
        ours, far = socket.socketpair()
        near, theirs = socket.socketpair()
        argv = [sys.executable, "-I", "-c", stage_program(), "word"]
        opened.append(subprocess.Popen(argv, stdin=theirs.fileno(), stdout=theirs.fileno()))
        theirs.close()
        for source, target in ((far, near), (near, far)):
            event = is_slow if source is far else threading.Event()
            args = (source, target, event, passed.append)
            threads.append(threading.Thread(target=slow, args=args, daemon=True))
            threads[-1].start()
        ends.extend((far, near))
        return Pipe.of_socket(ours, "word")

    job = Job(folder.id, "ssh", 1, 0.0, "/tmp", sys.executable, "1", session={"name": "main"})
    settings = HostSettings(remote_dir=str(tmp_path / "there"))
    fleet = Fleet(job, folder, [{"name": "far", "slots": 1}], settings, by_pipe(dial))
    fleet.connect()
    try:
        is_slow.set()
        payload = tmp_path / "payload.pkl"
        payload.write_bytes(bytes(1_500_000))
        cells = fleet.members[0].cells
        cells.stage("cell", [Shipped("payload.pkl", 1_500_000, payload)], [0])

        def is_ready() -> bool:
            fleet.wait(0.05)
            fleet.poll()
            return bool(cells.ready)

        wait_for(is_ready, "the files on the host")
        assert (cells.ready, len(opened)) == ({"cell": None}, 1)
        assert sum(passed) > 1_500_000
    finally:
        is_slow.clear()
        fleet.release()
    assert [wait_for_exit(program) for program in opened] == [0]
    for thread in threads:
        thread.join(10)
    for end in ends:
        end.close()
