"""Live display of a run under the cell or in the terminal. It returns when the run has ended.

A kernel gets one output. If the front-end has a live view, it draws the view. Otherwise jupyter-dist updates
a short tail of the log in place. So no output of a rank can exceed the server's limits or bloat the notebook.
Outside of kernels, lines are printed as they arrive.
"""

from __future__ import annotations

import itertools
import select
import socket
import time
from typing import TYPE_CHECKING, Literal, Protocol

from ..errors import DistError, LaunchError
from ..folder import RunFolder
from ..job import State, Status
from ..launch import submission
from ..manage import stop
from ..manage.rank_prompts import Prompts
from ..record import reader
from ..record.cursor import Tail
from ..record.file_changes import FileChanges, FileVersion, file_version
from ..text.safe import one_line
from . import failure_report
from .debugger.conversation import converse
from .display import command, in_kernel, kernel_ends
from .screens import KernelScreen, PlainScreen
from .summary_curves import SummaryCurves
from .view import View

if TYPE_CHECKING:
    from .run import Run

__all__ = ["Screen", "follow"]

_TAIL_BYTES = 16 << 10
_ALL_TAIL_BYTES = 1 << 20
_WHOLE_BYTES = 4 << 20
"""What one poll reads of all logs together, if every line is shown."""
_QUICK_S = 0.01
_SLOW_S = 0.1
_SILENT_S = 0.5
"""The pause after a while without output, if new output ends the pause. The view's seconds still change."""
_FLOOD_S = 0.2
_GLANCE_S = 0.01
_STAY_QUICK_S = 2.0


class Screen(Protocol):
    """Place where a view is drawn. Neither method raises if nobody can see it."""

    colour: bool
    keep: int
    raises: bool
    """Whether a failure follows as an exception."""

    whole: bool
    """Whether every line is drawn. Otherwise the end of a flood is drawn, and its other lines are counted."""

    @property
    def reads_along(self) -> bool:
        """Return whether new lines are drawn as they arrive."""

    def show(self, view: View, changed: bool) -> None:
        """Draw if needed. Called after every poll."""

    def pause(self, view: View) -> None:
        """Draw all lines, and remove what is redrawn in place, because the prompt of a rank follows."""

    def close(self, view: View) -> None:
        """Draw for the last time."""


def follow(
    run: Run,
    *,
    interrupt: Literal["stop", "leave"] = "stop",
    display: Screen | None = None,
    result: bool = False,
) -> None:
    """Show `run` until it has ended. Blocks.

    If the run is unwatched because its supervisor has died, this function starts another supervisor, once. If
    that does not help, the display ends.

    Args:
        interrupt: with "stop" an interrupt raises KeyboardInterrupt in the ranks, which then have time to
            save. A second interrupt kills the run, and a third one raises KeyboardInterrupt here. With
            "leave" an interrupt only ends the display. Jupyter also interrupts a kernel before it restarts
            or shuts it down. That interrupt only ends the display, too.
        result: the cell returns the run. Its summary is then part of the view, and is not shown again as the
            cell's result.
    """
    follower: _Follower | None = None
    interrupts = 0
    while True:
        try:
            if follower is None:
                screen = display or _screen(run if result else None, interrupt)
                follower = _Follower(run.folder, screen, answers=interrupt == "stop")
            if follower.interrupted(interrupts, interrupt) or follower.step():
                return
        except KeyboardInterrupt:
            # Interrupts are only counted here. The next iteration handles them, inside the `try`.
            interrupts += 1
        if interrupt == "stop" and interrupts > 2:
            if follower is not None:
                follower.close()
            raise KeyboardInterrupt


def _screen(result: Run | None, interrupt: str) -> Screen:
    raises = result is not None and interrupt == "stop"
    return KernelScreen(result, raises=raises) if in_kernel() else PlainScreen(raises=raises)


_unused: list[FileChanges] = []


