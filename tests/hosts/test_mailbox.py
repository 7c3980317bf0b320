"""Hosts that are reached through a store alone, with every fault of a store."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist import folder as folders
from jupyter_dist.agent import mailbox_relay
from jupyter_dist.agent.frames import Frames, encode
from jupyter_dist.agent.mailbox_objects import object_name, sign
from jupyter_dist.agent.stores.folder_store import FolderStore
from jupyter_dist.conformance.deadlines import PATIENCE_S, Deadline
from jupyter_dist.folder import RunFolder
from jupyter_dist.hosts.arrivals import Arrivals
from jupyter_dist.hosts.fleet import Fleet
from jupyter_dist.hosts.links.mailbox import Mailbox, run_key
from jupyter_dist.hosts.settings import HostSettings
from jupyter_dist.hosts.start import Start
from jupyter_dist.job import Job
from tests.rigs.mailbox.faulty_store import FaultyStore
from tests.rigs.stopwatch import Stopwatch, WaitFor

RUN = "20261120-120000-abcd12"
HOST = [{"name": "far", "slots": 2}]
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "some", "AWS_SECRET_ACCESS_KEY": "body"}


class Far:
    """A courier as a process of this machine, its mailbox, and a fleet of this one host."""

    def __init__(self, url: str, folder: RunFolder, there: Path, *, grace_s: float = 60) -> None:
        self.folder, self.there = folder, there
        self.url, self.grace_s = url, grace_s
        self.renew()
        argv, env = self.mailbox.host_program(0, sys.executable)
        env |= {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        self.said = (there.parent / "courier.log").open("w+b")
        self.courier = subprocess.Popen(
            argv,
            env={**env, "PATH": os.environ["PATH"], "HOME": str(there)},
            stdout=self.said,
            stderr=self.said,
        )
        self.fleet.begin()

    def renew(self, *, resume: bool = False) -> None:
        """What another supervisor has."""
        job = Job(self.folder.id, "tents", 1, 0.0, "/tmp", sys.executable, "1")
        self.mailbox = Mailbox(self.url, self.folder)
        where = HostSettings(remote_dir=str(self.there), grace_s=self.grace_s)
        self.fleet = Fleet(job, self.folder, HOST, where, self.mailbox.reach)
        if resume:
            self.fleet.expect(0, [Start("far", (), {}, rank=0)])
            self.fleet.begin(resume=True)

    def until(self, wait_for: WaitFor, true: Callable[[], Any], what: str) -> Any:
        def look() -> Any:
            state = self.fleet.poll()
            assert state.failed is None, state.failed
            return true()

        return wait_for(look, what)

    def start(self, wait_for: WaitFor, *argv: str) -> None:
        self.until(wait_for, lambda: self.fleet.poll().ready, "the host")
        self.fleet.start(0, [Start("far", argv, {}, rank=0)])

    @property
    def log(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self.folder.rank(0, 0).output.read_text()
        return ""

    @property
    def printed(self) -> str:
        """The log on the host itself."""
        with contextlib.suppress(FileNotFoundError):
            return Path(self.fleet.facts("far").stage, "run/attempts/0/ranks/0/output.log").read_text()
        return ""

    def is_over(self) -> bool:
        processes = self.fleet.poll().processes
        return bool(processes) and all(process.over for process in processes)

    def close(self) -> None:
        self.fleet.release()
        self.mailbox.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.courier.wait(10)
        self.courier.kill()
        self.courier.wait()
        self.said.close()


@pytest.fixture
def folder(own_folders: Path) -> RunFolder:
    made = folders.create(own_folders, RUN, 1)
    made.payload.write_bytes(b"a payload" * 1000)
    folders.write_json(made.job, {})
    return made


@pytest.fixture
def far(folder: RunFolder, tmp_path: Path) -> Iterator[Far]:
    made = Far(f"file://{tmp_path}/the store", folder, tmp_path / "far")
    yield made
    made.close()


def test_a_process_far_away(far: Far, folder: RunFolder, tmp_path: Path, wait_for: WaitFor) -> None:
    far.start(wait_for, "sh", "-c", "echo hello; exit 3")
    far.until(wait_for, far.is_over, "its end")
    (process,) = far.fleet.poll().processes
    assert (process.exit_code, process.told, process.asked) == (3, False, False)
    assert far.log == "hello\n"
    assert (Path(far.fleet.facts("far").stage) / "run/payload.pkl").read_bytes() == b"a payload" * 1000
    far.fleet.release()
    far.mailbox.close()
    assert far.courier.wait(20) == 0
    assert os.listdir(tmp_path / "far") == []
    # The code stays, for the next run: once for its content.
    left = [path for path in (tmp_path / "the store").rglob("*") if path.is_file()]
    assert [path.parent.name for path in left] == ["code"]


def test_lines_come_within_two_seconds_and_objects_are_few(
    far: Far, tmp_path: Path, wait_for: WaitFor
) -> None:
    """One line in a while, as a quiet run prints: not more than one object a second."""
    far.start(wait_for, "sh", "-c", "for i in 1 2 3 4 5; do sleep 1.7; echo $i; done; sleep 600")
    printed: dict[str, Stopwatch] = {}
    seen: dict[str, bool] = {}
    names: set[str] = set()
    first: int | None = None
    up = tmp_path / "the store" / RUN / "up"
    began, deadline = time.monotonic(), Deadline()
    while len(seen) < 5:
        assert not deadline.passed(), seen
        far.fleet.poll()
        for line in far.printed.split():
            printed.setdefault(line, Stopwatch())
        for line in printed.keys() & set(far.log.split()) - seen.keys():
            seen[line] = printed[line].under(2)
        if time.monotonic() > began + 6:  # what was asked for is answered without delay
            if first is None:
                first = far.mailbox._links[0]._inbox.next  # the driver removes earlier objects late
            there = [name for name in os.listdir(up) if not name.startswith(".")]  # others are being written
            names |= {name for name in there if int(name.rpartition("-")[2]) >= first}
        time.sleep(0.02)
    assert all(seen.values()), seen
    assert len(names) <= time.monotonic() - began - 6 + 2


def test_a_lost_object_is_asked_for_again(far: Far, tmp_path: Path, wait_for: WaitFor) -> None:
    lines = 400
    up = tmp_path / "the store" / RUN / "up"
    far.start(wait_for, "sh", "-c", f"for i in $(seq {lines}); do echo line $i; sleep 0.02; done")
    far.until(wait_for, lambda: "line 20\n" in far.log, "some lines")
    # Stop taking them, and lose one of those that lie there.
    wait_for(lambda: len(os.listdir(up)) >= 1, "an object")
    lost = 0
    end = time.monotonic() + 20
    while not lost and time.monotonic() < end:
        for name in os.listdir(up):
            if name.startswith("."):
                continue  # it is being written
            with contextlib.suppress(FileNotFoundError):
                if int(name.rpartition("-")[2]) >= far.mailbox._links[0]._inbox.next:
                    os.unlink(up / name)
                    lost += 1
    assert lost
    far.until(wait_for, far.is_over, "its end")
    assert far.log == "".join(f"line {i + 1}\n" for i in range(lines))


def test_what_is_not_sealed_with_the_run_s_key_is_not_read(
    far: Far, tmp_path: Path, wait_for: WaitFor
) -> None:
    far.start(wait_for, "sh", "-c", "echo mine; sleep 3; echo again; sleep 600")
    far.until(wait_for, lambda: far.log == "mine\n", "the first line")
    link = far.mailbox._links[0]
    name = object_name(RUN, "up", 0, link.session, link._inbox.next)
    chunk = {"is": "chunk", "path": "attempts/0/ranks/0/result.pkl", "offset": 0, "size": 1, "time": 0}
    frame = encode({**chunk, "is": "whole"}, 1) + b"!"
    (tmp_path / "the store" / name).write_bytes(sign(b"another key", name, frame))
    far.until(wait_for, lambda: far.log == "mine\nagain\n", "the second line")
    assert not far.folder.rank(0, 0).result.exists()


def test_the_key_lies_nowhere_but_here(far: Far, tmp_path: Path, wait_for: WaitFor) -> None:
    far.start(wait_for, "sh", "-c", "env; sleep 600")
    far.until(wait_for, lambda: "PATH=" in far.log, "the environment of a rank")
    key = run_key(far.folder)
    assert key.hex() not in far.log
    for place in ("the store", "far"):
        for path in (tmp_path / place).rglob("*"):
            if path.is_file():
                data = path.read_bytes()
                assert key not in data
                assert key.hex().encode() not in data
    assert (far.folder.path / ".key").stat().st_mode & 0o777 == 0o600


def test_a_courier_that_is_ended_ends_its_ranks_and_tells(far: Far, wait_for: WaitFor) -> None:
    far.start(wait_for, "sh", "-c", "trap 'echo told; exit 7' TERM; echo up; while :; do sleep 0.05; done")
    far.until(wait_for, lambda: far.log == "up\n", "the first line")
    far.courier.send_signal(signal.SIGTERM)
    far.until(wait_for, far.is_over, "its end")
    (process,) = far.fleet.poll().processes
    assert (process.exit_code, process.told, process.place_gone) == (7, True, True)
    assert far.log == "up\ntold\n"
    assert far.courier.wait(20) == 1


def test_a_host_that_has_ended_is_given_up_and_what_is_missing_is_said(
    far: Far, tmp_path: Path, wait_for: WaitFor, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one case in which bytes are lost: an object, and with it the host that could say it again."""
    dashes = "-" * 80
    far.start(wait_for, "sh", "-c", f"for i in $(seq 600); do echo line $i {dashes}; sleep 0.05; done")
    far.until(wait_for, lambda: "line 9 " in far.log, "some lines")
    far.mailbox._closing = True  # nobody takes what comes now
    far.mailbox._thread.join()  # type: ignore[union-attr]
    up = tmp_path / "the store" / RUN / "up"

    def there() -> list[str]:
        number = far.mailbox._links[0]._inbox.next
        return sorted(n for n in os.listdir(up) if n[0] != "." and int(n.rpartition("-")[2]) >= number)

    def with_lines() -> list[str]:
        return [name for name in there() if b"line " in (up / name).read_bytes()]

    # An object without lines, such as an answer to a ping, would leave no hole.
    wait_for(lambda: len(with_lines()) >= 3, "three objects with lines")
    os.unlink(up / with_lines()[0])
    far.courier.kill()
    far.fleet.give_up({"far": "its machine was taken away"})
    wait_for(lambda: far.fleet.poll() and far.is_over(), "the end")
    (process,) = far.fleet.poll().processes
    assert process.lost == "host far was lost: its machine was taken away"
    lines = far.log.splitlines()
    (hole,) = [place for place, line in enumerate(lines) if "bytes are missing here" in line]
    numbers = [int(line.split()[1]) for line in lines[:hole] if line.startswith("line ")]
    assert numbers == list(range(1, len(numbers) + 1))
    assert any(line.startswith("line ") for line in lines[hole + 2 :])
    assert "bytes of its ranks' files were lost on the way" in capsys.readouterr().out


