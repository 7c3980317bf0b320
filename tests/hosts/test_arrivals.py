"""What hosts send into the run folder: hostile paths, repeated pieces, times."""

from __future__ import annotations

import pytest

from jupyter_dist.folder import RunFolder
from jupyter_dist.hosts.arrivals import Arrivals
from jupyter_dist.supervise.log_index import LogIndexWriter
from jupyter_dist.worker.output.time_index import RECORD, Times


@pytest.mark.parametrize(
    "path",
    [
        "../escape",
        "attempts/0/ranks/0/../../../../x",
        "/etc/passwd",
        "attempts/0/ranks/0/.hidden",
        "attempts/0/ranks/0/times.idx",
        "attempts/x/ranks/0/output.log",
        "state.json",
        "attempts/0/ranks/0/output.log\n",
    ],
)
def test_what_a_host_may_write_here(folder: RunFolder, path: str) -> None:
    before = sorted(folder.path.rglob("*"))
    for kind in ("chunk", "whole"):
        Arrivals(folder).take({"is": kind, "path": path, "offset": 0, "size": 1, "time": 0}, b"x", 0.0)
    assert sorted(folder.path.rglob("*")) == before


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/x", "a//b", ""])
def test_what_a_host_may_leave_as_a_checkpoint(folder: RunFolder, path: str) -> None:
    before = sorted(folder.path.rglob("*"))
    Arrivals(folder).keep({"path": path, "offset": 0, "size": 1, "time": 0}, b"x", "h1")
    assert sorted(folder.path.rglob("*")) == before


def test_pieces_that_come_again_change_nothing(folder: RunFolder) -> None:
    arrivals = Arrivals(folder)
    path = "attempts/0/ranks/1/output.log"
    for offset, data in ((0, b"abc"), (0, b"abc"), (1, b"bcd"), (9, b"later"), (4, b"e")):
        arrivals.take({"is": "chunk", "path": path, "offset": offset}, data, 0.0)
    assert folder.rank(0, 1).output.read_bytes() == b"abcde"
    assert Arrivals(folder).have() == {path: 5, path.replace("output.log", "times.idx"): 16}
    whole = {"is": "whole", "path": "attempts/0/ranks/1/error.json", "size": 4, "time": 1000.0}
    arrivals.take({**whole, "offset": 0}, b"{ ", 5.0)
    assert not folder.rank(0, 1).error.exists()
    arrivals.take({**whole, "offset": 0}, b"{ ", 5.0)
    arrivals.take({**whole, "offset": 2}, b" }", 5.0)
    assert folder.rank(0, 1).error.read_bytes() == b"{  }"
    assert folder.rank(0, 1).error.stat().st_mtime == 1005.0


def test_lines_have_the_time_they_were_printed_at_not_that_of_their_arrival(folder: RunFolder) -> None:
    arrivals = Arrivals(folder)
    rank = folder.rank(0, 1)
    log, times = "attempts/0/ranks/1/output.log", "attempts/0/ranks/1/times.idx"
    told = b"".join(RECORD.pack(*record) for record in ((0, 100.0), (4, 100.0), (8, 160.0)))
    arrivals.take({"is": "chunk", "path": log, "offset": 0}, b"one\ntwo\n", 5.0)
    # A supervisor looks in between, and must not write an index of its own then.
    LogIndexWriter(folder, 0).tick(999.0, 2)
    arrivals.take({"is": "chunk", "path": times, "offset": 0}, told[:40], 5.0)
    arrivals.take({"is": "chunk", "path": times, "offset": 0}, told, 5.0)
    arrivals.take({"is": "chunk", "path": times, "offset": 32}, told[32:], 5.0)
    LogIndexWriter(folder, 0).tick(999.0, 2)
    seen = Times(rank.times)
    seen.refresh()
    assert [seen.at(0, 0.0), seen.at(4, 0.0), seen.at(8, 7.0)] == [105.0, 165.0, 7.0]
    assert Arrivals(folder).have() == {log: 8, times: 48}
