"""The agent of a host, spoken to over its socket: starts, sends, survives drivers, leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from jupyter_dist.agent import stage_program
from jupyter_dist.agent.frames import Frame, FrameError, Frames, encode
from jupyter_dist.agent.tail import Tails
from jupyter_dist.conformance.deadlines import wait_for_exit
from jupyter_dist.record.reader import start_ticks
from jupyter_dist.worker import layout
from jupyter_dist.worker.output.time_index import RECORD
from tests.rigs.gates import Gates
from tests.rigs.stopwatch import WaitFor

ROOT = Path(__file__).parents[2]


class Driver:
    """One connection to an agent, and the files that have come over it."""

    def __init__(self, stage: Path, files: dict[str, bytearray] | None = None) -> None:
        self.files = {} if files is None else files
        self.told: list[dict[str, Any]] = []
        self._frames = Frames()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(20)
        before = os.getcwd()
        os.chdir(stage)  # a socket's path must be short
        try:
            self._socket.connect("agent.sock")
        finally:
            os.chdir(before)
        of_session = {"agent": "", "heard": 0, "cells": {}}
        self.say(do="hello", have={path: len(data) for path, data in self.files.items()}, session=of_session)

    def say(self, **header: Any) -> None:
        self._socket.sendall(encode(header))

    def start(self, *argv: str, rank: int | None = 0, env: dict[str, str] | None = None) -> None:
        wish = {"id": f"0.{rank}", "attempt": 0, "rank": rank, "argv": argv, "env": env or {}}
        self.say(do="start", processes=[{**wish, "log": "launcher-here.log"}])

    def release(self) -> None:
        self.say(do="release")
        self.until("sent")
        self.say(do="remove", keep_run=False)
        self.until("released")

    def read(self) -> bool:
        """Take what comes next; False at the connection's end."""
        data = self._socket.recv(1 << 16)
        for header, body in self._frames.feed(data):
            if header["is"] in ("chunk", "whole"):
                held = self.files.setdefault(header["path"], bytearray())
                if header["is"] == "whole" and header["offset"] == 0:
                    held.clear()
                assert header["offset"] == len(held), header
                held += body
            else:
                self.told.append(header)
        return bool(data)

    def until(self, kind: str) -> dict[str, Any]:
        """The next message of a kind."""
        while True:
            for place, header in enumerate(self.told):
                if header["is"] == kind:
                    return self.told.pop(place)
            assert self.read(), f"the agent hung up before {kind!r}"

    def close(self) -> None:
        self._socket.close()


class Clock:
    """The clock of an agent with this program: a number in a file, which is replaced as a whole."""

    def __init__(self, folder: Path) -> None:
        self._file, self._now = folder / "clock", 100.0
        self.program = _OWN_CLOCK.format(clock=str(self._file))
        self.pass_by(0)

    def pass_by(self, seconds: float) -> None:
        self._now += seconds
        part = self._file.with_suffix(".part")
        part.write_text(str(self._now))
        part.rename(self._file)


_OWN_CLOCK = """
import sys, types
from jupyter_dist.agent import __main__ as agent
def monotonic():
    with open({clock!r}) as file:
        return float(file.read())
agent.time = types.SimpleNamespace(**{{**vars(agent.time), "monotonic": monotonic}})
agent.main(sys.argv[1], int(sys.argv[2]))
"""


