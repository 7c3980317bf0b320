"""The supervisor: the one process that owns a run, and the only writer of its state.

The supervisor is detached from the kernel. It is a fork of the template, or a cold start:
`python -m jupyter_dist.supervise.supervisor FOLDER`. It wakes when a child ends, when the backend process
answers, and at the backend's poll interval. It wakes at least five times a second, to read requests and to
index the logs.

The supervisor trusts no backend. Even if a call raises or never ends, the supervisor obeys a stop request.
It never forgets ranks that may still run. If ranks continue without a supervisor
(`Capabilities.outlives`), a new supervisor can resume their run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import os
import shutil
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    gc.disable()  # until the end of the imports below: they leave nothing to collect

from .. import backends
from ..folder import RunFolder, make_attempt
from ..job import Job, RankState, State, Status, Supervisor, Verdict
from ..processes import forking
from ..processes.leftovers import end_leftovers
from ..record.reader import boot_id, start_ticks, supervised
from ..worker.boot import set_name
from ..worker.file_locks import is_recent, try_lock
from ..worker.host.oom_killer import oom_kills
from ..worker.host.usage import HostUsage
from ..worker.process_groups import kill_group
from .attempt import Attempt
from .backend_calls import Caller, InProcess
from .backend_process.client import BackendProcessClient
from .failure_reason import port_was_taken, was_pruned
from .guard import Guard
from .requests import Requests
from .retry import RetriedCall
from .run_context import Outcome, RunContext
from .session import server
from .status_writer import StatusWriter, free_room, keep_room, log, open_log
from .wakeup import Wakeup

__all__ = ["main", "supervise"]

_LONGEST_TURN_S = 0.2
_GRACE_S = 300.0
"""How long the supervisor retries failed calls if the backend's options have no field `grace`."""
_PORT_RETRIES = 3
_RELEASE_LIMIT_S = 60.0
_RELEASE_SHOWN_S = 2.0