def test_a_hole_keeps_the_offsets_of_what_comes_after(folder: RunFolder) -> None:
    path = "attempts/0/ranks/0/output.log"

    def chunk(offset: int, data: bytes) -> tuple[dict[str, Any], bytes]:
        return {"is": "chunk", "path": path, "offset": offset}, data

    for hole in (1, 5, 200):
        arrivals = Arrivals(folder)
        folder.rank(0, 0).output.unlink(missing_ok=True)
        arrivals.take(*chunk(0, b"abc"), 0.0)
        frames = [chunk(3 + hole, b"later\n"), chunk(1, b"bc")]
        assert arrivals.tear(frames, 0.0) == hole
        data = folder.rank(0, 0).output.read_bytes()
        assert (data[:3], data[3 + hole :], len(data)) == (b"abc", b"later\n", 9 + hole)
    assert b"200 bytes are missing here" in data


def test_what_nobody_takes_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_DIST_LIFELINE", "")  # so that what it sets below is gone after the test
    for name, value in {"MOST_BYTES": 4000, "_COUNT_EVERY_BYTES": 8000, "_MOST_LEFT_BYTES": 40_000}.items():
        monkeypatch.setattr(mailbox_relay, name, value)
    here = mailbox_relay.MailboxRelay(FolderStore(str(tmp_path)), RUN, b"key", 0)
    monkeypatch.setenv("JUPYTER_DIST_LIFELINE", "")  # which it has set, for its agent
    ours, agent = socket.socketpair()
    here._agent, here._session = ours, "00"
    up = tmp_path / RUN / "up"

    def written(turns: int) -> int:
        for _ in range(turns):
            with contextlib.suppress(BlockingIOError):
                while agent.send(encode({"is": "chunk"}, 1000) + bytes(1000)):
                    pass
            here._turn()
        return len(os.listdir(up))

    with ours, agent:
        for side in (ours, agent):
            side.setblocking(False)
        assert written(60) < 20
        full = written(5)
        assert written(20) == full
        for path in up.iterdir():
            path.unlink()
        assert 0 < written(60) < 20
    here.give_up()