class Place:
    """A stage folder with its agent."""

    def __init__(self, stage: Path) -> None:
        self.stage = stage
        self.process: subprocess.Popen[bytes] | None = None
        self.drivers: list[Driver] = []
        (stage / "code").mkdir(parents=True)
        (stage / "run" / "attempts").mkdir(parents=True)

    def serve(
        self,
        grace_s: float = 60,
        idle_s: float | None = None,
        lifeline: int | None = None,
        program: str | None = None,
        stop_grace_s: float | None = None,
        session: bool = False,
    ) -> None:
        """`program`: the agent's, where it is not the one that hosts have."""
        told = {"grace_s": grace_s, "idle_s": idle_s, "stop_grace_s": stop_grace_s, "session": session}
        (self.stage / "agent.json").write_text(json.dumps(told))
        read, write = os.pipe()
        env = {**os.environ, "JUPYTER_DIST_STAGE": str(self.stage)}
        how = ["-m", "jupyter_dist.agent"] if program is None else ["-c", program]
        argv = [sys.executable, *how, str(self.stage), str(write)]
        passed = [write] if lifeline is None else [write, lifeline]
        if lifeline is not None:
            env["JUPYTER_DIST_LIFELINE"] = str(lifeline)
        self.process = subprocess.Popen(argv, cwd=ROOT, env=env, pass_fds=passed, start_new_session=True)
        os.close(write)
        assert os.read(read, 1) == b"+"
        os.close(read)

    def driver(self, files: dict[str, bytearray] | None = None) -> Driver:
        self.drivers.append(Driver(self.stage, files))
        return self.drivers[-1]

    def own(self) -> list[int]:
        """Processes that were started for this stage."""
        marker = f"JUPYTER_DIST_STAGE={self.stage}".encode()
        found = []
        for entry in os.listdir("/proc"):
            # Processes come and go while we look.
            with contextlib.suppress(OSError):
                if entry.isdigit() and marker in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                    found.append(int(entry))
        return [pid for pid in found if start_ticks(pid) is not None]


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path)


@pytest.fixture
def place(tmp_path: Path, wait_for: WaitFor) -> Iterator[Place]:
    made = Place(tmp_path / "a run" / "0")
    yield made
    for driver in made.drivers:
        driver.close()
    left = made.own()
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if made.process is not None:
        made.process.kill()
        made.process.wait()


SLEEP = ("sh", "-c", "echo up; sleep 600 & sleep 600")


HEADERS = some.dictionaries(some.text(max_size=9), some.integers(), max_size=3)
FRAMES = some.lists(
    some.tuples(
        some.dictionaries(some.text(max_size=9), some.integers(), max_size=3), some.binary(max_size=99)
    ),
    max_size=9,
)


@settings(max_examples=50)
@given(FRAMES, some.integers(1, 99))
def test_frames_survive_being_cut_anywhere(frames: list[Frame], step: int) -> None:
    stream = b"".join(encode(header, len(body)) + body for header, body in frames)
    cutter = Frames()
    pieces = [stream[start : start + step] for start in range(0, len(stream), step)]
    assert [frame for piece in pieces for frame in cutter.feed(piece)] == frames


JUNK = (b"Welcome to this host!\n", b"\0\0\0\2" + bytes(8) + b"[]", b"\0\0\0\1" + bytes(8) + b"x")


@pytest.mark.parametrize("junk", JUNK)
def test_what_is_no_frame_is_refused(junk: bytes) -> None:
    with pytest.raises(FrameError):
        Frames().feed(junk)


def test_tails_send_what_is_new_and_whole_files_first(tmp_path: Path) -> None:
    rank = tmp_path / "attempts" / "0" / "ranks" / "0"
    rank.mkdir(parents=True)
    (rank / "output.log").write_bytes(b"one\n")
    (rank / "result.pkl").write_bytes(b"pickle")
    (rank / "result.buffers").write_bytes(b"b" * 200_000)
    (rank / ".result.pkl.12").write_bytes(b"half")
    (rank / "checkpoints").mkdir()
    tails = Tails(str(tmp_path))
    tails.restart({"attempts/0/ranks/0/output.log": 1})
    pieces = [(header["path"].rpartition("/")[2], header["offset"], body) for header, body in tails.pieces()]
    names = [name for name, _, _ in pieces]
    assert set(names) == {"output.log", "result.pkl", "result.buffers"}
    assert names.index("result.buffers") < names.index("result.pkl") < names.index("output.log")
    assert b"".join(body for name, _, body in pieces if name == "result.buffers") == b"b" * 200_000
    assert ("output.log", 1, b"ne\n") in pieces
    assert list(tails.pieces()) == []
    with (rank / "output.log").open("ab") as file:
        file.write(b"two\n")
    (rank / "result.pkl").write_bytes(b"another")
    assert [body for _, body in tails.rest("attempts/0/ranks/0")] == [b"another", b"two\n"]


