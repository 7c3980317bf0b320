"""The processes that an agent starts on its host: their start, their end, signals, and clean-up."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..worker import layout, listing
from ..worker.host.os_errors import reason
from ..worker.line_file import append_line
from ..worker.process_groups import (
    guard_groups,
    has_variable,
    interrupt_rank,
    kill_all,
    kill_group,
    reap,
    signal_if,
    spawn,
)
from ..worker.stack_signals import signal_for
from .rank_fork import fork_rank

__all__ = ["Child", "Children", "end_leftovers", "start_guard"]


class Child:
    """One process: a rank, or a launcher (`rank` None)."""

    def __init__(self, id_: str, attempt: int, rank: int | None, folder: str, pid: int) -> None:
        self.id, self.attempt, self.rank, self.pid = id_, attempt, rank, pid
        self.folder = folder
        """The rank's folder, or the launcher's log, relative to the run's folder."""
        self.started = time.time()
        self.told_to_end = self.place_gone = self.interrupted = False
        self.end: dict[str, Any] | None = None
        """How it ended: exit_code, signal, ended, peak_memory_bytes, error; `told`: the agent signalled it;
        `place_gone`: the agent signalled it because the run's reservation on this host ended."""

    def to_json(self) -> dict[str, Any]:
        names = ("id", "attempt", "rank", "folder", "pid", "started", "end")
        return {name: getattr(self, name) for name in names}


