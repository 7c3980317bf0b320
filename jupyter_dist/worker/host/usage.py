"""The resource usage of the ranks of one host: CPU, memory, GPUs and network, written to their folders.

One process per host measures all ranks there: the supervisor on its own machine, the agent on another. A rank
needs no thread for this and writes nothing for it. A rank is found by its first event. It is a process of
this host if its standard output is the log in its folder. The rank's processes are those of its session.

All values are from /proc (https://man7.org/linux/man-pages/man5/proc.5.html), those of GPUs from NVML.
Without /proc nothing is written. An example of a line of `usage.jsonl`:
`{"time":1700000000.0,"values":{"cpu":98.5,"memory":734003200,"net_in":0.0,"net_out":0.0}}`
CPU is in percent of a core, memory in bytes, the host's network in bytes a second. GPUs are as in nvml.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from dataclasses import dataclass, field

from .. import layout, listing
from ..gpus import nvml
from ..line_file import append_line

__all__ = ["HostUsage", "memory_bytes"]

_SHARE = 0.002
"""The largest fraction of a core for measuring. The more a measurement costs, the rarer it is."""
_PACE = ((120.0, 1.0), (600.0, 2.0), (7200.0, 5.0))
"""Pairs of seconds since the first rank began, and the interval until then. Afterwards: `_LAST_PACE_S`."""
_LAST_PACE_S = 15.0
_FIRST_S = 0.5
"""The time from the start to the first measurement, which looks at all processes of the host.

Meanwhile the ranks write their first lines, and the cells of a session are often over.
"""
_LETTERS_APART_S = 10.0
_HEAD = 4096
"""The first event of a rank is within this number of bytes."""
_FORGET_EVERY = 60


@dataclass
class _Rank:
    folder: str
    pid: int
    gpus: tuple[str, ...]
    clock_offset_s: float
    """The offset from this host's clock to the clock of the machine that started the run."""
    seen: tuple[float, int] | None = None
    """The time of the last measurement, and the clock ticks of the rank's processes until then."""
    processes: set[int] = field(default_factory=set)