def test_it_tells_of_its_host_and_sends_all_before_the_end(place: Place) -> None:
    place.serve()
    driver = place.driver()
    facts = driver.until("facts")
    assert facts["hostname"] == socket.gethostname()
    assert facts["python"] == sys.executable
    assert facts["cores"] >= 1
    driver.start("sh", "-c", 'echo "$GREETING" "$PWD"; exit 3', env={"GREETING": "hello"})
    assert driver.until("started")["id"] == "0.0"
    end = driver.until("ended")["end"]
    assert (end["exit_code"], end["signal"], end["told"]) == (3, None, False)
    assert end["peak_memory_bytes"] > 0
    assert driver.files["attempts/0/ranks/0/output.log"].decode() == f"hello {place.stage}/code\n"
    driver.say(do="ports", count=3)
    assert len(set(driver.until("ports")["ports"])) == 3
    driver.say(do="ping", ping=7)
    assert abs(driver.until("pong")["time"] - time.time()) < 5
    driver.release()
    assert not place.stage.exists()


def test_a_launcher_has_a_log_of_its_own(place: Place) -> None:
    place.serve()
    driver = place.driver()
    driver.start("echo", "launched", rank=None)
    assert driver.until("ended")["rank"] is None
    assert driver.files["attempts/0/launcher-here.log"] == b"launched\n"


def test_what_cannot_be_started_has_ended_with_an_error(place: Place) -> None:
    place.serve()
    driver = place.driver()
    driver.start("/no/such/program")
    assert "/no/such/program" in driver.until("ended")["end"]["error"]


def test_drivers_come_and_go_in_a_flood_and_nothing_is_lost_or_doubled(place: Place) -> None:
    place.serve()
    lines = 200_000
    driver = place.driver()
    driver.start("seq", str(lines))
    path = "attempts/0/ranks/0/output.log"
    for size in (1, 100_000, 500_000):
        while len(driver.files.get(path, b"")) < size:
            assert driver.read()
        driver.close()
        driver = place.driver(driver.files)
    driver.start("seq", str(lines))  # said again, as after a cut: it is not started again
    driver.until("ended")
    assert driver.files[path].split() == [str(i + 1).encode() for i in range(lines)]
    driver.close()
    driver = place.driver(driver.files)
    assert driver.until("facts")["known"] == ["0.0"]
    assert driver.until("ended")["id"] == "0.0"


def test_the_newest_driver_is_the_one_that_is_there(place: Place) -> None:
    place.serve()
    old = place.driver()
    old.until("facts")
    new = place.driver()
    new.until("facts")
    with pytest.raises((AssertionError, ConnectionError)):
        old.until("pong")


def test_stop_and_kill(place: Place) -> None:
    place.serve()
    driver = place.driver()
    driver.start("sh", "-c", "trap 'echo no' TERM; echo up; while :; do sleep 0.05; done")
    while b"up" not in driver.files.get("attempts/0/ranks/0/output.log", b""):
        assert driver.read()
    driver.say(do="signal", kill=False)
    while b"no" not in driver.files["attempts/0/ranks/0/output.log"]:
        assert driver.read()
    driver.say(do="signal", kill=True)
    end = driver.until("ended")["end"]
    assert (end["signal"], end["told"]) == (signal.SIGKILL, True)


def test_an_interrupt_arrives_once_though_it_is_repeated_and_not_at_a_launcher(place: Place) -> None:
    """A driver repeats its requests after a lost connection. A rank that saves must not be interrupted."""
    place.serve()
    driver = place.driver()
    rank, launcher = "attempts/0/ranks/0/output.log", "attempts/0/launcher-here.log"
    events = f"attempts/0/ranks/0/{layout.EVENTS}"
    program = (
        "import os, signal, time\n"
        "for name in ('SIGINT', 'SIGTERM'):  # `print` of one must not run in that of the other\n"
        "    signal.signal(getattr(signal, name), lambda number, _: os.write(1, b'%d\\n' % number))\n"
        # As a rank does when it has begun.
        f"open(os.path.join(os.environ['JUPYTER_DIST_RUN'], {events!r}), 'a')\n"
        "print('up', flush=True)\n"
        "while True: time.sleep(0.05)"
    )
    for number in (0, None):
        driver.start(sys.executable, "-c", program, rank=number)
    while not (b"up" in driver.files.get(rank, b"") and b"up" in driver.files.get(launcher, b"")):
        assert driver.read()
    driver.say(do="signal", kill=False, interrupt=True)
    while b"2" not in driver.files[rank]:
        assert driver.read()
    for _ in range(2):
        driver.say(do="signal", kill=False, interrupt=True)
    driver.say(do="signal", kill=False, interrupt=False, only=["0.0"])
    while b"15" not in driver.files[rank]:
        assert driver.read()
    assert driver.files[rank].split() == [b"up", b"2", b"15"]
    assert driver.files[launcher].split() == [b"up"]
    driver.say(do="signal", kill=True)
    assert {driver.until("ended")["end"]["told"] for _ in range(2)} == {True}