def test_a_lost_request_ends_the_session_so_that_the_driver_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next request, such as a ping, shows the hole. Until then nobody can see it."""
    monkeypatch.setenv("JUPYTER_DIST_LIFELINE", "")  # so that what it sets below is gone after the test
    store, key = FolderStore(str(tmp_path)), b"key"
    here = mailbox_relay.MailboxRelay(store, RUN, key, 0)
    ours, agent = socket.socketpair()
    here._begin("01")
    here._agent, here._wish = ours, {}
    agent.settimeout(PATIENCE_S)

    def request(number: int) -> None:
        name = object_name(RUN, "down", 0, "01", number)
        store.put(name, sign(key, name, encode({"do": "ping", "number": number})))

    with ours, agent:
        request(0)
        here._look()
        request(2)
        here._look()
        assert here._agent is ours, "a store may list an object later than a newer one"
        monkeypatch.setattr(mailbox_relay, "HOLE_S", 0.0)
        for _ in range(3):
            here._look()
        ((header, _),) = Frames().feed(bytes(here._waiting))
        assert header["is"] == "closed"
        assert "a request has not arrived" in header["why"]
        assert agent.recv(1) == b"", "the agent keeps its ranks, and waits for the next session"
    here.give_up()


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyStore]:
    with FaultyStore() as store:
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{store.port}")
        yield store


@pytest.mark.parametrize("away_s", [pytest.param(0, id="briefly"), pytest.param(20, id="20 s")])
def test_a_store_that_is_away(
    faulty: FaultyStore, folder: RunFolder, tmp_path: Path, wait_for: WaitFor, away_s: float
) -> None:
    """And is slow, forgetful and busy before and after: every line is there once, and in order."""
    far = Far("s3://mail/runs", folder, tmp_path / "far")
    go = tmp_path / "go"
    try:
        counts = f"i=0; until [ -e '{go}' ]; do i=$((i+1)); echo line $i; sleep 0.02; done; echo end $i"
        far.start(wait_for, "sh", "-c", counts)
        far.until(wait_for, lambda: "line 20\n" in far.log and far.mailbox.trouble is None, "some lines")
        faulty.away()
        back_at, before = time.monotonic() + away_s, tries(tmp_path)

        def cut_off() -> bool:
            far.fleet.poll()
            noticed = far.mailbox.trouble is not None and tries(tmp_path) >= before + 3
            return noticed and time.monotonic() >= back_at

        wait_for(cut_off, "both sides to notice that the store is away")
        meanwhile = int(far.printed.split()[-1])
        faulty.back()
        later = f"line {meanwhile + 20}\n"
        far.until(wait_for, lambda: later in far.log and far.mailbox.trouble is None, "all lines, and more")
        go.touch()
        far.until(wait_for, far.is_over, "its end")
        *lines, end = far.log.splitlines()
        assert lines == [f"line {i + 1}" for i in range(len(lines))]
        assert end == f"end {len(lines)}"
        assert faulty.largest < 6 << 20
    finally:
        faulty.back()
        wait_for(faulty.settle, "what comes late")
        far.fleet.release()
        far.courier.wait(20)
        faulty.busy = 0.5  # what the run leaves is removed from a store that does not always do so
        far.close()
    assert [key for key in faulty.names() if "/code/" not in key] == []


def tries(folder: Path) -> int:
    """How often the courier could not reach the store."""
    return (folder / "courier.log").read_text().count("; trying again")


def test_drivers_come_and_go(
    faulty: FaultyStore, folder: RunFolder, tmp_path: Path, wait_for: WaitFor
) -> None:
    """As after the deaths of supervisors, at random moments."""
    far = Far("s3://mail/runs", folder, tmp_path / "far")
    dice = random.Random(5)
    try:
        lines = 1200
        far.start(wait_for, "sh", "-c", f"for i in $(seq {lines}); do echo line $i; sleep 0.02; done")
        far.until(wait_for, lambda: "line 10\n" in far.log, "some lines")
        for _ in range(8):
            end = time.monotonic() + dice.uniform(0.1, 4)
            while time.monotonic() < end:
                far.fleet.poll()
                time.sleep(0.02)
            far.mailbox._closing = True
            far.renew(resume=True)
        far.until(wait_for, far.is_over, "its end")
        assert far.log == "".join(f"line {i + 1}\n" for i in range(lines))
        assert json.dumps([process.exit_code for process in far.fleet.poll().processes]) == "[0]"
    finally:
        far.close()
