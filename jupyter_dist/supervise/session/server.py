"""The supervisor of a session: it owns the ranks, accepts cells, and runs one after the other.

It is the only writer of the session's `session.json`, and of the state of each cell's run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import DistError
from ...folder import RunFolder, make_attempt, make_private, new_id, open_private, write_json
from ...job import Job, State, Supervisor
from ...processes.leftovers import end_leftovers
from ...record.file_changes import FileChanges
from ...text.format import duration
from ...worker.file_locks import Lock, try_lock
from ...worker.host.machine import cores
from ...worker.process_identity import boot_id, start_ticks
from ...worker.session import place
from ..guard import Guard
from ..status_writer import free_room, keep_room, log, open_log
from ..wakeup import Wakeup
from .cell import CellCaller
from .cell_request import Request
from .cell_run import CellRun, Waiting
from .connections import Answers, Connections
from .known_names import KnownNames
from .next_folder import NextFolder
from .ranks import Ranks
from .recovery import Recovery

__all__ = ["Server", "serve"]

_TURN_S = 1.0
_BEAT_S = 5.0
_SHOWN_S = 0.1
"""After this time, the session's file says that a cell runs. Most cells of a conversation are shorter."""
_CLOSED = "a user has closed it"


class Server:
    """One session. `job`: of its first cell. `path`: the session's folder."""

    def __init__(self, job: Job, path: Path, warm: bool, prepared: int | None) -> None:
        assert job.session is not None
        self.job, self._path, self._warm = job, path, warm
        self._name: str = job.session["name"]
        self._idle_limit_s: float | None = job.session.get("idle_timeout_s")
        self._created = time.time()
        self._me = Supervisor(os.getpid(), start_ticks(os.getpid()) or 0, socket.gethostname(), boot_id())
        self._id = new_id()
        self.guard = Guard(self._id, prepared=prepared)
        self._ending, self._failed = "", False
        self.alarm = Wakeup(self._terminate)
        self.changes = FileChanges()
        os.environ |= {place.VARIABLE: str(path), place.ID_VARIABLE: self._id}
        self._cells: set[str] = set()
        """The ids of all cells. Processes that a warm rank has forked print into their cell's log."""
        self._folder = self._logged = folder = RunFolder(path)
        make_attempt(folder, 0, job.world_size)
        # A forked rank writes its first errors there.
        os.close(open_private(folder.supervisor_log, os.O_WRONLY))
        own = dataclasses.replace(job, id=self._id, notes=(), parameters={})
        self.ranks = Ranks(own, folder, lambda link: self._connections.forget(link))
        self._recovery = Recovery(self.ranks)
        self._connections = Connections(path, self.ranks.processes.fileno(), self._take_message)
        self._waiting: list[Waiting] = []
        self._answers = Answers()
        self._present: CellRun | None = None
        self._idle_since, self._beaten = time.time(), 0.0
        self._names = KnownNames(path, self._id, self.ranks, self._unfinished)
        self._next = NextFolder(path, job.world_size, here=self.ranks.processes.here)
        self.write()

    def _terminate(self) -> None:
        self._ending = self._ending or "its supervisor was told to end"

    def fail(self, error: BaseException) -> None:
        self._ending, self._failed = self._ending or f"it failed: {error}", True

    def take(self, folder: RunFolder, job: Job, lock: Lock, message: Mapping[str, Any]) -> None:
        """Take a cell into the queue."""
        self._cells.add(folder.id)
        self._names.see(job.notebook, message.get("seen", {}))
        request = Request.of(folder, job, self.job, message)
        fileno, recovery = self._connections.fileno(), self._recovery
        caller = CellCaller(request, self.ranks, self.look, fileno, recovery.to_close, recovery.prepare)
        before = self._unfinished()
        ahead = f"the session {self._name} runs {before[-1].folder.id} first" if before else ""
        if not ahead:
            caller.begin_at_once()
        told = message.get("job")
        waiting = Waiting(caller, lock, self._warm, self._me, ahead=ahead, at_once=caller.began, told=told)
        self._waiting.append(waiting)
        if self._present is not None:
            self.write()

    def _unfinished(self) -> list[Request]:
        """Return the cell that runs and those that wait, in their order."""
        waiting = [one.request for one in self._waiting]
        return waiting if self._present is None else [self._present.request, *waiting]

    def run(self) -> None:
        while not self._ending or (self._waiting and self._waiting[0].at_once):
            if self._waiting:
                self._run_next()
                continue
            self._next.make()
            self.turn(_TURN_S)
            if self.ranks.processes.failed is not None:
                self._ending, self._failed = self.ranks.processes.failed, True
            idle_s = 0.0 if self._waiting else time.time() - self._idle_since
            if self._idle_limit_s is not None and idle_s > self._idle_limit_s:
                self._ending = f"it was idle for {duration(self._idle_limit_s)}"

    def turn(self, seconds: float) -> None:
        self.alarm.wait(seconds, self._connections.fileno())
        self.look()

    def _run_next(self) -> None:
        waiting = self._waiting.pop(0)
        self._present = cell = CellRun(self, waiting)
        try:
            if not waiting.at_once:
                self._log_to(waiting.request.folder)
            cell.run()
        except Exception:  # a bug, or a folder that is gone, must not end the session
            with contextlib.suppress(OSError):
                self._log_to(waiting.request.folder)
            log(traceback.format_exc())
            waiting.refuse("the session's supervisor could not run the cell")
            if cell.caller.began:
                self.ranks.kill(range(self.job.world_size))
        finally:
            self._answers.send()
            self._recovery.broken |= cell.failed
            self._present = None
            self._idle_since = time.time()
            self.write()  # before the cell's end: a user sees at once what the cell has made
            try:
                cell.finish()
            except Exception:
                with contextlib.suppress(Exception):
                    log(traceback.format_exc())
                    waiting.refuse(
                        "the session's supervisor could not write the end of the cell", State.FAILED
                    )
            with contextlib.suppress(OSError):
                self._log_to(self._folder)

    def _log_to(self, folder: RunFolder) -> None:
        if folder is self._logged:
            return
        open_log(folder.supervisor_log)
        self._logged = folder
        if folder is not self._folder:
            log(f"cell of the session {self._name!r}, whose supervisor is {os.getpid()}")

    def began(self) -> None:
        assert self._present is not None
        self._answers.send()
        with contextlib.suppress(OSError):  # a user has removed the folder: that ends the cell
            self._log_to(self._present.request.folder)
        if not os.path.exists(self._folder.spare):
            keep_room(self._folder, self.job.world_size)
        self._beaten = min(self._beaten, time.monotonic() - _BEAT_S + _SHOWN_S)

    def refuse(self, request: Request, why: str) -> None:
        error = (
            f"cannot write the job of the cell: {why}. The ranks of the session {self._name!r} had begun the "
            "cell and were stopped. Free some space, then run the cell again"
        )
        self._answers.replace(request.folder.id, {"error": error, "began": True})

    def free_room(self) -> None:
        free_room(self._folder)

    @property
    def ending(self) -> str:
        return self._ending

    def look(self) -> None:
        """Process what has arrived, and look after the ranks. Never blocks."""
        ended = self.ranks.poll()
        if self._present is not None:
            self._present.caller.changed |= self.ranks.processes.has_news
        for rank, message in self.ranks.arrived():
            if self._present is not None:
                self._present.caller.answered(rank, message)
        for rank in ended:
            kept = self.ranks.all[rank]
            names = self.ranks.forget(rank)
            self._recovery.broken = True
            how = f"exit code {kept.state.exit_code}, signal {kept.state.signal}"
            log(f"rank {rank} has ended, {how}; lost with it: {', '.join(names) or 'nothing'}")
            if self._present is not None:
                self._present.caller.died(rank)
        self.guard.watch(self.ranks.pids)
        for waiting in [one for one in self._waiting if one.ended()]:
            self._waiting.remove(waiting)
            self.write()
        self._connections.look()
        if ended or time.monotonic() - self._beaten > _BEAT_S:
            self.write()

    def loss(self) -> str | None:
        return "; ".join(filter(None, [self._recovery.loss(), self.ranks.processes.not_kept])) or None

    def _take_message(self, link: Any, data: dict[str, Any], message: Mapping[str, Any]) -> None:
        if data["rank"] is not None:
            # The ranks may have received the first cell that waits (`begin_at_once`).
            cell = self._present or next(iter(self._waiting), None)
            if cell is not None:
                cell.caller.answered(data["rank"], message)
        elif message.get("ask") == "wake":
            self._wake(message["code"])
        elif "rank" in message:
            if self.ranks.join(link, int(message["rank"]), int(message["pid"])):
                data["rank"] = int(message["rank"])
            else:
                self._connections.forget(link)
        else:
            try:
                answer = self._answer(message)
            except OSError as error:  # a full disk, or a folder that is gone
                answer = {"error": f"the session {self._name!r} cannot take the cell: {error}"}
            except Exception as error:
                log(f"cannot process a message:\n{traceback.format_exc()}")
                answer = {
                    "error": f"the session {self._name!r} cannot process the message of this kernel "
                    f"({type(error).__name__}: {error}). Perhaps the session runs another version of "
                    f"jupyter-dist. Close it with `%dist close {self._name}`, then run the cell again"
                }
            self._answers.add(link, answer)
            if self._present is not None or not self._waiting:
                self._answers.send()

    def _wake(self, code: Any) -> None:
        """Let idle ranks of this machine compile the cell that follows, if they do not share their cores."""
        size = self.job.world_size
        if self._present is None and not self._waiting and self.ranks.processes.here and size <= cores():
            for rank in range(size):
                self.ranks.send(rank, {"do": "wake", "code": code})

    def _answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        asked = message.get("ask")
        if asked == "about":
            return self._names.of(message.get("ranks"), restart=message.get("restart"))
        if asked == "cell":
            return self._take_cell(message)
        if asked == "on_start":
            path = str(message["path"])
            if path not in self._recovery.on_start:
                self._recovery.on_start.append(path)
            return {"ok": True}
        if asked == "restart":
            return self._restart()
        if asked == "close":
            self._ending = _CLOSED
            return {"ok": True, "pid": os.getpid()}
        return {"error": f"the session's supervisor does not know {asked!r}"}

    def _restart(self) -> dict[str, Any]:
        """Give every rank a fresh process. What the ranks have is gone, as the user wants."""
        if self._ending:
            return {"error": f"the session {self._name!r} is ending: {self._ending}"}
        if self._present is not None or self._waiting:
            return {"error": f"the session {self._name!r} runs a cell. Stop the cell first"}
        everyone = range(self.job.world_size)
        try:
            self.ranks.replace(everyone)
        except DistError as error:
            return {"error": str(error)}
        self.ranks.lost = {rank: [] for rank in everyone}
        self._names.forget()
        self._recovery.broken = True
        self.guard.watch(self.ranks.pids)
        self.write()
        return {"ok": True}

    def _take_cell(self, message: Mapping[str, Any]) -> dict[str, Any]:
        folder = RunFolder(Path(message["folder"]))
        if self._ending:
            return {"error": f"the session {self._name!r} is ending: {self._ending}"}
        if message.get("session", self._id) != self._id:  # it may have other names, and other ranks
            return {"error": f"the session {self._name!r} was replaced meanwhile. Run the cell again"}
        told = message.get("job")
        job = Job.from_json(json.loads(folder.job.read_bytes()) if told is None else told)
        lock = try_lock(folder.resume_lock)
        if lock is None:
            return {"error": f"another process already runs {folder.id}"}
        if message.get("number") is not None and not self._names.are(message["number"]):
            lock.release()
            return {"changed": True}
        try:
            self.take(folder, job, lock, message)
        except BaseException:
            lock.release()
            raise
        return {"ok": True, "run": folder.id}

    def about(self) -> dict[str, Any]:
        return {
            "name": self._name,
            "id": self._id,
            "backend": self.job.backend,
            "options": dict(self.job.options),
            "world_size": self.job.world_size,
            "created": self._created,
            "supervisor": dataclasses.asdict(self._me),
            "heartbeat": time.time(),
            "idle_since": None if self._present is not None else self._idle_since,
            "idle_timeout_s": self._idle_limit_s,
            "restart": (self.job.session or {}).get("restart"),
            "runs": None if self._present is None else self._present.request.folder.id,
            "queued": [one.request.folder.id for one in self._waiting],
            "notebook": self.job.notebook,
            "ranks": self.ranks.about(),
            "names": self.ranks.all[0].names,
            "takes_jobs": True,
        }

    def write(self) -> None:
        self._beaten = time.monotonic()
        if self._present is None:
            self._names.write()
        try:
            write_json(self._path / place.ABOUT, self.about())
        except OSError as error:  # on a full disk the session continues
            with contextlib.suppress(OSError):
                log(f"cannot write {place.ABOUT}: {error}")

    def end(self) -> None:
        """End the ranks, after their exit handlers, and all cells that wait."""
        log(f"the session ends: {self._ending}")
        self._answers.send()
        free_room(self._folder)
        state = State.FAILED if self._failed else State.STOPPED
        for waiting in self._waiting:
            waiting.refuse(f"the session {self._name} has ended: {self._ending}", state)
        self._waiting = []
        until = time.monotonic() + place.EXIT_LIMIT_S
        while self.ranks.ask_to_end() and time.monotonic() < until:
            try:
                self.turn(_TURN_S)
            except Exception:
                log(traceback.format_exc())
                break
        for rank in self.ranks.ask_to_end():
            log(f"rank {rank} has run exit handlers for {place.EXIT_LIMIT_S:g} s and is killed")
        released = self.ranks.end(self._connections.look)  # kernels get answers while a platform ends its job
        end_leftovers(self._id, *self._cells)
        self.guard.release()
        self._connections.close()
        told = "; ".join(filter(None, [None if self._ending == _CLOSED else self._ending, released]))
        if told:  # `%dist close` or the next cell with this name tells the user
            with contextlib.suppress(OSError):
                write_json(self._path / place.ENDED, {"why": told, "at": time.time()})
        for name in (place.SOCKET, place.ABOUT, place.NAMES):
            with contextlib.suppress(OSError):
                (self._path / name).unlink()
        self._next.remove()


def serve(folder: RunFolder, job: Job, lock: Lock, *, warm: bool, prepared: int | None) -> None:
    """Start the session of this job, whose first cell is in `folder`. Blocks until the session has ended."""
    assert job.session is not None
    name, until = str(job.session["name"]), time.monotonic() + _BEAT_S
    path = place.sessions_root(folder.path.parent) / name
    make_private(path)
    while (life := try_lock(path / place.LIFE_LOCK)) is None:  # the earlier session frees it last of all
        if (path / place.ABOUT).exists() or time.monotonic() > until:
            raise DistError(f"the session {name!r} runs already")
        time.sleep(0.01)
    server = Server(job, path, warm, prepared)
    server.take(folder, job, lock, job.session)
    try:
        server.ranks.start()
        server.guard.watch(server.ranks.pids)
        server.run()
    except BaseException as error:
        log(traceback.format_exc())
        server.fail(error)
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        server.end()
        life.release()