class HostUsage:
    """The measurements of one host. Not thread-safe."""

    def __init__(self, run: str) -> None:
        self._attempts = os.path.join(run, layout.ATTEMPTS)
        # In a mailbox each sample is a message, which costs money.
        self._least_s = _LETTERS_APART_S if "JUPYTER_DIST_MAILBOX" in os.environ else 0.0
        self._due: float | None = None
        self._began = 0.0
        self._ranks: dict[str, _Rank | None] = {}
        """By folder. None for a rank of another host, or one that has ended."""
        self._others: set[int] = set()
        """Processes that belong to no rank."""
        self._ticks = 0
        self._network: tuple[float, int, int] | None = None
        self._nvml: nvml.Nvml | None = None
        self._asked_nvml = self._reported = False
        self._hertz = os.sysconf("SC_CLK_TCK")
        self._page = os.sysconf("SC_PAGE_SIZE")

    def tick(self, now: float) -> None:
        """Measure the ranks if a measurement is due.

        Call this often. `now` is a time of the monotonic clock.
        """
        if self._due is None:
            self._due = now + _FIRST_S
        if now < self._due:
            return
        began = time.thread_time()
        with contextlib.suppress(OSError, ValueError, IndexError):
            self._sample(now)
        self._due = now + max(self._pace(now), (time.thread_time() - began) / _SHARE)

    def _pace(self, now: float) -> float:
        age = now - self._began if self._began else 0.0
        pace = next((pace for until, pace in _PACE if age < until), _LAST_PACE_S)
        return max(self._least_s, pace)

    def _sample(self, now: float) -> None:
        self._find()
        ranks = {rank.pid: rank for rank in self._ranks.values() if rank is not None}
        if not ranks:
            return
        self._began = self._began or now
        self._find_processes(ranks)
        network = self._of_network(now)
        for rank in ranks.values():
            taken = self._of_rank(rank, now)
            if taken is None:
                self._ranks[rank.folder] = None
            elif taken:
                self._write(rank, {**taken, **self._of_gpus(rank), **network})

    def _write(self, rank: _Rank, values: dict[str, float]) -> None:
        line = {"time": round(time.time() + rank.clock_offset_s, 3), "values": values}
        path = os.path.join(rank.folder, layout.USAGE)
        try:
            append_line(path, json.dumps(line, separators=(",", ":")).encode() + b"\n")
        except OSError as error:
            if not self._reported:  # once in the log of the supervisor or the agent
                self._reported = True
                print(f"samples of the resource usage are lost: {error}", file=sys.stderr, flush=True)
        else:
            self._reported = False

    def _find(self) -> None:
        """Find ranks of the newest attempt that have begun since the last look."""
        numbers = listing.numbers(self._attempts)
        if not numbers:
            return
        place = os.path.join(self._attempts, str(max(numbers)), layout.RANKS)
        for rank in listing.numbers(place):
            folder = os.path.join(place, str(rank))
            if folder not in self._ranks:
                began = _first_event(folder)
                if began is not None:
                    # The rank's process may have existed before its first event, and may be among those of no
                    # rank.
                    self._others.clear()
                    self._ranks[folder] = began if _is_of(began.pid, folder) else None

    def _find_processes(self, ranks: dict[int, _Rank]) -> None:
        """Assign new processes to the sessions of the ranks."""
        self._ticks += 1
        if self._ticks % _FORGET_EVERY == 0:
            self._others.clear()  # the kernel reuses process ids
        there = set(listing.numbers("/proc"))
        self._others &= there
        known = self._others.union(*(rank.processes for rank in ranks.values()))
        for pid in there - known:
            stat = _stat(pid)
            if stat is None:
                continue
            rank = ranks.get(int(stat[3]))
            if rank is None:
                self._others.add(pid)
            else:
                rank.processes.add(pid)
        for rank in ranks.values():
            rank.processes &= there

    def _of_rank(self, rank: _Rank, now: float) -> dict[str, float] | None:
        """Return the usage of the rank and its processes; empty at the first look, None if it has ended."""
        ticks = memory = 0
        for pid in list(rank.processes):
            stat = _stat(pid)
            if stat is None or int(stat[3]) != rank.pid:
                rank.processes.discard(pid)
                continue
            # This is the time of the process itself, and of its children that have ended.
            ticks += sum(map(int, stat[11:15]))
            own, shared = _memory(pid)
            # Memory that children share with the rank counts once.
            memory += self._page * (own if pid == rank.pid else max(0, own - shared))
        if rank.pid not in rank.processes:
            return None
        before, rank.seen = rank.seen, (now, ticks)
        if before is None or now <= before[0]:
            return {}
        share = max(0, ticks - before[1]) / self._hertz / (now - before[0])
        return {"cpu": round(100 * share, 1), "memory": memory}

    def _of_gpus(self, rank: _Rank) -> dict[str, float]:
        if not rank.gpus:
            return {}
        if not self._asked_nvml:
            self._asked_nvml = True
            self._nvml = nvml.load()
        return {} if self._nvml is None else self._nvml.usage(rank.gpus)

    def _of_network(self, now: float) -> dict[str, float]:
        """Return the traffic of the whole host, without the loopback interface."""
        came = left = 0
        with open("/proc/self/net/dev") as file:
            for line in file.readlines()[2:]:
                name, _, numbers = line.partition(":")
                if name.strip() != "lo":
                    words = numbers.split()
                    came, left = came + int(words[0]), left + int(words[8])
        before, self._network = self._network, (now, came, left)
        if before is None or now <= before[0]:
            return {}
        seconds = now - before[0]
        return {
            "net_in": round(max(0, came - before[1]) / seconds, 1),
            "net_out": round(max(0, left - before[2]) / seconds, 1),
        }


def _first_event(folder: str) -> _Rank | None:
    """Return the rank from its first event; None if it has not begun."""
    try:
        with open(os.path.join(folder, layout.EVENTS), "rb") as file:
            lines = file.read(_HEAD).split(b"\n")[:-1]
    except OSError:
        return None
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            event = json.loads(line)
            if event["kind"] == "started":
                gpus = tuple(map(str, event.get("gpus") or ()))
                return _Rank(folder, int(event["pid"]), gpus, float(event.get("clock_offset_s") or 0))
    return None


def _is_of(pid: int, folder: str) -> bool:
    """Return whether the process is the rank, and not another process with the same id on this host."""
    for fd in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samefile(f"/proc/{pid}/fd/{fd}", os.path.join(folder, layout.OUTPUT)):
                return True
    return False


def _stat(pid: int) -> list[bytes] | None:
    """Return the fields of /proc/PID/stat after the process's name; None if the process has ended.

    The fields are its state, its parent, its group, its session, ….
    """
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fields = os.read(fd, 1024).rpartition(b")")[2].split()
    except OSError:
        return None
    finally:
        os.close(fd)
    return None if len(fields) < 15 or fields[0] == b"Z" else fields


def memory_bytes(pid: int) -> int | None:
    """Return what a process alone has in memory; None if it is gone."""
    pages, shared = _memory(pid)
    return (pages - shared) * os.sysconf("SC_PAGE_SIZE") if pages else None


def _memory(pid: int) -> tuple[int, int]:
    """Return the number of pages in memory, and the number of shared pages."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            words = file.read().split()
        return int(words[1]), int(words[2])
    except (OSError, ValueError, IndexError):
        return 0, 0
