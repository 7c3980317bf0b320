"""Screens for a live view: one output of a notebook cell, updated in place, or a stream of lines."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

from ..job import State
from ..text.fold import Entry, pick
from ..text.safe import clean
from ..text.terminal_width import cut
from . import display as _display
from . import frontends
from .view import LONGEST_LINE, View

if TYPE_CHECKING:
    from .run import Run

__all__ = ["KernelScreen", "PlainScreen", "kernel_text"]

_LINES = 40
_WIDTH = 300
_MAX_BYTES = 12_000
_BURST = 5
"""Draws without a pause: the start, the start of the first and of the last rank, and their first lines."""
_CODE_AFTER_S = 5.0
"""If a run lasts longer, its notebook may be saved meanwhile, and then needs the view's code."""


class KernelScreen:
    """One output of a cell. Its size does not depend on what the ranks print.

    The first output has all MIME types. Our labextension and our widget then draw the run themselves, and
    the output is not updated. An update would make JupyterLab create a new view of the widget.
    Other front-ends get the text updated in place, at first up to five times a second. Updates become rarer
    in a long run: if the browser is closed, the server stores each update until the browser returns. Our
    labextension ignores these updates, because its data stays the same.

    At the end, the output becomes what a saved notebook shows. `result` is the run that the cell returns. If
    it is given, the output contains the run's summary. `raises`: a failure follows as an exception.
    """

    colour = True
    keep = 10 * _LINES
    whole = False

    def __init__(self, result: Run | None = None, *, raises: bool = False) -> None:
        self._result = result
        self.raises = raises
        self._handle: Any = None
        self._view: dict[str, Any] = {}
        self._note: str | None = None
        self._tokens = float(_BURST)
        self._born = self._refilled = self._drawn = time.monotonic()
        self._pending = False

    @property
    def reads_along(self) -> bool:
        return not self._view

    def show(self, view: View, changed: bool) -> None:
        now = time.monotonic()
        age = now - self._born
        if self._view:
            self._say(view)
            if age > _CODE_AFTER_S:  # the notebook may be saved before the run ends
                with contextlib.suppress(Exception):
                    _display.send_view_code()
            return
        every = min(2.0, max(0.2, age / 300))
        self._tokens = min(_BURST, self._tokens + (now - self._refilled) / every)
        self._refilled = now
        self._pending = self._pending or changed
        ticks = now - self._drawn > min(10.0, max(1.0, age / 60))  # the elapsed time changes
        if (self._pending or ticks) and self._tokens >= 1:
            self._tokens -= 1
            self._drawn = now
            self._pending = False
            self._draw(view)

    def pause(self, view: View) -> None:
        """Draw what the throttle has kept back. The prompt appears below the display."""
        if not self._view and self._pending:
            self._drawn, self._pending = time.monotonic(), False
            self._draw(view)

    def close(self, view: View) -> None:
        self._draw(view, last=True)

    def _draw(self, view: View, last: bool = False) -> None:
        # An error between here and the browser must not stop the run or the handling of its end.
        with contextlib.suppress(Exception):
            self._view = self._view or _display.widget_view(view.folder, blocking=True)
        if last:
            with contextlib.suppress(Exception):
                _display.end_widget(view.folder)
        text, html = kernel_text(view, time.time()), None
        if last and self._result is not None:
            text, html = self._ending(view, text, self._result)
        with contextlib.suppress(Exception):
            from IPython.display import display

            data = _display.bundle(view.folder, text=text, html=html, view=self._view)
            if self._handle is None:
                self._handle = display(data, raw=True, display_id=True)
                frontends.probe()
            else:
                self._handle.update(data, raw=True)
            if last:
                _display.send_view_code()
            if last and self._result is not None:
                self._result._is_shown()

    def _ending(self, view: View, text: str, run: Run) -> tuple[str, str | None]:
        summary = run._summary()
        if summary is None:
            return text, None
        status = view.status
        html = _display.static_html(summary.html(), "" if summary.has_log else text)
        if self.raises and status is not None and status.state.ended and status.state is not State.SUCCEEDED:
            return f"{summary.failure or summary.headline}\n\n{text}", html
        return f"{text}\n\n{summary.text()}", html

    def _say(self, view: View) -> None:
        """Print the note on an interrupt once. The view shows only the run, not the cell."""
        if view.note and view.note != self._note:
            print(view.note)
        self._note = view.note


