"""Files on a disk that becomes full in the middle of a record, and has room again later."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.record.reader import parse_events
from jupyter_dist.worker.line_file import LineFile

# A limit of the file size does to one process what a full disk does to all.
_LIMIT = """
import errno, json, os, resource, signal, sys
from jupyter_dist.worker.line_file import LineFile, append_line, write_all
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = sys.argv[1]

def room(more=None):
    size = os.path.getsize(path) if os.path.exists(path) else 0
    most = resource.RLIM_INFINITY if more is None else size + more
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
"""


def limited(path: Path, code: str) -> tuple[Any, str]:
    """Run the code with `room`. Return the JSON that it prints, and its stderr."""
    command = [sys.executable, "-c", _LIMIT + code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout or "null"), done.stderr


@pytest.mark.parametrize("write", ["file.append(line)", "append_line(path, line)"])
def test_each_line_is_whole_or_its_writer_hears_of_it(
    tmp_path: Path, dice: random.Random, write: str
) -> None:
    path = tmp_path / "lines"
    plan = [(dice.choice([None, *range(60)]), dice.randrange(1, 50)) for _ in range(300)]
    written, _ = limited(
        path,
        f"""
file, written = LineFile(path), []
for number, (more, size) in enumerate({plan!r}):
    room(more)
    text = str(number).rjust(size, "x")
    line = text.encode() + b"\\n"
    try:
        {write}
    except OSError as error:
        assert error.errno == errno.EFBIG
    else:
        written.append(text)
room()
print(json.dumps(written))
""",
    )
    assert 0 < len(written) < len(plan)
    lines = path.read_text().split("\n")
    assert [line for line in lines if line in {*written}] == written


def test_a_file_whose_writer_was_killed_in_a_line_is_continued_on_the_next(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"a": 1}\n{"a": ')
    file = LineFile(path)
    file.append(b'{"a": 3}\n')
    file.close()
    assert path.read_bytes() == b'{"a": 1}\n{"a": \n{"a": 3}\n'


def test_a_pipe_gets_all_bytes_although_signals_interrupt_the_write(tmp_path: Path) -> None:
    code = """
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
write_all(1, json.dumps("x" * 5_000_000).encode())
signal.setitimer(signal.ITIMER_REAL, 0)
"""
    found, _ = limited(tmp_path / "none", code)
    assert found == "x" * 5_000_000


_TWO_LOOPS = """
import mmap, struct, sys, threading
from jupyter_dist.worker import api
from jupyter_dist.worker.output import events
sys.setswitchinterval(1e-5)
events.open_writer(sys.argv[1])
with open(sys.argv[2], "r+b") as file:
    returned = mmap.mmap(file.fileno(), 16)

def loop(number):
    step = 0
    while True:
        api.log({f"loop {number}": step / 3}, step=step)
        step += 1
        struct.pack_into("<q", returned, 8 * number, step)

for number in range(2):
    threading.Thread(target=loop, args=(number,)).start()
"""


def test_each_call_that_returned_is_in_the_record_in_order_after_a_kill(
    tmp_path: Path, dice: random.Random, wait_for: Callable[..., Any]
) -> None:
    for attempt in range(3):
        path, returned = tmp_path / f"{attempt}.jsonl", tmp_path / f"{attempt}.returned"
        returned.write_bytes(bytes(16))
        child = subprocess.Popen([sys.executable, "-c", _TWO_LOOPS, str(path), str(returned)])
        try:
            least = dice.randrange(200, 3000)
            wait_for(lambda least=least, at=returned: min(struct.unpack("<2q", at.read_bytes())) > least)
        finally:
            child.kill()
            child.wait()
        values = [event.data for event in parse_events(path.read_bytes(), 0, 0) if event.kind == "metric"]
        for number, count in enumerate(struct.unpack("<2q", returned.read_bytes())):
            name = f"loop {number}"
            own = [(one["step"], one["values"][name]) for one in values if name in one["values"]]
            assert own == [(step, step / 3) for step in range(len(own))]
            # A call whose line was written had perhaps not returned yet.
            assert count <= len(own) <= count + 1


_WRITER = """
from jupyter_dist.worker.output.events import EventWriter
writer = EventWriter(path)
writer.metric({"loss": 0.5}, 0)
"""


@pytest.mark.parametrize("more", [0, 1, 20, 60])
def test_lost_metrics_are_counted_in_the_record_and_in_the_log(tmp_path: Path, more: int) -> None:
    """The record says how many, once; the log has one line; what follows is whole."""
    path = tmp_path / "events.jsonl"
    code = f"""{_WRITER}
room({more})
for step in range(1, 6):
    writer.metric({{"loss": 0.4}}, step)