@pytest.mark.parametrize("limit", [None, 0.3])
def test_ranks_with_a_handler_have_longer_after_the_end_of_a_lifeline(
    limit: float | None, place: Place, wait_for: WaitFor
) -> None:
    """6 s is more than the time of other ranks. --stop-grace overrides it."""
    read, write = os.pipe()
    place.serve(grace_s=600, lifeline=read, stop_grace_s=limit)
    os.close(read)
    driver = place.driver()
    saves = "trap 'sleep 6; echo saved; exit 0' TERM; : > ${PWD%/code}/run/attempts/0/ranks/0/sigterm.handler"
    driver.start("sh", "-c", f"{saves}; echo up; while :; do sleep 0.05; done")
    path = "attempts/0/ranks/0/output.log"
    while driver.files.get(path) != bytearray(b"up\n"):
        assert driver.read()
    os.close(write)
    assert driver.until("ended")["end"]["exit_code"] == (0 if limit is None else None)
    assert driver.files[path].split() == ([b"up", b"saved"] if limit is None else [b"up"])
    assert place.process is not None
    assert wait_for_exit(place.process) == 0
    wait_for(lambda: not place.own(), "the end of all it had started")


def test_a_killed_agent_takes_everything_along_and_the_next_one_tells(
    place: Place, wait_for: WaitFor
) -> None:
    place.serve()
    driver = place.driver()
    driver.start("sh", "-c", "setsid sleep 600 & echo up; sleep 600")
    path = "attempts/0/ranks/0/output.log"
    while driver.files.get(path) != bytearray(b"up\n"):
        assert driver.read()
    assert place.process is not None
    place.process.kill()
    place.process.wait()
    wait_for(lambda: not place.own(), "the end of all it had started")
    place.serve()
    driver = place.driver()
    assert driver.until("ended")["end"] == {"lost": True}
    assert driver.files[path] == b"up\n"


def test_without_a_driver_it_ends_its_ranks_and_itself(place: Place, clock: Clock, wait_for: WaitFor) -> None:
    place.serve(grace_s=10, program=clock.program)
    driver = place.driver()
    driver.start(*SLEEP)
    while driver.files.get("attempts/0/ranks/0/output.log") != bytearray(b"up\n"):
        assert driver.read()
    driver.close()
    clock.pass_by(11)
    assert place.process is not None
    assert wait_for_exit(place.process) == 0
    wait_for(lambda: not place.own(), "the end of all it had started")
    assert (place.stage / "run" / "attempts" / "0" / "ranks" / "0" / "output.log").read_text() == "up\n"


def test_without_a_driver_and_a_process_it_does_not_stay_for_the_whole_grace(
    place: Place, clock: Clock
) -> None:
    """As when a supervisor is killed while it sets hosts up."""
    place.serve(grace_s=600, idle_s=10, program=clock.program)
    driver = place.driver()
    driver.until("facts")
    driver.close()
    clock.pass_by(11)
    assert place.process is not None
    assert wait_for_exit(place.process) == 0
    assert not place.stage.exists()


@pytest.mark.parametrize("keeps", [False, True])
def test_what_a_driver_could_not_write_outlives_its_session(place: Place, clock: Clock, keeps: bool) -> None:
    """The user was told where it stays. The driver's machine may sleep longer than the grace."""
    checkpoint = place.stage / "cells" / "cell" / "checkpoints" / "model.pt"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_bytes(b"weights")
    place.serve(grace_s=10, program=clock.program, session=True)
    driver = place.driver()
    driver.until("facts")
    if keeps:
        driver.say(do="keep", cell="cell")
    driver.say(do="ports", count=1)
    driver.until("ports")
    driver.close()
    clock.pass_by(11)
    assert place.process is not None
    assert wait_for_exit(place.process) == 0
    assert checkpoint.exists() is keeps
    assert not (place.stage / "code").exists()


