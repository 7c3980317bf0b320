"""The supervision of one cell of a session: its state, its requests and its end."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Mapping
from typing import Any, Protocol

from ...backends import declared
from ...folder import write_json
from ...job import RankState, State, Status, Supervisor
from ...record.file_changes import FileChanges
from ...worker.file_locks import Lock
from ...worker.host.oom_killer import oom_kills
from ...worker.host.usage import HostUsage
from ..attempt import Attempt
from ..guard import Guard
from ..requests import Requests
from ..run_context import Outcome, RunContext
from ..status_writer import StatusWriter, log
from ..wakeup import Wakeup
from .cell import CellCaller
from .cell_request import Request

__all__ = ["CellRun", "Session", "Waiting"]

_LONGEST_TURN_S = 0.05
_GRACE_S = 300.0


class Waiting:
    """A cell that waits for its turn.

    `ahead`: the line that says for what. `at_once`: its ranks have received it already. `CellRun` then writes
    its state for the first time.
    """

    def __init__(
        self,
        caller: CellCaller,
        lock: Lock,
        warm: bool,
        me: Supervisor,
        *,
        ahead: str,
        at_once: bool,
        told: Mapping[str, Any] | None,
    ) -> None:
        """`told`: the job as the kernel has sent it; None if the kernel has written it. Raises OSError."""
        self._told = told
        self.caller, self.request, self.lock, self.at_once = caller, caller.request, lock, at_once
        request = self.request
        job = request.job
        ranks = RankState.all(job.world_size)
        status = Status(job.id, State.PENDING, created=job.created, warm=warm, ranks=ranks, supervisor=me)
        self.writer = StatusWriter(request.folder, status)
        self.requests = Requests(request.folder, job)
        self.writer.note(reason=ahead or None)
        if not at_once:
            self.write_job()
            self.writer.write()

    @property
    def has_job(self) -> bool:
        return self._told is None

    def write_job(self) -> None:
        """Write `job.json`, unless it is written. The folder counts as a run from then on. Raises OSError."""
        if self._told is not None:
            write_json(self.request.folder.job, self._told, prepared=True)
            self._told = None

    def ended(self) -> bool:
        """Write a heartbeat. Returns whether a user has stopped the cell before it began."""
        self.writer.beat()
        if self.writer.removed:
            self.release()
            return True
        if self.requests.stopped():
            self.refuse("stopped by the user before it began")
            return True
        return False

    def refuse(self, reason: str, state: State = State.STOPPED) -> None:
        """End the cell without running it. Does nothing if the cell has ended."""
        if self.writer.status.state.ended:
            return
        ranks = RankState.all(self.request.job.world_size, State.STOPPED)
        self.writer.update(state=state, reason=reason, ranks=ranks, ended=time.time())
        self.release()

    def release(self) -> None:
        """Unlock the cell's folder after its end. Without a job it is no run, and is removed."""
        if not self.has_job:
            shutil.rmtree(self.request.folder.path, ignore_errors=True)
        self.lock.release()


class Session(Protocol):
    """What a cell needs of its session."""

    @property
    def guard(self) -> Guard: ...

    @property
    def alarm(self) -> Wakeup: ...

    @property
    def changes(self) -> FileChanges:
        """Return what the cells, one after the other, watch their logs with."""
        ...

    @property
    def ending(self) -> str:
        """Return why the session is ending, or an empty text."""
        ...

    def look(self) -> None:
        """Process what has arrived."""
        ...

    def began(self) -> None:
        """Show that a cell runs, whose ranks have received it."""
        ...

    def refuse(self, request: Request, why: str) -> None:
        """Let the kernel of a cell know that the cell ends, although its ranks have received it."""
        ...

    def free_room(self) -> None:
        """Free the disk space that the session has reserved for the end of a cell."""
        ...

    def loss(self) -> str | None:
        """Return what is lost with ranks that have ended, and which files could not be copied to here."""
        ...