writer.progress(0, 1, 2, "epoch")
room()
writer.metric({{"loss": 0.3}}, 6)
writer.metric({{"loss": 0.2}}, 7)
"""
    _, stderr = limited(path, code)
    events = list(parse_events(path.read_bytes(), 0, 0))
    assert [e.data["step"] for e in events if e.kind == "metric"] == [0, 6, 7]
    texts = [e.data["text"] for e in events if e.kind == "note" and e.seq >= 0]
    assert texts == [
        "5 metrics and 1 other record of this rank were not written: File too large. "
        "The curves have a gap there."
    ]
    torn = [e.data["text"] for e in events if e.kind == "note" and e.seq < 0]
    assert len(torn) == (1 if more else 0), "a reader says that it skipped the line that is not whole"
    assert len(stderr.splitlines()) == 1
    assert "cannot write to 'events.jsonl': File too large" in stderr


def test_a_loss_is_reported_when_the_rank_ends(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    code = _WRITER + 'room(3)\nwriter.metric({"loss": 0.4}, 1)\nroom()\nwriter.close()\n'
    limited(path, code)
    (note,) = [e for e in parse_events(path.read_bytes(), 0, 0) if e.kind == "note" and e.seq >= 0]
    assert note.data["text"].startswith("1 metric of this rank was not written")


def test_a_log_without_room_gets_its_line_later(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    code = f"""{_WRITER}
log = os.open(path + ".log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.dup2(log, 2)
room(-os.path.getsize(path))
writer.metric({{"loss": 0.4}}, 1)
room()
writer.metric({{"loss": 0.3}}, 2)
"""
    limited(path, code)
    (line,) = Path(f"{path}.log").read_text().splitlines()
    assert line.startswith("jupyter_dist: 1 metric of this rank was not written")


@pytest.mark.parametrize("write", ["started('here')", "cell()", "result('1', 1, None)"])
def test_an_event_without_which_a_run_cannot_be_judged_ends_the_rank(tmp_path: Path, write: str) -> None:
    code = f"""{_WRITER}
room(5)
try:
    writer.{write}
except OSError as error:
    print(json.dumps(error.errno == errno.EFBIG))
"""
    assert limited(tmp_path / "events.jsonl", code)[0] is True


def test_a_picture_that_does_not_fit_is_lost_and_the_next_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"")
    code = """
from jupyter_dist.worker.output import events, media
events.open_writer(path)
writer = media.of_rank()
resource.setrlimit(resource.RLIMIT_FSIZE, (1500, resource.RLIM_INFINITY))
told = [writer.media("x", 0, "image", {"image/png": b"a" * 3000})]
room()
told += [writer.media("x", 1, "image", {"image/png": b"b" * 3000})]
told += [writer.display({"image/png": b"c" * 2000})]
print(json.dumps(told))
"""
    assert limited(path, code)[0] == [False, True, True]
    events = list(parse_events(path.read_bytes(), 0, 0))
    assert [event.kind for event in events] == ["note", "media", "display"]
    assert events[0].data["text"].startswith("1 other record of this rank was not written")
    content = path.with_name("media.bin").read_bytes()
    for event, byte in zip(events[1:], (b"b", b"c"), strict=True):
        part = event.data["data"]["image/png"]
        assert content[part["offset"] : part["offset"] + part["bytes"]] == byte * part["bytes"]


def test_an_index_of_times_has_whole_records_only(tmp_path: Path) -> None:
    path = tmp_path / "times.idx"
    code = """
from jupyter_dist.worker.output import time_index
time_index.append(path, (10, 1.0))
room(20)
try:
    time_index.append(path, (20, 2.0), (30, 3.0))
except OSError:
    room()
    time_index.append(path, (40, 4.0))
    with open(path, "ab") as file:  # a supervisor that was killed
        file.write(b"torn")
    time_index.append(path, (50, 5.0))
    print(json.dumps(time_index.records(path)))
"""
    assert limited(path, code)[0] == [[10, 1.0], [40, 4.0], [50, 5.0]]


def test_two_processes_of_a_rank_lose_only_the_line_that_did_not_fit(tmp_path: Path) -> None:
    """The other process does not see that the end of the file is half a line."""
    path = tmp_path / "events.jsonl"
    code = f"""{_WRITER}
other = EventWriter(path)
other.metric({{"loss": 0.1}}, 1)
room(20)
writer.metric({{"loss": 0.4}}, 2)
room()
other.metric({{"loss": 0.1}}, 3)
writer.metric({{"loss": 0.4}}, 4)
"""
    limited(path, code)
    events = list(parse_events(path.read_bytes(), 0, 0))
    assert [e.data["step"] for e in events if e.kind == "metric"] == [0, 1, 3, 4]


def test_lines_of_processes_at_once_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    code = f"import sys; sys.path.insert(0, {os.getcwd()!r})\n" + (
        "from jupyter_dist.worker.line_file import LineFile\n"
        "file = LineFile(sys.argv[1])\n"
        "for n in range(500): file.append(sys.argv[2].encode() * 200 + b'\\n')\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, path, letter]) for letter in "ab"]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    lines = path.read_text().splitlines()
    assert sorted(lines) == ["a" * 200] * 500 + ["b" * 200] * 500