def test_the_end_of_its_lifeline_is_its_end_and_its_driver_hears_of_it(
    place: Place, wait_for: WaitFor
) -> None:
    read, write = os.pipe()
    place.serve(grace_s=600, lifeline=read)
    os.close(read)
    driver = place.driver()
    driver.start("sh", "-c", "trap 'echo told; exit 7' TERM; echo up; while :; do sleep 0.05; done")
    path = "attempts/0/ranks/0/output.log"
    while driver.files.get(path) != bytearray(b"up\n"):
        assert driver.read()
    os.close(write)
    end = driver.until("ended")["end"]
    assert (end["exit_code"], end["told"], end["place_gone"]) == (7, True, True)
    assert driver.files[path] == b"up\ntold\n"
    assert place.process is not None
    assert wait_for_exit(place.process) == 0
    wait_for(lambda: not place.own(), "the end of all it had started")


def test_times_tell_when_lines_were_printed_though_no_driver_was_there(
    place: Place, tmp_path: Path, wait_for: WaitFor
) -> None:
    place.serve()
    driver = place.driver()
    began, gates = time.time(), Gates(tmp_path)
    wait = f"while [ ! -e '{gates.path('two')}' ]; do sleep 0.02; done"
    driver.start("sh", "-c", f"echo one; {wait}; echo two; sleep 600")
    driver.until("started")
    driver.close()
    path = "attempts/0/ranks/0/times.idx"
    noted = place.stage / "run" / path
    wait_for(lambda: noted.exists() and noted.stat().st_size == 32, what="the time of the first line")
    between = time.time()
    gates.open("two")
    wait_for(lambda: noted.stat().st_size == 48, what="the time of the second line")
    over = time.time()
    driver = place.driver()
    while len(driver.files.get(path, b"")) < 48:
        assert driver.read()
    (none, _), (first, one), (second, two) = RECORD.iter_unpack(driver.files[path])
    assert (none, first, second) == (0, 4, 8)
    assert began <= one <= between <= two <= over, "and not when the driver came back"


def test_a_driver_that_pings_keeps_it(
    place: Place, clock: Clock, wait_for: WaitFor, capfd: pytest.CaptureFixture[str]
) -> None:
    place.serve(grace_s=10, program=clock.program)
    assert place.process is not None
    driver = place.driver()
    driver.start(*SLEEP)
    driver.until("started")
    for _ in range(5):
        clock.pass_by(9)
        driver.say(do="ping", ping=1)
        driver.until("pong")
    assert place.process.poll() is None
    # Without a ping the grace is over after the same seconds.
    clock.pass_by(11)
    wait_for(lambda: not driver.read(), what="the agent to hang up")
    wait_for(lambda: place.process.poll() is not None, what="the agent's end")
    assert "no driver for 10 s" in capfd.readouterr().out


def test_the_script_for_launchers(place: Place, tmp_path: Path) -> None:
    place.serve()
    driver = place.driver()
    awkward = 'it\'s $HOME "and" more'
    driver.say(do="prepare", env={"MINE": awkward}, python=sys.executable)
    driver.until("prepared")
    shown = subprocess.run(
        [place.stage / "start", "sh", "-c", 'printf "%s|%s" "$MINE" "$JUPYTER_DIST_RUN"'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == f"{awkward}|{place.stage}/run"


def test_a_stage_that_was_removed_under_a_log_is_gone_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a driver comes back for its agent again and again, for the whole time of grace."""
    monkeypatch.chdir("/")  # it goes there, and stays
    (tmp_path / "run" / "0").mkdir(parents=True)
    (tmp_path / "run" / "0" / "agent.log").touch()
    wish = {"dir": str(tmp_path), "run": "run", "node": 0, "mode": "resume", "grace_s": 60}
    with pytest.raises(stage_program.Refused, match=r"folder .* no longer exists") as refused:
        stage_program.prepare(wish, lambda *_: None, lambda _: None)
    assert refused.value.final
