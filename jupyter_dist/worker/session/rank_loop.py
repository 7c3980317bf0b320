"""The main loop of a session's rank: one cell after the other, until the session ends.

The session's supervisor sends these messages, and the rank answers three of them:

    {"do": "wake", "code": […]}   compile the source that a cell will probably have
    {"do": "check", "names": […]}      → {"changed": […]}: which of the notebook's names have changed here
    {"do": "close"}     → {"closed": true}: close the process groups, because another rank has failed
    {"do": "cell", "run", "folder", "env", "keep", "reopen"}   → {"done": exit code, …}
    {"do": "leave", "of", "signal"}   signal the cell, and leave the collectives that wait for another rank
    {"do": "end"}       end the process
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from .. import boot, debugger, steps
from ..api import cell_state, file_barrier
from ..autolog import tensorboard
from ..output import events
from ..rank import calls, cell, main_snapshot
from ..stack_signals import ALL_STACKS_SIGNAL
from . import channel, gloo_sockets, nccl_groups, process_group, thread_output
from .global_reads import global_reads
from .kept_names import KeptNames
from .notebook_process import NotebookProcess

__all__ = ["serve"]


_CLOSE_GROUP_S = 5.0
_WAKE = ALL_STACKS_SIGNAL + 1 if hasattr(signal, "SIGRTMIN") else 0
"""The signal that only ends a wait. 0 where there are no real-time signals."""
_WAKES_S = (0.05, 0.2, 0.5, 1.0)
"""Pauses before each of these signals. On a busy machine, the main thread may begin to wait late."""
_OWN_GROUP = (
    "The process group was closed, because a cell has failed. Open it again with init_process_group(). A "
    "group of dist.init() opens again by itself."
)
_GPU_ERROR = (
    "rank {rank} ends, because its GPU can do nothing more in this process ({error}). The next cell starts a "
    "fresh process in its place"
)


class _Requests:
    """Signals for cells. A rank ignores signals between cells, so one may arrive before its cell begins.

    The thread that signals can get the GIL just when the main thread releases it to wait in C code, such as
    `time.sleep`. The main thread then notes the signal before it waits, and would handle it after the wait.
    Another signal ends the wait.
    """

    def __init__(self) -> None:
        if _WAKE:
            signal.signal(_WAKE, lambda signum, frame: None)
        self._lock = threading.Lock()
        self._present: str | None = None
        self._early: dict[str, int] = {}
        """Cells that have not begun, and their signals."""

    def signal(self, of: str, signum: int) -> None:
        """Signal a cell now, or as soon as it begins. The thread that reads calls this.

        A cell that runs also leaves its collectives. After its end they are new, and must stay.
        """
        with self._lock:
            if self._present == of:
                signal.pthread_kill(threading.main_thread().ident or 0, signum)
                threading.Thread(target=self._wake, args=(of,), daemon=True).start()
                process_group.leave()
            else:
                self._early[of] = signum

    def _wake(self, of: str) -> None:
        """End a wait of the main thread that has begun in the moment of the signal."""
        for pause_s in _WAKES_S if _WAKE else ():
            time.sleep(pause_s)
            with self._lock:
                if self._present != of:
                    return
                signal.pthread_kill(threading.main_thread().ident or 0, _WAKE)

    def begin(self, of: str) -> None:
        """Begin a cell. Raises KeyboardInterrupt or Terminated if its signal has arrived already."""
        with self._lock:
            self._present, early = of, self._early.get(of)
            self._early.clear()
        if early is not None:
            signal.raise_signal(early)

    def end(self) -> None:
        with self._lock:
            self._present = None


class _Inbox:
    """The supervisor's messages. The main thread reads them itself when it waits for one.

    A thread reads them at all other times, also while the main thread waits in a collective.
    """

    def __init__(self, link: channel.Channel, leave: Callable[[str, int], None]) -> None:
        """`leave`: signals a cell. Either thread calls it."""
        self._link, self._leave = link, leave
        self._pid = os.getpid()
        self._reading = threading.Lock()
        self._arrived: list[dict[str, Any]] = []
        """Messages for the main thread that the other thread has read."""
        # The thread stays in `select`. The link is registered in its turns only: see epoll(7) and kqueue(2).
        self._selector = selectors.DefaultSelector()
        self._selector.register(link, selectors.EVENT_READ)
        threading.Thread(target=self._listen, name="jupyter-dist-session", daemon=True).start()

    def next(self) -> dict[str, Any]:
        """Return the next message for the main thread. Blocks."""
        with self._reading:
            self._selector.unregister(self._link)
        while not self._arrived:
            self._read()
        self._selector.register(self._link, selectors.EVENT_READ)
        return self._arrived.pop(0)

    def _listen(self) -> None:
        while True:
            self._selector.select()
            with self._reading:
                if self._selector.select(0):  # otherwise the main thread has read the message
                    self._read()

    def _read(self) -> None:
        """Read once, and take all messages of it. `select` would not return for one that was read before."""
        messages = self._link.arrived()
        for message in [None] if messages is None else messages:
            self._take(message)

    def _take(self, message: dict[str, Any] | None) -> None:
        if message is None or os.getpid() != self._pid:
            os._exit(1)  # the supervisor has ended, and the guard ends the other processes
        if message["do"] == "leave":
            self._leave(message["of"], message["signal"])
        else:
            self._arrived.append(message)


class _Rank:
    def __init__(self, link: channel.Channel) -> None:
        self._link = link
        self._pid = os.getpid()
        self._names = KeptNames()
        self._notebook = NotebookProcess()
        self._requests = _Requests()
        self._inbox = _Inbox(link, self._requests.signal)
        self._gpu_error: str | None = None
        """An error of the GPU that lasts as long as this process. The rank ends with it."""
        self._closed = False
        """Whether the groups are closed since the last cell."""
        self._notes: list[str] = []
        """Notes on groups that were closed, until a cell's events show them."""
        self._threads = thread_output.install()

    def serve(self) -> None:
        self._link.send({"rank": int(os.environ["RANK"]), "pid": self._pid})
        while True:
            message = self._inbox.next()
            if message["do"] == "end":
                return
            if message["do"] == "wake":
                cell.compile_ahead(*message["code"])
                continue
            if message["do"] == "check":
                self._link.send({"of": message["of"], "changed": self._names.changed(message["names"])})
                continue
            if message["do"] == "close":
                if not self._closed:
                    self._group(closed=True)
                self._closed = True
                self._link.send({"of": message["of"], "closed": True})
                continue
            code, orderly = self._run(message)
            forked = os.getpid() != self._pid  # by the cell
            if forked or self._gpu_error is not None:
                boot.end(code, orderly=orderly)

    def _run(self, message: Mapping[str, Any]) -> tuple[int, bool]:
        self._notebook.follow(message["environ"], message["cwd"])
        os.environ.update(message["env"])
        self._names.keep = message["keep"]
        code, orderly = 128 + 15, False
        try:
            steps.renew()
            calls.forget_all()
            cell_state.step = -1
            file_barrier.renew()
            tensorboard.renew()
            boot.move(Path(message["folder"]))
            self._requests.begin(os.path.basename(message["run"]))
            self._show([*message["notes"], *self._notes])
            self._names.first, self._names.tells = message["on_start"], message["tells"]
            self._closed = False
            process_group.begin_cell(self._names.main.__dict__, reopen=message["reopen"])
            code, orderly = cell.run(Path(message["run"]), Path(message["folder"]), self._names)
        except (boot.Terminated, KeyboardInterrupt):  # right before the cell, or after its end
            orderly = False
        except Exception:  # a full disk, or a process group that does not open
            code, orderly = 1, False
            with contextlib.suppress(Exception):
                traceback.print_exc()
        boot.hold_requests()
        if os.getpid() != self._pid:
            return code, orderly
        self._requests.end()
        failed = code != 0
        group, self._closed = self._group(closed=failed), failed
        self._gpu_error = nccl_groups.gpu_error() if failed else None
        if self._gpu_error is not None:
            self._notes.append(_GPU_ERROR.format(rank=os.environ["RANK"], error=self._gpu_error))
        self._show(self._notes)
        main_snapshot.clear()
        boot.flush()
        events.close()
        self._threads.end_cell()
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            if hasattr(sys, name):
                delattr(sys, name)
        done = {
            "of": os.path.basename(message["run"]),
            "done": code,
            "assigned": self._names.assigned(succeeded=not failed),
            "installed": self._names.installed,
            "names": self._names.kinds(),
            "uses": global_reads(self._names.main.__dict__),
            "group": group,
            "gpu_memory": _gpu_memory(),
            "prepared": not self._names.first,
        }
        if self._gpu_error is None:  # otherwise the cell ends with the process: no cell is sent to this one
            self._link.send(done)
        if debugger.forget() or failed:
            gc.collect()  # an error and its frames refer to each other, and to what the cell has made
        return code, orderly

    def _group(self, *, closed: bool) -> str | None:
        """Return the communicator of a process group that the next cell opens again if it is closed.

        `closed`: close the group first, and those of Horovod and TensorFlow.
        """
        if not closed:
            group = gloo_sockets.communicator()
            return group if process_group.opens_again() else None
        group, notes = process_group.close()
        own = group is not None and not process_group.opens_again()
        if own:
            notes.append(_OWN_GROUP)
        if os.environ["RANK"] == "0":
            self._notes += notes
        return None if own else group

    def _show(self, notes: list[str]) -> None:
        """Show notes in the present cell. Those that this rank has kept are then shown."""
        writer = events.writer()
        if writer is not None:
            for note in notes:
                writer.note(note)
            self._notes = []


def _gpu_memory() -> int | None:
    """Return the bytes that torch has reserved on this rank's GPUs; None if the rank uses none."""
    if not nccl_groups.is_in_use():
        return None
    cuda = sys.modules["torch"].cuda
    return sum(int(cuda.memory_reserved(device)) for device in range(cuda.device_count()))


def serve(folder: Path) -> NoReturn:
    """Serve the session in this folder, then end the process. The rank's files are set up."""
    link = channel.connect(folder)
    boot.hold_requests()
    process_group.watch()
    cell_state.of_session = True
    _Rank(link).serve()
    closing = threading.Thread(target=gloo_sockets.close_group, daemon=True)
    closing.start()
    closing.join(_CLOSE_GROUP_S)  # a group of NCCL can wait for ranks that have ended
    boot.end(0, orderly=False, last=main_snapshot.clear)
