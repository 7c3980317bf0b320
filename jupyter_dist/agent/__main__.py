"""The agent of a run on a host: starts ranks there, sends their files to the driver, and ends them.

The agent is detached from the login that started it. If the driver disconnects, the agent and its ranks
continue. A new driver sends the sizes of its files, and the agent continues from there. If no driver
connects for the grace time, the agent ends its ranks and itself. One loop, no threads.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Any

from ..worker.boot import TO_SAVE_S, ignore_requests, set_name
from ..worker.host import machine
from ..worker.host.os_errors import reason
from ..worker.host.ports import available_ports
from ..worker.host.usage import HostUsage
from ..worker.line_file import write_all
from ..worker.process_groups import reap_killed
from .children import Child, Children, end_leftovers, start_guard
from .driver import Driver
from .frames import Frame, FrameError
from .host_gpus import HostGpus
from .line_times import LineTimes
from .notices import write_notice
from .session_ranks import SessionRanks
from .stage_program import remove
from .start_script import write_start_script
from .tail import Tails, checkpoints

__all__ = ["Agent", "main"]

_BUSY_S, _IDLE_S = 0.02, 0.25
_REACH_S = 3.0
"""Timeout of a connection to another host: shorter than a driver waits before it gives this agent up."""
_IDLE_GRACE_S = 30.0
"""Grace time without a driver if the agent has never started a process."""
_TERM_S = 5.0
"""Seconds from SIGTERM to SIGKILL after the grace time, without a rank that has its own handler."""
_TELL_S = 3.0
"""How long the agent tries to report the end of the ranks to a connected driver."""
_HOLD_S = 10.0  # how long an end is not reported if the process's output cannot be read
_TOUCH_EVERY_S = 3600.0


class Agent:
    """Server of one stage folder, until the driver releases it or no driver connects."""

    def __init__(self, stage: str) -> None:
        with open(os.path.join(stage, "agent.json")) as file:
            settings = json.load(file)
        self._stage = stage
        self._kept: dict[str, float] = settings.get("kept") or {}
        self._grace_s = float(settings["grace_s"])
        self._stop_grace_s: float | None = settings.get("stop_grace_s")
        self._term_s = _TERM_S
        self._idle_s = min(self._grace_s, float(settings.get("idle_s") or _IDLE_GRACE_S))
        self._selector = selectors.DefaultSelector()
        self._driver = Driver(self._selector)
        self._children = Children(stage, int(settings.get("umask", 0o022)))
        self._tails = Tails(os.path.join(stage, "run"))
        self._times = LineTimes(os.path.join(stage, "run"))
        self._usage = HostUsage(os.path.join(stage, "run"))
        self._gpus = HostGpus()
        self._session = (
            SessionRanks(stage, self._children, self._selector) if settings.get("session") else None
        )
        self._guard = start_guard(stage)
        self._watched: list[int] = []
        self._news: Iterator[Frame] | None = None
        self._told: set[str] = set()
        """Ids of the processes whose end this connection has reported."""
        self._hindered: str | None = None
        """What this connection has reported about files that the agent cannot read."""
        self._greeted = False
        self._heard = self._touched = time.monotonic()
        self._forsaken: float | None = None
        self._place_gone = False
        """Whether the agent ends because its reservation on the host ended, and not for lack of a driver."""
        self._termed = self._killed = self._releasing = self._sent = self._done = False
        self._listen()

    def _listen(self) -> None:
        os.chdir(self._stage)
        with contextlib.suppress(FileNotFoundError):
            os.unlink("agent.sock")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind("agent.sock")
        self._listener.listen(4)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake, write = os.pipe()
        for fd in (self._wake, write):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        ignore_requests()
        signal.signal(signal.SIGTERM, self._on_term)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self._selector.register(self._wake, selectors.EVENT_READ)
        # The other end of this pipe is in the process that a foreign scheduler started for the run.
        self._lifeline = int(os.environ.pop("JUPYTER_DIST_LIFELINE", "") or -1)
        if self._lifeline >= 0:
            os.set_inheritable(self._lifeline, False)
            self._selector.register(self._lifeline, selectors.EVENT_READ)

    def _on_term(self, *_: object) -> None:
        if self._forsaken is None:
            self._forsaken, self._place_gone = time.monotonic(), True

    def serve(self) -> None:
        """Serve until the agent's work is done. Blocks."""
        while not self._done:
            try:
                self._turn()
            except Exception:
                # The agent's end would end the ranks, so the agent survives any error.
                with contextlib.suppress(OSError):
                    traceback.print_exc()
                self._hang_up()
                time.sleep(_BUSY_S)

    def _turn(self) -> None:
        self._times.tick()
        self._usage.tick(time.monotonic())
        if self._session is not None:
            self._session.tick()
        self._reap()
        self._fill()
        self._look_at_clock()
        for key, mask in self._selector.select(self._pause()):
            if key.data is not None:
                key.data()
            elif key.fileobj is self._listener:
                self._accept()
            elif key.fileobj == self._wake:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake, 4096)
            elif key.fileobj == self._lifeline:
                self._pull()
            elif key.fileobj is self._driver.socket:
                if mask & selectors.EVENT_WRITE and not self._driver.send():
                    self._hang_up()
                if mask & selectors.EVENT_READ and self._driver.socket is not None:
                    self._receive()

    def _pull(self) -> None:
        """Read the lifeline. If it is closed, the run's reservation on this host has ended."""
        with contextlib.suppress(OSError):
            if os.read(self._lifeline, 4096):
                return
        _log("who held this place is gone")
        self._selector.unregister(self._lifeline)
        os.close(self._lifeline)
        self._lifeline = -1
        self._on_term()

    def _pause(self) -> float:
        if self._done or (self._news is not None and not self._driver.is_full):
            return 0.0
        busy = self._children.running if self._session is None else self._session.is_busy
        return _BUSY_S if self._greeted and busy else _IDLE_S / 4

    def _accept(self) -> None:
        try:
            newcomer, _ = self._listener.accept()
        except OSError:
            return
        self._hang_up()  # the newest connection is the only valid one
        self._driver.take(newcomer)

    def _hang_up(self) -> None:
        self._driver.hang_up()
        self._greeted, self._news = False, None

    def _receive(self) -> None:
        try:
            frames = self._driver.receive()
        except FrameError as error:
            _log(str(error))
            frames = None
        if frames is None:
            self._hang_up()
            return
        self._heard = time.monotonic()
        for header, body in frames:
            self._obey(header, body)

    def _obey(self, wish: dict[str, Any], body: bytes) -> None:
        do = wish.get("do")
        if do == "ping":
            memory = {} if self._session is None else {"memory": self._session.memory}
            self._say({"is": "pong", "ping": wish["ping"], "time": time.time(), **memory})
        elif do == "hello":
            self._greeted = True
            self._news, self._told, self._sent, self._hindered = None, set(), False, None
            self._tails.restart(wish["have"])
            told: dict[str, Any] = {"known": [child.id for child in self._children]}
            if self._session is not None:
                self._session.restart(wish["session"])
                told["session"] = self._session.facts
            self._say({"is": "facts", **told, **machine.facts(self._stage)})
            for child in self._children:
                self._say({"is": "started", **child.to_json()})
        elif do == "ports":
            self._say({"is": "ports", "ports": available_ports(wish["count"])})
        elif do == "lease":
            self._say({"is": "leased", **self._gpus.take(wish["wish"])})
        elif do == "reach":
            self._say({"is": "reached", "why": machine.unreached(wish["places"], _REACH_S)})
        elif do == "start":
            for each in wish["processes"]:
                child = self._children.start(each)
                self._watch()
                self._say({"is": "started", **child.to_json()})
        elif do == "signal":
            if wish.get("interrupt"):
                self._children.interrupt()
            else:
                self._children.signal(kill=wish["kill"], only=wish.get("only"))
        elif do == "tell":
            write_notice(os.path.join(self._stage, "run"), wish["path"], wish["text"])
        elif do == "stacks":
            self._children.stacks()
        elif do == "prepare":
            self._prepare(wish["env"], wish["python"])
        elif do == "release":
            self._releasing = True
            self._children.signal(kill=True)
        elif do == "remove":
            self._end()
            if self._session is not None:
                self._session.close()
            remove(self._stage, keep_run=wish["keep_run"])
            self._say({"is": "released"})
        elif self._session is not None:
            answer = self._session.obey(wish, body)
            if answer is not None:
                self._say(answer)

    def _prepare(self, env: dict[str, str], python: str) -> None:
        try:
            write_start_script(self._stage, env, python)
        except OSError as error:
            self._say({"is": "trouble", "why": f"cannot write the start script: {reason(error)}"})
        else:
            self._say({"is": "prepared"})

    def _reap(self) -> None:
        if self._children.reap():
            self._watch()

    def _watch(self) -> None:
        """Send the guard the present process groups."""
        pids = sorted(child.pid for child in self._children.running)
        if pids != self._watched:
            self._watched = pids
            with contextlib.suppress(OSError):
                write_all(self._guard, (" ".join(map(str, pids)) + "\n").encode())

    def _fill(self) -> None:
        """Queue new output for the driver, as fast as the driver reads."""
        if not self._greeted:
            return
        if self._news is None:
            self._news = self._gather()
        while self._news is not None and not self._driver.is_full:
            frame = next(self._news, None)
            if frame is None:
                self._news = None
                return
            self._say(*frame)

    def _gather(self) -> Iterator[Frame]:
        if self._session is not None:
            yield from self._session.news()
        for child in list(self._children):
            if child.end is not None and child.id not in self._told:
                # The whole output precedes the end: a driver that knows the end then has all output.
                yield from self._tails.rest(None if child.rank is None else child.folder)
                if self._session is not None:
                    yield from self._session.rest(child)
                if self._tails.trouble and time.time() - child.end["ended"] < _HOLD_S:
                    continue
                self._told.add(child.id)
                yield self._ended(child), b""
        yield from self._tails.pieces()
        if self._tails.trouble != self._hindered:
            self._hindered = self._tails.trouble
            yield {"is": "hindered", "why": self._hindered}, b""
        if self._releasing and not self._sent and not self._children.running:
            self._sent = True
            yield from checkpoints(os.path.join(self._stage, "run"), self._kept)
            yield {"is": "sent"}, b""

    def _ended(self, child: Child) -> dict[str, Any]:
        free = machine.free_disk(os.path.join(self._stage, "run"))
        return {"is": "ended", **child.to_json(), "free_disk": free}

    def _say(self, header: dict[str, Any], body: bytes = b"") -> None:
        if not self._driver.say(header, body):
            self._hang_up()

    def _look_at_clock(self) -> None:
        """End the ranks, then this agent, if no driver has connected for the grace time."""
        now = time.monotonic()
        if now - self._touched > _TOUCH_EVERY_S:
            self._touched = now
            with contextlib.suppress(OSError):
                os.utime(self._stage)  # stage_program.py removes old stages
        grace_s = self._grace_s if list(self._children) else self._idle_s
        if self._forsaken is None and now - self._heard > grace_s:
            _log(f"no driver for {grace_s:g} s")
            self._forsaken = now
            self._hang_up()
        if self._forsaken is None:
            return
        running = self._children.running
        if not running:
            if self._has_to_tell and now - self._forsaken < self._term_s + _TELL_S:
                return
            self._end()
            if self._session is not None:
                self._session.close()
                remove(self._stage, keep_run=self._session.keeps_files)  # nobody resumes a session
            elif not list(self._children):
                remove(self._stage)  # no driver needs it: no process has run
        elif not self._termed:
            saves = (self._session and self._session.handles_sigterm) or self._children.handle_sigterm()
            default_s = TO_SAVE_S if saves else _TERM_S
            self._termed, self._term_s = True, default_s if self._stop_grace_s is None else self._stop_grace_s
            self._children.signal(kill=False, place_gone=self._place_gone)
        elif not self._killed and now - self._forsaken > self._term_s:
            self._killed = True
            self._children.signal(kill=True)

    @property
    def _has_to_tell(self) -> bool:
        """Return whether a connected driver has not received everything."""
        if not self._greeted:
            return False
        unsent = self._driver.waits or self._news is not None
        return unsent or any(c.id not in self._told for c in self._children)

    def _end(self) -> None:
        self._done = True
        with contextlib.suppress(OSError):
            write_all(self._guard, b"done\n")
            os.close(self._guard)
        end_leftovers(self._stage)
        for child in self._children.running:
            reap_killed(child.pid)
        self._gpus.release()


def _log(text: str) -> None:
    with contextlib.suppress(OSError):
        print(time.strftime("%H:%M:%S"), text, flush=True)


def main(stage: str, ready: int) -> None:
    """Serve the stage. Writes `+` to the descriptor `ready` when drivers can connect. Blocks."""
    os.umask(0o077)
    agent = Agent(stage)
    set_name("jdist agent")
    os.write(ready, b"+")
    os.close(ready)
    _log(f"agent {os.getpid()}")
    agent.serve()
    _log("the end")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