class _Follower:
    """Reader of one run for one screen."""

    def __init__(self, folder: RunFolder, screen: Screen, *, answers: bool) -> None:
        """`answers`: let the user answer ranks that wait."""
        job = reader.job(folder)
        share = max(2 << 10, min(_TAIL_BYTES, _ALL_TAIL_BYTES // max(1, job.world_size)))
        self._folder = folder
        self._screen = screen
        self._answers = answers
        self._view = View(
            folder,
            job,
            keep=screen.keep,
            colour=screen.colour,
            raises=screen.raises,
            whole=screen.whole,
        )
        self._tail = Tail(
            folder,
            tail_bytes=None if screen.whole else share,
            metrics=False,
            read_bytes=_WHOLE_BYTES // max(1, job.world_size),
        )
        self._curves = SummaryCurves(folder)
        # Linux takes milliseconds to close a descriptor of inotify, so the next run gets this one.
        self._changes = _unused.pop() if _unused else FileChanges()
        self._written: select.poll | None = None
        fd = self._changes.fileno()
        if fd is not None and self._changes.watch(folder.path):
            self._written = select.poll()
            self._written.register(fd, select.POLLIN)
        self._pause = _QUICK_S
        self._quick_until = time.monotonic() + _STAY_QUICK_S
        self._answered = 0
        self._taken_on = False

    def interrupted(self, interrupts: int, answer: Literal["stop", "leave"]) -> bool:
        """Handle the interrupts so far. Returns true when the display has ended."""
        if interrupts == self._answered:
            return False
        self._answered = interrupts
        if answer == "leave" or (interrupts == 1 and kernel_ends()):
            self._view.note = (
                f"left; the run goes on. See it again: {command()} attach {self._folder.id}, "
                f"stop it: {command()} stop {self._folder.id}"
            )
            self.close()
            return True
        kill = self._answered > 1
        note = "killing … interrupt again to leave it" if kill else "stopping … interrupt again to kill it"
        try:
            stop.stop(self._folder, kill=kill, interrupt=True)
        except DistError as error:
            note = f"{error}; interrupt again"
        self._view.note = note
        self._screen.show(self._view, True)
        return False

    def close(self) -> None:
        if self._written is not None:
            self._written = None
            self._changes.clear()
            _unused.append(self._changes)
        self._screen.close(self._view)

    def step(self) -> bool:
        """Read, show and pause once. Returns true when the run has ended and all of it has been shown."""
        began = time.monotonic()
        seen = file_version(self._folder.state), file_version(self._folder.moment)
        batch = self._tail.poll()
        changed = self._view.feed(batch, began)
        self._curves.take(batch.status.attempt, began)
        if batch.status.state is State.UNWATCHED and not self._take_on(batch.status):
            self.close()
            return True
        if batch.status.state.ended:
            # Limited, because a lost run's ranks may still be writing.
            limit = None if self._screen.whole and batch.status.state is not State.LOST else 20
            for rest in itertools.islice(self._tail.drain(), limit):
                if self._screen.whole:  # a long log, which must not fill the memory
                    self._screen.show(self._view, True)
                self._view.feed(rest, time.monotonic())
            self._view.note = None
            self._view.end(time.monotonic())
            self.close()
            return True
        self._screen.show(self._view, changed)
        # With many ranks a poll takes long. The pause limits this loop to a quarter of a core.
        least_s = 3 * (time.monotonic() - began)
        if batch.status.waits and self._answers and not self._answered:
            self._converse()
        now = time.monotonic()
        if batch.skipped:
            # The log grows faster than can be shown. Frequent reads would only take CPU time from the ranks.
            self._pause = _FLOOD_S
        elif changed:
            # Our own view draws by itself, so slower polls leave the CPU to the ranks.
            self._pause = _QUICK_S if self._screen.reads_along else _SLOW_S
            self._quick_until = now + _STAY_QUICK_S
        elif now > self._quick_until:
            self._pause = min(self._longest_s(batch.status), 1.2 * self._pause)
        slow_s = max(_FLOOD_S if batch.skipped else _SLOW_S, least_s)
        self._rest(max(self._pause, least_s), slow_s, *seen)
        return False

    def _converse(self) -> None:
        """Let the user answer the ranks that wait. Blocks. An interrupt stops the run, as always.

        The supervisor may still report a prompt that is answered. Then nothing is drawn, because the next
        lines of several ranks may be equal and are shown once.
        """
        converse(Prompts(self._folder), until_all_run=True, begin=self._pause_screen)

    def _pause_screen(self) -> None:
        self._view.feed(self._tail.poll(), time.monotonic())
        self._screen.pause(self._view)

    def _take_on(self, status: Status) -> bool:
        """Start another supervisor for the run, once. Returns false if that did not help."""
        if self._taken_on:
            self._view.note = f"{one_line(status.reason or 'unwatched', 200)}; {failure_report.cure(status)}"
            return False
        self._taken_on = True
        self._view.note = "the supervisor of the run is gone; starting a new one …"
        self._screen.show(self._view, True)
        try:
            submission.resume(self._folder)
        except LaunchError as error:
            self._view.note = one_line(str(error), 400)
            return False
        self._view.note = None
        return True

    def _longest_s(self, status: Status) -> float:
        """Return the longest pause. A supervisor of this host notes new output in a watched file."""
        if status.state is not State.RUNNING or self._view.job.tuning is not None:
            return _SLOW_S
        supervisor = status.supervisor
        is_here = supervisor is not None and supervisor.host == socket.gethostname()
        return _SILENT_S if is_here and self._written is not None else _SLOW_S

    def _rest(self, seconds: float, slow_s: float, state: FileVersion, output: FileVersion) -> None:
        """Sleep until `seconds` have passed or the run's state has been written since `state`.

        After `slow_s`, output that was noted since `output` ends the pause too. So the end and new lines are
        shown at once. A notification replaces 100 looks a second, which would take CPU time from the ranks.
        """
        now = time.monotonic()
        until, slow = now + seconds, now + slow_s
        while (now := time.monotonic()) < until:
            if file_version(self._folder.state) != state:
                return
            if now >= slow and file_version(self._folder.moment) != output:
                return
            left = (until if now >= slow else min(slow, until)) - now
            if self._written is None:
                time.sleep(min(left, _GLANCE_S))
            elif self._written.poll(1e3 * left):
                self._changes.take()