class _Supervision:
    """The supervision of one run. `prepared`: the pipe to a guard that the template has forked in advance."""

    def __init__(
        self, folder: RunFolder, job: Job, warm: bool, resumed: Status | None, prepared: int | None
    ) -> None:
        self._folder, self._job, self._resumed = folder, job, resumed
        backend = backends.declared(job.backend)
        self._able = able = backend.capabilities
        guard = Guard(job.id, outlives=able.outlives, prepared=prepared)
        requests = Requests(folder, job)
        self._alarm = Wakeup(requests.terminate)
        self._usage = HostUsage(str(folder.path))
        self._oom_kills = oom_kills()
        fresh = Status(
            job.id, State.PENDING, created=job.created, warm=warm, ranks=RankState.all(job.world_size)
        )
        ticks = start_ticks(os.getpid()) or 0
        me = Supervisor(os.getpid(), ticks, socket.gethostname(), boot_id())
        self._writer = StatusWriter(folder, dataclasses.replace(resumed or fresh, supervisor=me))
        if resumed is not None:
            state = State.PENDING if resumed.started is None else State.RUNNING
            self._writer.note(state=state)
            requests.resume(resumed)
            if resumed.carrier is not None:
                _end_carrier(*resumed.carrier)
        caller: Caller = (
            BackendProcessClient(folder, self._note_carrier, may_fork=bool(able.client))
            if able.apart
            else InProcess(backends.load(job.backend), job, folder)
        )
        grace_s = job.options.get("grace")
        self._turn_s = min(backend.poll_interval_s, _LONGEST_TURN_S)
        # Events report the output and the ends of ranks of this machine, and what users ask. Frequent looks
        # would take CPU time from the ranks.
        apart = able.apart or able.hosts or able.outlives
        self._heard_turn_s = self._turn_s if apart else _LONGEST_TURN_S
        self._context = RunContext(
            job=job,
            folder=folder,
            able=able,
            caller=caller,
            writer=self._writer,
            requests=requests,
            guard=guard,
            poll_interval_s=backend.poll_interval_s,
            grace_s=float(grace_s) if isinstance(grace_s, int | float) else _GRACE_S,
        )
        self._context.changes.watch(folder.requests, touched=True)

    def run(self) -> None:
        keep_room(self._folder, self._job.world_size)
        if self._resumed is not None and self._resumed.verdict is not None:
            self._end(self._resumed.handle, self._resumed.verdict)
            return
        first = self._first()
        while True:
            attempt = first or self._begun()
            first = None
            outcome = self._follow(attempt)
            if not self._another(outcome):
                break
        if outcome.state is State.UNWATCHED:
            self._leave(outcome)
        else:
            # If the backend has failed, a user may need the handle to find the run.
            self._end(attempt.handle, Verdict(outcome.state, outcome.reason, keeps_handle=not outcome.again))

    def _first(self) -> Attempt | None:
        """Return the previous supervisor's attempt; None if there was no previous supervisor."""
        was = self._resumed
        if was is None:
            return None
        if was.handle is None:
            return Attempt(self._context, None, searching=True)
        self._writer.write()
        return Attempt(self._context, was.handle, cursor=was.cursor)

    def _begun(self) -> Attempt:
        """Return a new attempt, after writing to state.json that it is being submitted.

        If this supervisor dies, the next one asks the backend for the attempt by name. The name follows from
        the run's id and the attempt's number.
        """
        if self._able.outlives:
            self._writer.note(handle=None, cursor=None, submitting=time.time())
        self._writer.write()
        return Attempt(self._context, None)

    def _follow(self, attempt: Attempt) -> Outcome:
        woken = False
        while True:
            self._context.caller.look()
            attempt.tick(time.monotonic(), woken=woken)
            if attempt.outcome is not None:
                return attempt.outcome
            self._context.requests.removed = self._writer.removed
            self._usage.tick(time.monotonic())
            self._writer.beat()
            pause_s = attempt.pause_s(self._turn_s, self._heard_turn_s)
            woken = self._alarm.wait(pause_s, self._context.caller.fileno(), attempt.heard)

    def _note_carrier(self, pid: int) -> None:
        if self._able.outlives:
            self._writer.update(carrier=(pid, start_ticks(pid) or 0))

    def _another(self, outcome: Outcome) -> bool:
        """Prepare another attempt if the outcome and --max-restarts permit one. Returns whether they do."""
        able, job, attempt = self._context.able, self._job, self._writer.status.attempt
        if outcome.state is not State.FAILED or not outcome.again or not able.restarts:
            return False
        if self._context.requests.is_late(time.monotonic()):  # ranks that start now would be stopped at once
            return False
        # A resumed run cannot restart: jupyter-dist never writes the values of --env to disk.
        if self._resumed is not None and job.env_names:
            return False
        retries, restarts = self._writer.status.port_retries, self._writer.status.restarts
        if retries < _PORT_RETRIES and port_was_taken(self._folder, attempt, outcome.detail):
            retries += 1
            why = f"a port was taken by another process; attempt {attempt + 1} takes others"
        elif (
            restarts < job.max_restarts
            and not able.own_restarts
            and not was_pruned(self._folder, attempt, self._writer.status.ranks)
        ):
            restarts += 1
            why = f"{outcome.reason}; restart {restarts} of {job.max_restarts}"
        else:
            return False
        if self._context.requests.stopped():
            return False
        log(why)
        try:
            make_attempt(self._folder, attempt + 1, job.world_size)
        except OSError as error:  # a full disk, from which the ranks may have failed
            log(f"the ranks cannot be started again: {error}")
            shutil.rmtree(self._folder.attempt(attempt + 1), ignore_errors=True)  # readers take the newest
            return False
        self._writer.note(attempt=attempt + 1, reason=why, ranks=RankState.all(job.world_size), stall=None)
        self._writer.note(port_retries=retries, restarts=restarts, waits=())
        return True

    def _leave(self, outcome: Outcome) -> None:
        """Stop the supervision of ranks that may still run. The run has not ended, so its handle stays."""
        log(outcome.reason or "")
        self._context.caller.close()
        self._context.guard.release()
        free_room(self._folder)
        self._writer.update(state=State.UNWATCHED, reason=outcome.reason)

    def _end(self, handle: Mapping[str, Any] | None, verdict: Verdict) -> None:
        reason, told, kept = verdict.reason, None, verdict.keeps_handle
        if handle is not None:
            if self._able.outlives:
                # The release may remove the hosts. If this supervisor dies, the next one needs the verdict.
                self._writer.note(handle=handle)
                self._writer.update(verdict=verdict)
            told, failed = self._release(handle, verdict.reason)
            if failed and (self._able.outlives or self._able.apart):
                # Without its name, nobody could find what may still be reserved, and paid for.
                kept, told = True, f"{_not_released(handle)}: {failed}"
        self._context.caller.close()
        end_leftovers(self._job.id)
        self._context.guard.release()
        free_room(self._folder)
        if self._writer.unwritable is not None and verdict.state is not State.SUCCEEDED:
            reason = f"{reason}; the run's folder could not be written: {self._writer.unwritable}"
        self._writer.update(
            state=verdict.state,
            reason=reason,
            told=told,
            waits=(),
            ended=time.time(),
            oom_killer=oom_kills() > self._oom_kills,
            handle=handle if kept else None,
            cursor=None,
            submitting=None,
            verdict=None,
        )

    def _release(self, handle: Mapping[str, Any], reason: str | None) -> tuple[str | None, str | None]:
        """Release the backend's resources. Returns its text for the user, and why it failed, if it did.

        A release in this process copies checkpoints from the hosts, which takes as long as it takes. Another
        request to kill the run ends the wait.
        """
        release = RetriedCall(self._context.caller, "release", _RELEASE_LIMIT_S)
        requests, began = self._context.requests, time.monotonic()
        killed = requests.made("kill")
        while (now := time.monotonic()) < began + _RELEASE_LIMIT_S or (
            release.under_way and not self._able.apart
        ):
            if requests.made("kill") != killed:
                log("the release was cut off by a request to kill the run")
                return "The user ended the wait for the hosts. Files may be left there.", None
            if now - began > _RELEASE_SHOWN_S:
                shown = filter(None, (reason, "copying the checkpoints and releasing the hosts"))
                self._writer.update(reason="; ".join(shown))
            self._context.caller.look()
            if release.ready(now):
                release.begin(handle=handle)
            call = release.take(now)
            if call is not None:
                if call.failure is None:
                    return (call.value if isinstance(call.value, str) else None), None
                log(f"the backend's `release` failed: {call.failure}\n{call.failure.trace}")
                if not call.failure.may_pass:
                    return None, str(call.failure)
            self._writer.beat()
            self._alarm.wait(self._turn_s, self._context.caller.fileno())
        log(f"the backend's `release` was not done within {_RELEASE_LIMIT_S:g} s")
        why = None if release.failure is None else str(release.failure)
        return None, why or f"no answer within {_RELEASE_LIMIT_S:g} s"


