"""The supervisor: the one process that owns a run, and the only writer of its state.

Detached from the kernel: `python -m jupyter_dist.supervise.supervisor FOLDER`, or a fork of the template.
It wakes when a child ends, and every 50 ms to look for requests and to index the logs.
Where ranks go on without one (`Capabilities.outlives`), a new supervisor takes their run on again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import math
import os
import select
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

from .. import backends
from ..backends._base import Handle
from ..backends.ranks.leftovers import end_leftovers
from ..errors import DistError
from ..folder import RunFolder, free_room, keep_room, make_attempt, open_private, write_json
from ..job import Job, Poll, RankState, Stall, State, Status, Supervisor
from ..record.reader import boot_id, start_ticks, supervised
from ..worker.boot import STACK_SIGNAL, set_name
from .ending import FAILURE_GRACE_S, SETTLE_S, STOP_GRACE_S, Ending, first_failed, why, why_again, why_failed
from .guard import Guard
from .indexing import Indexer

__all__ = ["main", "supervise"]

_HEARTBEAT_S = 2.0
_PORT_RETRIES = 3
_PORT_TAKEN = ("eaddrinuse", "address already in use", "could not start grpc server")
"""What torch, Python and TensorFlow say of a port that another process has taken meanwhile."""


class _Supervision:
    def __init__(self, folder: RunFolder, job: Job, warm: bool, resumed: Status | None = None) -> None:
        self._folder, self._job = folder, job
        self._backend = backends.load(job.backend)
        self._requests_seen: dict[str, float] = {}
        # Durations are by the monotonic clock; the other one may be set meanwhile.
        self._deadline: float | None = None
        if job.timeout_s is not None:
            began = None if resumed is None else resumed.started
            gone_by = 0.0 if began is None else max(0.0, time.time() - began)
            self._deadline = time.monotonic() + job.timeout_s - gone_by
        self._written = 0.0
        self._unwritable: str | None = None
        self._removed = 0
        self._oom_kills = _oom_kills()
        self._wake, wake_write = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._term_requested = False
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._on_term)
        for signum in (signal.SIGINT, signal.SIGHUP, STACK_SIGNAL):
            # Ranks inherit "ignored" until they have a handler: asking early does not end them.
            signal.signal(signum, signal.SIG_IGN)
        self._guard = Guard(job.id, outlives=self._backend.capabilities.outlives)
        self._handle: Handle | None = None if resumed is None else resumed.handle
        fresh = Status(job.id, State.PENDING, created=job.created, warm=warm, ranks=_pending(job))
        ticks = start_ticks(os.getpid()) or 0
        self._status = dataclasses.replace(
            resumed or fresh,
            supervisor=Supervisor(os.getpid(), ticks, socket.gethostname(), boot_id()),
        )

    def _on_term(self, *_: object) -> None:
        self._term_requested = True

    def run(self) -> None:
        restarts = port_retries = 0
        able = self._backend.capabilities
        keep_room(self._folder, self._job.world_size)
        # A second supervisor does not know the values of --env, which are nowhere on the disk.
        restartable = able.restarts and not (self._handle is not None and self._job.env_names)
        self._write()
        while True:
            ended, reason = self._attempt()
            attempt = self._status.attempt
            again = None
            if ended is State.FAILED and restartable:
                if port_retries < _PORT_RETRIES and self._port_was_taken(attempt):
                    port_retries += 1
                    again = f"a port was taken by another process; attempt {attempt + 1} takes others"
                elif restarts < self._job.max_restarts and not able.own_restarts:
                    restarts += 1
                    again = f"{reason}; restart {restarts} of {self._job.max_restarts}"
            if again is None or self._asked("stop") or self._asked("kill"):
                break
            self._next(attempt + 1, again)
            self._handle = None
        if self._handle is not None:
            self._backend.release(self._handle)
        end_leftovers(self._job.id)
        self._guard.release()
        free_room(self._folder)
        if self._unwritable is not None and ended is not State.SUCCEEDED:
            reason = f"{reason}; the run's folder could not be written: {self._unwritable}"
        self._update(
            state=ended,
            reason=reason,
            ended=time.time(),
            oom_killer=_oom_kills() > self._oom_kills,
            handle=None,
        )

    def _next(self, attempt: int, why: str) -> None:
        _log(why)
        make_attempt(self._folder, attempt, self._job.world_size)
        self._update(attempt=attempt, reason=why, ranks=_pending(self._job))

    def _started(self) -> Handle:
        """The handle of the ranks that run: just submitted, or those of the supervisor before."""
        if self._handle is None:
            self._update(
                state=State.RUNNING,
                started=self._status.started or time.time(),
                ranks=_pending(self._job),
                stall=None,
            )
            self._handle = self._backend.submit(self._job, self._folder, self._status.attempt)
        if self._backend.capabilities.outlives:
            self._update(handle=self._handle)
        return self._handle

    def _attempt(self) -> tuple[State, str | None]:
        """One start of all ranks, until the last one has ended."""
        try:
            handle = self._started()
        except DistError as error:
            _log(str(error))
            stopped = (dataclasses.replace(rank, state=State.STOPPED) for rank in _pending(self._job))
            self._update(ranks=tuple(stopped))
            return State.FAILED, str(error)
        attempt, base = self._status.attempt, self._status.reason
        indexer = Indexer(self._folder, attempt)
        ending: Ending | None = None
        active = time.monotonic()
        while True:
            poll = self._backend.poll(handle, None)
            now = time.monotonic()
            if poll.attempt is not None and poll.attempt > attempt:
                indexer.tick(time.time(), len(self._status.ranks))
                base = why_again(self._folder, self._status.ranks, attempt)
                attempt = poll.attempt
                self._next(attempt, base)
                indexer = Indexer(self._folder, attempt)
            ranks = self._judged(poll, attempt, ending)
            self._guard.watch(poll.pids)
            if indexer.tick(time.time(), len(ranks)):
                active = now
                if self._status.stall is not None:
                    self._update(stall=None)
            self._update(ranks=ranks)
            if poll.state.ended:
                break
            ending = self._decide(ending, ranks, None if poll.replaces else attempt, now)
            if ending is not None:
                self._push(ending, handle, now)
            else:
                self._update(reason=poll.detail or base)
                self._look_for_stall(handle, active, now)
            if self._asked("stacks") and self._backend.capabilities.stacks:
                self._backend.ask(handle, None, "stacks")
            if now - self._written >= _HEARTBEAT_S:
                self._write()
            self._wait(self._backend.poll_interval_s)
        indexer.tick(time.time(), len(ranks))
        if poll.state is State.SUCCEEDED:
            return State.SUCCEEDED, None
        told = "; ".join(filter(None, (None if ending is None else ending.reason, poll.detail)))
        if ending is not None and not ending.of_rank:
            return ending.state, told
        return State.FAILED, why_failed(self._folder, ranks, attempt, told)

    def _judged(self, poll: Poll, attempt: int, ending: Ending | None) -> tuple[RankState, ...]:
        """A rank that reported an error before it was told to end has failed by itself."""
        if ending is None or ending.termed_at is None:
            return poll.ranks
        return tuple(
            dataclasses.replace(rank, state=State.FAILED)
            if rank.state is State.STOPPED and self._reported(attempt, rank.rank, ending.termed_at)
            else rank
            for rank in poll.ranks
        )

    def _reported(self, attempt: int, rank: int, before: float = math.inf) -> bool:
        try:
            return os.stat(self._folder.rank(attempt, rank).error).st_mtime <= before
        except OSError:
            return False

    def _decide(
        self, ending: Ending | None, ranks: tuple[RankState, ...], attempt: int | None, now: float
    ) -> Ending | None:
        """Whether the attempt is to be ended. `attempt` None: not for the failure of a rank."""
        if self._asked("kill"):
            reason = "killed by the user"
            return Ending(State.STOPPED, reason, now, 0.0) if ending is None else ending.hurry(now)
        if ending is not None:
            return ending
        if self._asked("stop") or self._term_requested:
            reason = "stopped by the user" if not self._term_requested else "the supervisor was told to end"
            return Ending(State.STOPPED, reason, now, STOP_GRACE_S)
        if self._removed > 1:
            return Ending(State.STOPPED, "the run's folder was removed", now, STOP_GRACE_S)
        if self._deadline is not None and now >= self._deadline:
            reason = f"not done within --timeout {self._job.timeout_s:g} s"
            return Ending(State.FAILED, reason, now, STOP_GRACE_S)
        if attempt is None:
            return None
        failed = first_failed(ranks)
        if failed is None:
            for rank in ranks:
                # It may still be at the door, held by a thread or an exit handler of its own.
                if not rank.state.ended and self._reported(attempt, rank.rank):
                    failed = rank
                    break
        if failed is None:
            return None
        return Ending(
            State.FAILED, why(self._folder, failed, attempt), now + SETTLE_S, FAILURE_GRACE_S, of_rank=True
        )

    def _push(self, ending: Ending, handle: Handle, now: float) -> None:
        if now >= ending.kill_at and not ending.killed:
            ending.killed = True
            ending.termed_at = ending.termed_at or time.time()
            self._backend.stop(handle, kill=True)
        elif now >= ending.term_at and ending.termed_at is None:
            _log(f"ending the ranks: {ending.reason}")
            ending.termed_at = time.time()
            self._backend.stop(handle, kill=False)
            self._update(reason=ending.reason)

    def _look_for_stall(self, handle: Handle, active: float, now: float) -> None:
        limit = self._job.stall_timeout_s
        if limit is None or self._status.stall is not None or now - active < limit:
            return
        _log(f"no rank has printed or logged for {limit:g} s")
        if self._backend.capabilities.stacks:
            self._backend.ask(handle, None, "stacks")
        noticed = time.time()
        self._update(stall=Stall(since=noticed - (now - active), noticed=noticed))

    def _port_was_taken(self, attempt: int) -> bool:
        for rank in range(self._job.world_size):
            try:
                text = self._folder.rank(attempt, rank).error.read_text().lower()
            except OSError:
                continue
            if any(words in text for words in _PORT_TAKEN):
                return True
        return False

    def _asked(self, name: str) -> bool:
        """Whether there is a request that was not answered yet; `stop` and `kill` stay asked."""
        try:
            when = os.stat(self._folder.requests / name).st_mtime
        except OSError:
            return False
        if name != "stacks":
            return True
        new = self._requests_seen.get(name) != when
        self._requests_seen[name] = when
        return new

    def _update(self, **changes: object) -> None:
        new = dataclasses.replace(self._status, **changes)  # type: ignore[arg-type]
        if new != self._status:
            self._status = new
            self._write()

    def _write(self) -> None:
        self._status = dataclasses.replace(self._status, heartbeat=time.time())
        self._written = time.monotonic()
        # On a full disk the run goes on: the next state will be written when there is room.
        try:
            write_json(self._folder.state, self._status.to_json())
            self._removed = 0
        except OSError as error:
            # Nobody sees a run without a folder, nor can stop it.
            self._removed += not self._folder.path.exists()
            self._unwritable = error.strerror or str(error)
            with contextlib.suppress(OSError):
                _log(f"cannot write {self._folder.state.name}: {error}")

    def _wait(self, seconds: float) -> None:
        if select.select([self._wake], [], [], seconds)[0]:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)


def _pending(job: Job) -> tuple[RankState, ...]:
    return tuple(RankState(rank) for rank in range(job.world_size))


def _oom_kills() -> int:
    """How often the kernel's out-of-memory killer has run on this machine; 0 where that is not told."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def _log(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, flush=True)


