"""Show a run under the cell, or in the terminal, while it runs; return when it has ended.

A kernel gets one output: a live view where the front-end has one, else a bounded tail that is updated
in place, so that nothing a rank prints can trip the server's limits or bloat the notebook. Elsewhere
lines are printed as they come.
"""

from __future__ import annotations

import itertools
import os
import time
from typing import TYPE_CHECKING, Literal, Protocol

from ..errors import DistError, LaunchError
from ..folder import RunFolder
from ..job import State, Status
from ..launch import submission
from ..manage import stop
from ..record import reader
from ..record.cursor import Tail
from ..text.safe import one_line
from . import failure_report
from .display import command, in_kernel, kernel_is_ending
from .screens import KernelScreen, PlainScreen
from .summary_curves import SummaryCurves
from .view import View

if TYPE_CHECKING:
    from .run import Run

__all__ = ["Screen", "follow"]

_TAIL_BYTES = 16 << 10
_ALL_TAIL_BYTES = 1 << 20
_QUICK_S = 0.01
_SLOW_S = 0.1
_FLOOD_S = 0.2
_GLANCE_S = 0.01
_STAY_QUICK_S = 2.0
_RESTART_FOLLOWS_S = 0.5


class Screen(Protocol):
    """Where a view is shown. Neither method raises when nobody is there to see it."""

    colour: bool
    keep: int
    raises: bool
    """Whether a failure follows as an exception."""

    @property
    def reads_along(self) -> bool:
        """Whether what comes is drawn as it comes."""

    def show(self, view: View, changed: bool) -> None:
        """Called after every poll, many times a second; decides itself when to draw."""

    def close(self, view: View) -> None:
        """Draw for the last time."""


def follow(
    run: Run,
    *,
    interrupt: Literal["stop", "leave"] = "stop",
    display: Screen | None = None,
    result: bool = False,
) -> None:
    """Show `run` until it has ended.

    A run that is unwatched, because its supervisor has died, gets another one, once; the showing ends where
    that does not help.

    `result` says that the run is what the cell returns: its summary is then shown with the view, and
    not once more as the result.

    An interrupt stops the run (`interrupt="stop"`; a second one kills it, a third one leaves with
    KeyboardInterrupt), or ends the showing alone (`interrupt="leave"`). The interrupt that Jupyter
    sends before it restarts or shuts down a kernel ends the showing alone, too.
    """
    follower: _Follower | None = None
    interrupts = 0
    while True:
        try:
            if follower is None:
                follower = _Follower(run.folder, display or _screen(run if result else None, interrupt))
            if follower.interrupted(interrupts, interrupt) or follower.step():
                return
        except KeyboardInterrupt:
            # Only counted here; answered at the top, where another one is caught again.
            interrupts += 1
        if interrupt == "stop" and interrupts > 2:
            if follower is not None:
                follower.close()
            raise KeyboardInterrupt


def _screen(result: Run | None, interrupt: str) -> Screen:
    raises = result is not None and interrupt == "stop"
    return KernelScreen(result, raises=raises) if in_kernel() else PlainScreen(raises=raises)


def _kernel_ends() -> bool:
    """Whether the interrupt is the first half of a kernel's restart or shutdown, which a run outlives.

    Jupyter interrupts a kernel before it asks it to end; the request comes on another thread.
    """
    deadline = time.monotonic() + _RESTART_FOLLOWS_S
    while in_kernel() and time.monotonic() < deadline:
        if kernel_is_ending():
            return True
        time.sleep(_QUICK_S)
    return False


class _Follower:
    """One run, one screen, and where reading stands."""

    def __init__(self, folder: RunFolder, screen: Screen) -> None:
        job = reader.job(folder)
        share = max(2 << 10, min(_TAIL_BYTES, _ALL_TAIL_BYTES // max(1, job.world_size)))
        self._folder = folder
        self._screen = screen
        self._view = View(folder, job, keep=screen.keep, colour=screen.colour, raises=screen.raises)
        self._tail = Tail(folder, tail_bytes=share, metrics=False)
        self._curves = SummaryCurves(folder)
        self._pause = _QUICK_S
        self._quick_until = time.monotonic() + _STAY_QUICK_S
        self._answered = 0
        self._taken_on = False

    def interrupted(self, interrupts: int, answer: Literal["stop", "leave"]) -> bool:
        """Answer the interrupts so far; true when the showing is over."""
        if interrupts == self._answered:
            return False
        self._answered = interrupts
        if answer == "leave" or (interrupts == 1 and _kernel_ends()):
            self._view.note = (
                f"left; the run goes on. See it again: {command()} attach {self._folder.id}, "
                f"stop it: {command()} stop {self._folder.id}"
            )
            self._screen.close(self._view)
            return True
        kill = self._answered > 1
        note = "killing … interrupt again to leave it" if kill else "stopping … interrupt again to kill it"
        try:
            stop.stop(self._folder, kill=kill)
        except DistError as error:
            note = f"{error}; interrupt again"
        self._view.note = note
        self._screen.show(self._view, True)
        return False

    def close(self) -> None:
        self._screen.close(self._view)

    def step(self) -> bool:
        """Read, show, pause; true when the run has ended and all of it has been shown."""
        began = time.monotonic()
        written = self._state_written()
        batch = self._tail.poll()
        changed = self._view.feed(batch, began)
        self._curves.take(batch.status.attempt, began)
        if batch.status.state is State.UNWATCHED and not self._take_on(batch.status):
            self._screen.close(self._view)
            return True
        if batch.status.state.ended:
            # Bounded: of a lost run somebody may still be writing.
            for rest in itertools.islice(self._tail.drain(), 20):
                self._view.feed(rest, began)
            self._view.note = None
            self._view.end(time.monotonic())
            self._screen.close(self._view)
            return True
        self._screen.show(self._view, changed)
        now = time.monotonic()
        if batch.skipped:
            # More comes than can be shown: reading it often would only cost the ranks their cores.
            self._pause = _FLOOD_S
        elif changed:
            # A view of ours draws by itself, and the ranks want the cores.
            self._pause = _QUICK_S if self._screen.reads_along else _SLOW_S
            self._quick_until = now + _STAY_QUICK_S
        elif now > self._quick_until:
            self._pause = min(_SLOW_S, 1.2 * self._pause)
        # With many ranks a poll takes long: never more than a quarter of a core.
        self._rest(max(self._pause, 3 * (now - began)), written)
        return False

    def _take_on(self, status: Status) -> bool:
        """Give the run another supervisor, once; false where that did not help: then nothing more comes."""
        if self._taken_on:
            self._view.note = f"{one_line(status.reason or 'unwatched', 200)}; {failure_report.cure(status)}"
            return False
        self._taken_on = True
        self._view.note = "its supervisor is gone; another one takes the run on …"
        self._screen.show(self._view, True)
        try:
            submission.resume(self._folder)
        except LaunchError as error:
            self._view.note = one_line(str(error), 400)
            return False
        self._view.note = None
        return True

    def _rest(self, seconds: float, written: int) -> None:
        """Sleep, but not when the state is newer than the one `written` then: an end is shown at once."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._state_written() != written:
                return
            time.sleep(min(left, _GLANCE_S))

    def _state_written(self) -> int:
        try:
            return os.stat(self._folder.state).st_mtime_ns
        except OSError:
            return 0