class CellRun:
    """The present cell of a session."""

    def __init__(self, server: Session, waiting: Waiting) -> None:
        self._server, self._waiting = server, waiting
        self.request = waiting.request
        self.caller = waiting.caller
        self._oom_kills = 0
        self._outcome: Outcome | None = None
        self.failed = False
        """Whether a rank of the cell has not succeeded. Its process group may be broken."""

    def run(self) -> None:
        """Run the cell until all its ranks have ended it. Blocks. `finish` writes the end."""
        job, folder, writer = self.request.job, self.request.folder, self._waiting.writer
        requests = self._waiting.requests
        self._write_job()
        # The session's supervisor alone has the ranks: no other process can continue the cell.
        able = dataclasses.replace(declared(job.backend).capabilities, outlives=False, apart=False)
        # A rank that is killed loses its names, and has to close its groups before it reports its end.
        grace_s = able.stop_grace_s if job.stop_grace_s is None else job.stop_grace_s
        able = dataclasses.replace(able, failure_grace_s=max(able.failure_grace_s, grace_s))
        context = RunContext(
            job=job,
            folder=folder,
            able=able,
            caller=self.caller,
            writer=writer,
            requests=requests,
            guard=self._server.guard,
            changes=self._server.changes,
            poll_interval_s=_LONGEST_TURN_S,
            grace_s=_GRACE_S,
            ends_at_once=True,
        )
        writer.update(reason=None)
        attempt = Attempt(context, None)
        woken = False
        try:
            # The first turn sends the cell to the ranks. Files are written afterwards.
            attempt.tick(time.monotonic(), woken=False)
            if not self._waiting.at_once:
                self.caller.leave_cores()
            self._oom_kills = oom_kills()
            usage = HostUsage(str(folder.path))
            writer.beat()
            self._server.began()
            while attempt.outcome is None:
                self._server.look()
                woken = woken or self.caller.changed
                self.caller.changed = False
                attempt.tick(time.monotonic(), woken=woken)
                if woken and attempt.outcome is None:
                    # The first turn may have taken an answer from before the news.
                    attempt.tick(time.monotonic(), woken=True)
                if attempt.outcome is not None:
                    break
                if self._server.ending:
                    requests.terminate()
                requests.removed = writer.removed or not self._waiting.has_job
                usage.tick(time.monotonic())
                writer.beat()
                pause_s = 0.0 if self.caller.changed else attempt.pause_s(_LONGEST_TURN_S, _LONGEST_TURN_S)
                woken = self._server.alarm.wait(pause_s, self.caller.fileno(), attempt.heard)
        finally:
            self._server.changes.clear()
            self.failed = self.caller.failed
            self._outcome = attempt.outcome

    def _write_job(self) -> None:
        """Write the cell's job. Without it, the cell ends as one whose folder is gone."""
        try:
            try:
                self._waiting.write_job()
            except OSError:
                self._server.free_room()
                self._waiting.write_job()
        except OSError as error:
            log(f"cannot write the job of {self.request.folder.id}: {error}")
            self._server.refuse(self.request, error.strerror or str(error))

    def finish(self) -> None:
        """Write the final state. A user may send the next cell from then on."""
        if self._waiting.writer.status.state.ended:
            return
        outcome = self._outcome
        state = State.FAILED if outcome is None else outcome.state
        reason = "the session's supervisor failed" if outcome is None else outcome.reason
        if state is State.UNWATCHED:
            state = State.FAILED
        log(f"the cell has ended: {state}")
        if state is State.STOPPED and self._server.ending and not self._waiting.requests.asked("stop"):
            reason = f"the session ends: {self._server.ending}"
        told = self._server.loss()
        self._waiting.writer.update(
            state=state,
            reason=reason,
            told=told,
            waits=(),
            ended=time.time(),
            oom_killer=oom_kills() > self._oom_kills,
        )
        if self._waiting.writer.unwritable is not None:
            self._server.free_room()
            self._waiting.writer.write()
        self._waiting.release()