def kernel_text(view: View, now_epoch: float) -> str:
    """Return all that the cell's output shows, at most 12 kB."""
    below = []
    if view.stall_text:
        below += ["", *(clean(line, limit=160, colour=False) for line in view.stall_text.split("\n"))]
    state = None if view.status is None else view.status.state
    # After a success, progress bars have no information.
    done = state is State.SUCCEEDED
    bars = [] if done else view.progress.lines(over=state is not None and state.ended)
    if bars:
        below += ["", *bars]
    status = view.status_line(now_epoch)
    below += [status] if bars else ["", status]
    entries = view.fold.shown()
    room = _MAX_BYTES - 400 - sum(_cost(line) for line in below)
    shown = _prefixed(view.partial_entries(), room)
    room -= sum(_cost(line) for line in shown)
    picked, kept = entries, list[str]()
    for limit in (_LINES, _LINES // 2, _LINES // 4, _LINES // 8):
        # Show fewer lines of every rank. Otherwise the lines of a quiet rank would be cut first.
        picked = pick(entries, limit)
        kept = _prefixed(picked, room)
        if len(kept) == len(picked):
            break
    hidden = _lines(entries) - _lines(picked[len(picked) - len(kept) :])
    head = view.left_out_text(hidden)
    lines = [*([head] if head else []), *kept, *shown, *below]
    return "\n".join(lines).lstrip("\n")


def _lines(entries: Iterable[Entry]) -> int:
    return sum(len(entry.ranks) for entry in entries)


def _prefixed(entries: list[Entry], room: int) -> list[str]:
    """Return the last entries that fit into `room` bytes, with aligned prefixes."""
    width = min(16, max((len(entry.label()) for entry in entries), default=0))
    lines: list[str] = []
    for entry in reversed(entries):
        line = _line(entry, width)
        room -= _cost(line)
        if room < 0:
            break
        lines.append(line)
    return lines[::-1]


def _line(entry: Entry, width: int, limit: int = _WIDTH) -> str:
    text = clean(entry.text, limit=limit)
    if len(text) > 3 * limit:
        text = clean(entry.text, limit=limit, colour=False)  # every character had its own colour
    return f"{entry.label().ljust(width)} {text}" if entry.ranks else text


def _cost(line: str) -> int:
    # JSON writes an escape character as six bytes.
    return len(line.encode()) + 5 * line.count("\x1b") + 2


class PlainScreen:
    """A terminal, a pipe or a file. Lines appear after a short delay, so that equal lines fold.

    A terminal's last lines show progress and state, and are rewritten in place. Of a flood, a terminal gets
    the end. A pipe or a file gets every line, and a separate progress line from time to time.
    """

    _HOLD_S = 0.2
    _MAX_LINES = 200
    """Limit of lines per draw in a terminal. A draw happens at most every 50 ms."""
    _DRAW_S = 0.05
    keep = 2000
    reads_along = True

    def __init__(self, file: TextIO | None = None, *, raises: bool = False) -> None:
        self.raises = raises
        self._file = sys.stdout if file is None else file
        try:
            self._tty = self._file.isatty()
        except (ValueError, AttributeError):
            self._tty = False
        self.colour = self._tty
        self.whole = not self._tty
        self._drawn = float("-inf")
        self._bar = ""
        self._progress_at = time.monotonic()
        self._progress = ""
        self._notice = ""
        self._gone = False

    def show(self, view: View, changed: bool) -> None:
        now = time.monotonic()
        if now - self._drawn < self._DRAW_S:
            return
        self._drawn = now
        hold = self._HOLD_S if view.job.world_size > 1 else 0.0
        self._draw(view, now - hold, now)

    def pause(self, view: View) -> None:
        now = time.monotonic()
        self._draw(view, now, now)
        self._write(self._erased() if self._tty else "")
        self._bar = ""

    def close(self, view: View) -> None:
        now = time.monotonic()
        self._draw(view, now, now, last=True)

    def _draw(self, view: View, until: float, now: float, last: bool = False) -> None:
        width = len(f"[0-{view.job.world_size - 1}]") if view.job.world_size > 1 else len("[0]")
        entries = view.fold.take(until)
        out: list[str] = []
        kept = entries if self.whole else pick(entries, self._MAX_LINES)
        left_out = view.left_out_text(_lines(entries) - _lines(kept))
        if left_out:
            out.append(left_out)
            view.left_out_lines = view.left_out_bytes = view.fold.dropped = 0
        out += [self._plain(_line(entry, width, LONGEST_LINE)) for entry in kept]
        if last:
            out += [self._plain(_line(entry, width, LONGEST_LINE)) for entry in view.partial_entries()]
        out += self._news(view, now, last)
        bar = "" if last else self._bar_lines(view)
        text = "".join(f"{line}\n" for line in out)
        if self._tty and (text or bar != self._bar):
            text = self._erased() + text + bar
            self._bar = bar
        self._write(text)

    def _erased(self) -> str:
        above = self._bar.count("\n")
        return "\r\x1b[2K" + above * "\x1b[A\x1b[2K" if self._bar else ""

    def _plain(self, line: str) -> str:
        return line if self.colour else clean(line, limit=len(line), colour=False)

    def _news(self, view: View, now: float, last: bool) -> Iterable[str]:
        """Yield notices and progress lines that have changed."""
        notice = view.note or view.stall_text
        if notice and notice != self._notice:
            yield from notice.split("\n")
        self._notice = notice
        if not self._tty and not last and now - self._progress_at >= 10:
            self._progress_at = now
            line = " · ".join([*view.progress.lines(), view.status_line(time.time())])
            if view.progress.lines() and line != self._progress:
                self._progress = line
                yield line

    def _bar_lines(self, view: View) -> str:
        """Return the last lines of a terminal. Nested bars have a line each."""
        if not self._tty:
            return ""
        width = max(20, shutil.get_terminal_size().columns - 1)
        bars = [clean(entry.text, colour=False) for entry in view.partial_entries()[:1]]
        lines = [*bars, *view.progress.lines(), view.status_line(time.time())]
        if len(lines) == 2:
            lines = [" · ".join(lines)]
        # A line that wraps takes a row more than `_erased` removes.
        return "\n".join(cut(clean(line, colour=False), width) for line in lines)

    def _write(self, text: str) -> None:
        if not text or self._gone:
            return
        try:
            try:
                self._file.write(text)
            except UnicodeEncodeError:  # the terminal supports only ASCII
                encoding = self._file.encoding or "ascii"
                self._file.write(text.encode(encoding, "replace").decode(encoding))
            self._file.flush()
        except (OSError, ValueError):
            # The terminal or the pipe's reader is gone. The run does not depend on either.
            self._gone = True