def supervise(path: Path, *, warm: bool, why_cold: str | None = None, resume: bool = False) -> None:
    """Own the run in this folder until it has ended. Returns then; errors go to `supervisor.log`.

    `resume`: take on a run whose supervisor has died; returns at once when somebody else has.
    """
    folder = RunFolder(path)
    log = os.open(folder.supervisor_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.close(null)
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    set_name("jdist supervise")
    _log(f"supervisor {os.getpid()}: " + ("warm start" if warm else f"cold start: {why_cold or 'asked for'}"))
    job = Job.from_json(json.loads(folder.job.read_bytes()))
    resumed: Status | None = None
    if resume:
        # Held until this process ends.
        lock = open_private(folder.resume_lock, os.O_WRONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        resumed = Status.from_json(json.loads(folder.state.read_bytes()))
        if resumed.state.ended or resumed.handle is None or supervised(resumed):
            return
    try:
        _Supervision(folder, job, warm, resumed).run()
    except BaseException as error:
        traceback.print_exc()
        end_leftovers(job.id)
        free_room(folder)
        failed = Status(job.id, State.FAILED, created=job.created, ended=time.time(), warm=warm)
        write_json(
            folder.state,
            dataclasses.replace(
                failed, reason=f"the supervisor failed: {error} (see {folder.supervisor_log.name})"
            ).to_json(),
        )


def main(argv: list[str]) -> None:
    """`python -m jupyter_dist.supervise.supervisor FOLDER WHY_COLD` or `… --resume`: detach, then supervise.

    Returns in the caller's child at once, with everything imported; the run's supervisor is
    its child, in a session of its own and nobody's to wait for.
    """
    folder, why_cold = Path(argv[0]), argv[1]
    if os.fork():
        os._exit(0)
    os.setsid()
    supervise(folder, warm=False, why_cold=why_cold, resume=why_cold == "--resume")


if __name__ == "__main__":
    main(sys.argv[1:])
