"""The processes that an agent starts on its host: started, seen to end, ended, and never left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..worker import layout
from ..worker.boot import STACK_SIGNAL
from ..worker.process_groups import guard_groups, kill_group, peak_memory_bytes
from .rank_fork import fork_rank

__all__ = ["Child", "Children", "end_leftovers", "start_guard"]


class Child:
    """One process: a rank, or a launcher (`rank` None)."""

    def __init__(self, id_: str, attempt: int, rank: int | None, folder: str, pid: int) -> None:
        self.id, self.attempt, self.rank, self.pid = id_, attempt, rank, pid
        self.folder = folder
        """What it writes: its rank's folder or its log, relative to the run's folder."""
        self.started = time.time()
        self.told_to_end = self.place_gone = False
        self.end: dict[str, Any] | None = None
        """How it ended: exit_code, signal, ended, peak_memory_bytes, told (whether it was told to), error,
        place_gone (whether it was told to because our place on this host was given up)."""

    def to_json(self) -> dict[str, Any]:
        names = ("id", "attempt", "rank", "folder", "pid", "started", "end")
        return {name: getattr(self, name) for name in names}


class Children:
    """All processes of a stage, those of an agent before included. Keeps a journal of them."""

    def __init__(self, stage: str, umask: int = 0o022) -> None:
        self._umask = umask
        """A login's, for what is started; the agent itself keeps all to its user."""
        self._run = os.path.join(stage, "run")
        self._code = os.path.join(stage, "code")
        self._stage = stage
        self._journal = os.path.join(stage, "processes.jsonl")
        self._all: dict[str, Child] = {}
        self._recall()

    def __iter__(self) -> Iterator[Child]:
        return iter(self._all.values())

    @property
    def running(self) -> list[Child]:
        return [child for child in self._all.values() if child.end is None]

    def get(self, id_: str) -> Child | None:
        return self._all.get(id_)

    def start(self, wish: Mapping[str, Any]) -> Child:
        """Start a process as the driver says it, unless it was started before. One that cannot be
        started has ended, with an error."""
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
            child.end = {"ended": time.time(), "error": f"cannot start {what!r}: {error.strerror or error}"}
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
            env["JUPYTER_DIST_CWD"] = os.path.expanduser("~")  # the notebook's folder is not here
        if wish["rank"] is not None:
            env["JUPYTER_DIST_PARENT"] = str(os.getpid())
        log = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if wish.get("fork"):
            os.close(log)  # it is there, so that a rank without a word has a log
            return fork_rank(env, self._code, self._umask)
        try:
            process = subprocess.Popen(
                wish["argv"],
                env=env,
                cwd=self._code,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                umask=self._umask,
            )
        finally:
            os.close(log)
        process.returncode = 0  # reaped by wait4 here, which tells the memory as well
        return process.pid

    def reap(self) -> list[Child]:
        """Those that have ended since the last call."""
        ended = []
        for child in self.running:
            try:
                done, status, usage = os.wait4(child.pid, os.WNOHANG)
            except ChildProcessError:
                child.end = {"ended": time.time()}
                ended.append(child)
                continue
            if not done:
                continue
            kill_group(child.pid)  # what it left behind
            code = os.waitstatus_to_exitcode(status)
            child.end = {
                "ended": time.time(),
                "exit_code": code if code >= 0 else None,
                "signal": -code if code < 0 else None,
                "peak_memory_bytes": peak_memory_bytes(usage),
                "told": child.told_to_end,
                "place_gone": child.place_gone,
            }
            self._write_down(child)
            ended.append(child)
        return ended

    def signal(self, *, kill: bool, only: Sequence[str] | None = None, place_gone: bool = False) -> None:
        """SIGTERM to those that run; `kill`: SIGKILL to their whole groups. `only`: those with these ids.
        `place_gone`: not because anybody has asked for it."""
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
            return  # a launcher here passes it on to its ranks: they would be told twice
        for pid in self._launched():
            if kill:
                kill_group(pid)
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)

    def _launched(self) -> list[int]:
        """The ranks that a launcher has started here (launched_rank.py): nobody's child in this process."""
        try:
            listed = os.listdir(os.path.join(self._stage, "ranks"))
        except OSError:
            return []
        return [int(name) for name in listed if _is_of(int(name), self._stage)]

    def stacks(self) -> None:
        """Have every rank that runs append its stacks to `stacks.txt`."""
        for child in self.running:
            if child.rank is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, STACK_SIGNAL)
        for pid in self._launched():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, STACK_SIGNAL)

    def _write_down(self, child: Child) -> None:
        # On a full disk the driver is told all the same; only an agent after this one is not.
        with contextlib.suppress(OSError), open(self._journal, "a") as file:
            file.write(json.dumps(child.to_json()) + "\n")

    def _recall(self) -> None:
        """What an agent before this one started: it has ended, the kernel saw to that."""
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
    """Start the small process that ends this stage's processes when the agent dies.

    Returns the descriptor that holds it: write `done` to it before an orderly end, and the pids of
    process groups, a line each time, while they change.
    """
    read, write = os.pipe()
    if os.fork():
        os.close(read)
        return write
    try:
        os.close(write)
        _guard(read, stage)
    finally:
        os._exit(0)


def _guard(read: int, stage: str) -> None:
    if guard_groups(read):
        end_leftovers(stage)


def end_leftovers(stage: str) -> None:
    """Kill every process that was started for this stage, apart from this one; does nothing without /proc."""
    marker = f"JUPYTER_DIST_STAGE={stage}".encode()
    for _ in range(3):  # what they start meanwhile
        found = False
        with contextlib.suppress(OSError):
            for name in os.listdir("/proc"):
                if not name.isdigit() or int(name) in (os.getpid(), os.getppid()):
                    continue
                with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                    if marker in file.read().split(b"\0"):
                        os.kill(int(name), signal.SIGKILL)
                        found = True
        if not found:
            return


def _is_of(pid: int, stage: str) -> bool:
    """Whether that process, and not another one that got its pid later, belongs to this stage."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"JUPYTER_DIST_STAGE={stage}".encode() in file.read().split(b"\0")
    except FileNotFoundError:
        return not os.path.isdir("/proc/self")
    except OSError:
        return False