class Children:
    """All processes of a stage, also those of an earlier agent. The object writes a journal of them."""

    def __init__(self, stage: str, umask: int = 0o022) -> None:
        self._umask = umask
        """The umask of the login, for started processes. The agent's own files are private."""
        self._run = os.path.join(stage, "run")
        self._code = os.path.join(stage, "code")
        self._stage = stage
        self._journal = os.path.join(stage, "processes.jsonl")
        self._all: dict[str, Child] = {}
        self._interrupted: set[int] = set()
        self._recall()

    def __iter__(self) -> Iterator[Child]:
        return iter(self._all.values())

    @property
    def running(self) -> list[Child]:
        return [child for child in self._all.values() if child.end is None]

    def get(self, id_: str) -> Child | None:
        return self._all.get(id_)

    def start(self, wish: Mapping[str, Any]) -> Child:
        """Start a process at the driver's request, unless it was started before. Repeatable.

        If the start fails, the process counts as ended with an error.
        """
        known = self._all.get(wish["id"])
        if known is not None:
            return known
        rank, attempt = wish["rank"], wish["attempt"]
        own = layout.attempt_path("", attempt)
        folder = f"{own}/{wish['log']}" if rank is None else layout.rank_path("", attempt, rank)
        child = Child(wish["id"], attempt, rank, folder, 0)
        self._all[child.id] = child
        try:
            child.pid = self._spawn(wish, os.path.join(self._run, folder))
        except OSError as error:
            what = error.filename or wish["argv"][0]
            child.end = {"ended": time.time(), "error": f"cannot start {what!r}: {reason(error)}"}
        self._write_down(child)
        return child

    def _spawn(self, wish: Mapping[str, Any], place: str) -> int:
        if wish["rank"] is not None:
            os.makedirs(place, mode=0o700, exist_ok=True)
            place = os.path.join(place, layout.OUTPUT)
        else:
            os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        env = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
        env.update(wish["env"])
        env["JUPYTER_DIST_RUN"] = self._run
        env["JUPYTER_DIST_STAGE"] = self._stage
        if not os.path.isdir(env.get("JUPYTER_DIST_CWD", "/")):
            env["JUPYTER_DIST_CWD"] = os.path.expanduser("~")  # this host lacks the notebook's folder
        if wish["rank"] is not None:
            env["JUPYTER_DIST_PARENT"] = str(os.getpid())
        log = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if wish.get("fork"):
            os.close(log)  # creates the log, also for a rank that prints nothing
            return fork_rank(env, self._code, self._umask)
        try:
            return spawn(wish["argv"], env, self._code, log, self._umask)
        finally:
            os.close(log)

    def reap(self) -> list[Child]:
        """Return the processes that have ended since the last call. Does not block."""
        ended = []
        for child in self.running:
            try:
                reaped = reap(child.pid)
            except ChildProcessError:
                child.end = {"ended": time.time()}
                ended.append(child)
                continue
            if reaped is None:
                continue
            child.end = {
                "ended": time.time(),
                **reaped._asdict(),
                "told": child.told_to_end,
                "place_gone": child.place_gone,
            }
            self._write_down(child)
            ended.append(child)
        return ended

    def handle_sigterm(self) -> bool:
        """Return whether a rank has set its own handler for SIGTERM."""
        ranks = os.path.join(self._run, layout.rank_path("", "*", "*"))
        return bool(glob.glob(os.path.join(ranks, layout.SIGTERM_HANDLER)))

    def interrupt(self) -> None:
        """Interrupt the running ranks, once each, and not launchers.

        A rank that is about to save must not be interrupted again if a driver repeats its request.
        """
        for child in self.running:
            child.told_to_end = True
            if child.rank is not None and not child.interrupted:
                child.interrupted = True
                with contextlib.suppress(ProcessLookupError):
                    interrupt_rank(child.pid, os.path.join(self._run, child.folder))
        for pid in set(self._launched()) - self._interrupted:
            self._interrupted.add(pid)
            self._signal_launched(pid, signal.SIGINT)

    def signal(self, *, kill: bool, only: Sequence[str] | None = None, place_gone: bool = False) -> None:
        """Send SIGTERM to the running processes. `kill`: send SIGKILL to their whole groups instead.

        `only`: signal only the processes with these ids. `place_gone`: the reason is the end of the run's
        reservation on this host, not a request.
        """
        for child in self.running:
            if only is not None and child.id not in only:
                continue
            if not child.told_to_end:
                child.told_to_end, child.place_gone = True, place_gone
            if kill:
                kill_group(child.pid)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child.pid, signal.SIGKILL if kill else signal.SIGTERM)
        if only is not None or (not kill and any(child.rank is None for child in self.running)):
            return  # a launcher forwards SIGTERM: its ranks would get SIGTERM twice
        for pid in self._launched():
            if kill:
                kill_group(pid)
            else:
                self._signal_launched(pid, signal.SIGTERM)

    def _signal_launched(self, pid: int, signum: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal_if(pid, signum, lambda pid: _is_of(pid, self._stage))

    def _launched(self) -> list[int]:
        """Return the pids of ranks that a launcher started here (launched_rank.py), not this process."""
        listed = listing.numbers(os.path.join(self._stage, "ranks"))
        return [pid for pid in listed if _is_of(pid, self._stage)]

    def stacks(self) -> None:
        """Signal each running rank to append its stacks to `stacks.txt`."""
        for child in self.running:
            if child.rank is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, signal_for(child.pid))
        for pid in self._launched():
            self._signal_launched(pid, signal_for(pid))

    def _write_down(self, child: Child) -> None:
        # On a full disk only a later agent lacks this entry. The driver gets the report in any case.
        with contextlib.suppress(OSError):
            append_line(self._journal, json.dumps(child.to_json()).encode() + b"\n")

    def _recall(self) -> None:
        """Read the processes of an earlier agent from the journal. They ended with that agent."""
        try:
            with open(self._journal) as file:
                lines = file.read().split("\n")
        except OSError:
            return
        for line in lines:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                data = json.loads(line)
                child = Child(data["id"], data["attempt"], data["rank"], data["folder"], data["pid"])
                child.started, child.end = data["started"], data["end"] or {"lost": True}
                self._all[child.id] = child


def start_guard(stage: str) -> int:
    """Start the guard, a small process that kills this stage's processes when the agent dies.

    Returns the descriptor of a pipe to the guard. Write a line with the pids of all process groups after each
    change, and `done` before an orderly end.
    """
    read, write = os.pipe()
    if os.fork():
        os.close(read)
        return write
    try:
        os.close(write)
        if guard_groups(read) != "done":
            end_leftovers(stage)
    finally:
        os._exit(0)


def end_leftovers(stage: str) -> None:
    """Kill all processes of this stage except this one and its parent. Does nothing without /proc."""
    for _ in range(3):  # the processes may start others meanwhile
        if not kill_all(lambda pid: _is_of(pid, stage)):
            return


def _is_of(pid: int, stage: str) -> bool:
    """Return whether the process belongs to this stage. Another process may have the pid by now."""
    try:
        return has_variable(pid, "JUPYTER_DIST_STAGE", stage)
    except FileNotFoundError:
        return not os.path.isdir("/proc/self")
    except OSError:
        return False