def _not_released(handle: Mapping[str, Any]) -> str:
    named = [
        f"{name} {value}" for name, value in handle.items() if name != "folder" and isinstance(value, str)
    ]
    return (
        f"What the run has reserved may still be reserved ({', '.join(named) or json.dumps(dict(handle))}). "
        "Check the cluster, and remove it there. The release failed"
    )


def _end_carrier(pid: int, ticks: int) -> None:
    """Kill the backend process of a dead supervisor. It would end by itself, but it could still submit."""
    while start_ticks(pid) == ticks:
        kill_group(pid)
        time.sleep(0.01)


def supervise(
    path: Path,
    *,
    warm: bool,
    why_cold: str | None = None,
    resume: bool = False,
    prepared: int | None = None,
) -> None:
    """Supervise the run in this folder until it has ended. Blocks. Writes errors to `supervisor.log`.

    `resume`: resume a run whose supervisor has died. Returns at once if another supervisor has resumed it.
    `prepared`: the pipe to a guard that the template has forked in advance.
    """
    folder = RunFolder(path)
    open_log(folder.supervisor_log)
    set_name("jdist supervise")
    log(f"supervisor {os.getpid()}: " + ("warm start" if warm else f"cold start: {why_cold or 'asked for'}"))
    job = Job.from_json(json.loads(folder.job.read_bytes()))
    # This process keeps the lock until it ends, so each run has one supervisor at a time.
    lock = try_lock(folder.resume_lock, lambda age_s: is_recent(age_s) or _is_supervised(folder))
    if lock is None:
        return
    resumed: Status | None = None
    if resume:
        resumed = Status.from_json(json.loads(folder.state.read_bytes()))
        if resumed.state.ended or not _is_somewhere(resumed) or supervised(resumed):
            return
    elif folder.state.exists():
        return
    try:
        if not warm:
            forking.dismiss_ranks()
        if job.session is not None:
            server.serve(folder, job, lock, warm=warm, prepared=prepared)
        else:
            _Supervision(folder, job, warm, resumed, prepared).run()
    except BaseException as error:
        traceback.print_exc()
        _broke_down(folder, job, warm, error)


def _is_supervised(folder: RunFolder) -> bool:
    try:
        return supervised(Status.from_json(json.loads(folder.state.read_bytes())))
    except (OSError, ValueError, TypeError, KeyError):
        return False


def _is_somewhere(status: Status) -> bool:
    """Return whether ranks may continue without a supervisor, and a new one can find them."""
    return status.handle is not None or status.submitting is not None


def _broke_down(folder: RunFolder, job: Job, warm: bool, error: BaseException) -> None:
    """Report a bug of jupyter-dist in the run's state. Ranks that may still run stay recorded there."""
    free_room(folder)
    status = Status(job.id, State.PENDING, created=job.created, warm=warm)
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        status = Status.from_json(json.loads(folder.state.read_bytes()))
    if status.state.ended:  # the first cell of a session, whose supervisor has failed later
        return
    writer = StatusWriter(folder, status)
    reason = f"the supervisor failed: {error} (see {folder.supervisor_log.name})"
    if _is_somewhere(status):
        writer.update(state=State.UNWATCHED, reason=reason)
    else:
        end_leftovers(job.id)
        writer.update(state=State.FAILED, reason=reason, ended=time.time())


def main(argv: list[str]) -> None:
    """Detach this process, then supervise a run.

    Usage: `python -m jupyter_dist.supervise.supervisor FOLDER WHY_COLD` or `… --resume`.
    The process that the caller started exits at once, after the imports. The supervisor is its child, in
    a session of its own, and nobody waits for its end.
    """
    folder, why_cold = Path(argv[0]), argv[1]
    if os.fork():
        os._exit(0)
    os.setsid()
    supervise(folder, warm=False, why_cold=why_cold, resume=why_cold == "--resume")


if __name__ == "__main__":
    gc.enable()
    main(sys.argv[1:])
