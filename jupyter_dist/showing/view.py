"""Content of a live view: folded lines, unfinished lines, progress, state, stall."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter

from ..folder import RunFolder
from ..job import Job, State, Status, rank_count
from ..record.cursor import Batch
from ..record.failures import parting, stacks
from ..record.hints import EVENT, Hints
from ..record.reader import Event, Line
from ..record.steps.step_times import RunSteps
from ..text.fold import Entry, Fold
from ..text.format import count, duration, signal_name, size
from ..text.safe import clean, one_line
from ..worker.output import events as kinds
from .display import command
from .native_frames import NativeFrames
from .progress import Progress
from .traceback_filter import TracebackFilter
from .trials import TrialLines

__all__ = ["LONGEST_LINE", "View"]

LONGEST_LINE = 1 << 20
"""The length of a line's text from which even a screen with every line cuts it."""

_MAX_TEXT = 2000
_PARTIALS = 12
_STALL_LINES = 30
_STALL_RETRY_S = 1.0
_STALL_RETRIES_S = 15.0


class View:
    """Collector of a run's batches as content to show. It does not depend on the screen.

    `keep` limits the folded lines. `feed_limit` limits the lines taken of one batch: of a larger batch the
    end is shown, and the rest is counted. With `whole`, nothing is left out. `raises`: a failure follows as
    an exception, which contains the traceback.
    """

    def __init__(
        self,
        folder: RunFolder,
        job: Job,
        *,
        keep: int,
        colour: bool = True,
        raises: bool = False,
        whole: bool = False,
    ) -> None:
        self.folder, self.job = folder, job
        self.fold = Fold(sys.maxsize if whole else keep)
        self.status: Status | None = None
        self.note: str | None = None
        """Our line about a request of the user, for example about a stop in progress."""
        self.left_out_lines = 0
        self.left_out_bytes = 0
        self.progress = Progress()
        self.partials: list[Entry] = []
        self.feed_limit = sys.maxsize if whole else max(400, 4 * job.world_size)
        self._max_text = LONGEST_LINE if whole else _MAX_TEXT
        self._colour = colour
        self._raises = raises
        self._tracebacks: TracebackFilter | None = None
        self._native = NativeFrames(self.folder.id)
        self._attempt: int | None = None
        self._restarted: str | None = None
        """Why this attempt was started. Its line among the log lines shows the reason."""
        self._stall: tuple[float, str] | None = None
        self._stall_read = 0.0
        self._hints = Hints()
        self._hints_shown: set[str] = set()
        self._trials = TrialLines(folder, job)
        self._steps: RunSteps | None = RunSteps()
        """The times of steps until a straggler has been named."""

    def feed(self, batch: Batch, now: float) -> bool:
        """Add a batch. Returns true if something besides the time has changed."""
        before = self._state_shown(), self.stall_text
        self.status = batch.status
        events = [event for event in batch.events if event.kind in ("progress", "note", EVENT)]
        self.left_out_bytes += batch.skipped
        for line in self._newest(batch.lines):
            self._line(line, now)
        for event in events:
            self._event(event, now)
        self._take_steps(batch, now)
        if any(event.kind == EVENT for event in events):
            self._show_hints(now)
        trials = self._trials.new()
        for text in trials:
            self.fold.mark(text, now)
        self._new_attempt(batch.status.attempt, now)
        partials = self._fold_partials(batch)
        changed = bool(batch.lines or events or batch.skipped or trials) or partials
        self._read_stall(now)
        return changed or before != (self._state_shown(), self.stall_text)

    def _state_shown(self) -> tuple[object, ...] | None:
        """Return what a status line shows besides the time. Of a pending run it shows the number of ranks."""
        status = self.status
        if status is None:
            return None
        pending = status.state is State.PENDING
        ranks = rank_count(self.job, status) if pending else status.ranks
        return status.state, ranks, status.reason

    def _newest(self, lines: list[Line]) -> list[Line]:
        """Return all lines, or the newest of every rank if there are too many to read."""
        if len(lines) <= self.feed_limit:
            return lines
        each = max(2, self.feed_limit // self.job.world_size)
        too_many = {rank: n - each for rank, n in Counter(line.rank for line in lines).items() if n > each}
        kept = []
        for line in lines:
            if too_many.get(line.rank, 0) > 0:
                too_many[line.rank] -= 1
            else:
                kept.append(line)
        self.left_out_lines += len(lines) - len(kept)
        return kept

    def _line(self, line: Line, now: float) -> None:
        self._new_attempt(line.attempt, now)
        text = clean(line.text, limit=self._max_text, colour=self._colour)
        if self._raises and self._tracebacks is None:
            self._tracebacks = TracebackFilter(self.folder, line.attempt, self._max_text)
            self._native = NativeFrames(self.folder.id)
        if self._raises:
            instead = self._native.take(line.rank, clean(text, colour=False))
            if instead == "":
                return
            text = text if instead is None else instead
        for shown in [text] if self._tracebacks is None else self._tracebacks.take(line.rank, text):
            self.fold.add(line.rank, shown, now)

    def end(self, now: float) -> None:
        """Show what was held back at the end of the run, except the traceback that follows below."""
        self._release(now, told=self.status is not None and self.status.state is State.FAILED)

    def _release(self, now: float, *, told: bool) -> None:
        for rank, text in self._tracebacks.release(told=told) if self._tracebacks else ():
            self.fold.add(rank, text, now)
        self._tracebacks = None

    def _event(self, event: Event, now: float) -> None:
        self._new_attempt(event.attempt, now)
        if event.kind == "progress":
            if event.attempt == self._attempt:
                self.progress.feed(event)
        elif event.kind == EVENT:
            self._hints.take(event.rank, event.data)
        elif not event.data.get("printed"):
            self.fold.add(event.rank, f"note: {one_line(str(event.data.get('text')), 300)}", now)

    def _take_steps(self, batch: Batch, now: float) -> None:
        """Name a rank that the others wait for, once."""
        found = [event for event in batch.events if event.kind == kinds.STEPS]
        if self._steps is None or not found:
            return
        for event in found:
            if event.attempt == self._attempt or self._attempt is None:
                self._steps.take(event.rank, event.data)
        if sentence := self._steps.verdict(rank_count(self.job, batch.status)).sentence:
            self.fold.mark(f"note: {sentence}", now)
            self._steps = None

    def _show_hints(self, now: float) -> None:
        for hint in self._hints.found():
            if hint.name not in self._hints_shown:
                self._hints_shown.add(hint.name)
                self.fold.mark(f"note: {hint}", now)

    def _new_attempt(self, attempt: int, now: float) -> None:
        if self._attempt is not None and attempt > self._attempt:
            self._release(now, told=False)
            reason = self.status.reason if self.status else None
            why = f": {one_line(reason, 200)}" if reason else ""
            self._restarted = reason
            self._steps = RunSteps() if self._steps is not None else None
            self.fold.mark(f"── attempt {attempt}{why} ──", now)
            self.progress.clear()
            self._hints = Hints()
        if self._attempt is None or attempt > self._attempt:
            self._attempt = attempt

    def _fold_partials(self, batch: Batch) -> bool:
        folded = Fold(10_000)
        for rank, text in sorted(batch.partial.items()):
            for line in text.split("\n"):
                shown = clean(line, limit=self._max_text, colour=self._colour)
                if shown.strip():
                    folded.add(rank, shown)
        entries = list(folded.entries)
        changed = [(e.text, e.ranks) for e in entries] != [(e.text, e.ranks) for e in self.partials]
        self.partials = entries
        return changed

    def _read_stall(self, now: float) -> None:
        stall = self.status.stall if self.status and not self.status.state.ended else None
        if stall is None:
            self._stall = None
            return
        if self._stall and self._stall[0] == stall.since:
            young = time.time() - stall.noticed < _STALL_RETRIES_S
            if not young or now - self._stall_read < _STALL_RETRY_S:
                return
        # The supervisor requests the stacks when it notices the stall. The ranks write them one by one.
        self._stall_read = now
        try:
            text = str(stacks.read(self.folder, since=stall.since))
        except OSError as error:
            text = f"their stacks cannot be read: {error}"
        lines = text.split("\n")
        parted = parting.of_running(self.folder, self.status) if self.status else ""
        if parted:
            lines.insert(0, parted)
        if len(lines) > _STALL_LINES:
            lines = [*lines[:_STALL_LINES], f"… all of them: `{command()} stacks {self.folder.id}`"]
        self._stall = (stall.since, "\n".join(lines))

    @property
    def stall_text(self) -> str:
        """Return the stall notice with the ranks' stacks. Empty if the run is not stalled."""
        if self._stall is None:
            return ""
        since, text = self._stall
        when = time.strftime("%H:%M:%S", time.localtime(since))
        return f"no rank has printed or logged since {when}; this is where they are:\n{text}"

    def left_out_text(self, more_lines: int = 0) -> str:
        """Return one line on what is not shown and where it is. Empty if everything is shown."""
        lines = self.left_out_lines + self.fold.dropped + more_lines
        parts = [count(lines, "line")] if lines else []
        if self.left_out_bytes:
            parts.append(size(self.left_out_bytes))
        return f"… {' and '.join(parts)} not shown here, whole logs: {self.log_path()}" if parts else ""

    def log_path(self) -> str:
        attempt = self.status.attempt if self.status else 0
        rank = "0" if self.job.world_size == 1 else "*"
        return one_line(str(self.folder.rank(attempt, rank).output), 300)

    def partial_entries(self) -> list[Entry]:
        return self.partials[:_PARTIALS]

    def status_line(self, now_epoch: float) -> str:
        """Return state, time, ranks and attempt: `running · 12.3 s · 8 ranks running`."""
        status = self.status
        if status is None:
            return "pending"
        parts = [str(status.state)]
        began = status.started or status.created
        if began:
            parts.append(duration((status.ended or now_epoch) - began))
        states = Counter(rank.state for rank in status.ranks)
        if status.state is State.RUNNING and states:
            listed = [f"{number} {state}{_why(state, status)}" for state, number in states.items()]
            parts.append(f"{'rank' if len(status.ranks) == 1 else 'ranks'}: {', '.join(listed)}")
        elif self.job.tuning is None:
            parts.append(count(rank_count(self.job, status), "rank"))
        if status.attempt or self.job.max_restarts:
            # Restarts that only took another port do not count towards the user's limit.
            most = self.job.max_restarts + status.port_retries
            if status.attempt > most:  # an elastic run starts its ranks anew more often
                parts.append(f"attempt {status.attempt}")
            else:
                parts.append(f"{status.attempt} of {count(most, 'restart')}")
        if self.note:
            parts.append(self.note)
        elif status.reason and (status.state.ended or status.reason != self._restarted):
            parts.append(one_line(status.reason, 200).replace("%dist debug", f"{command()} debug"))
        return " · ".join(parts)


def _why(state: State, status: Status) -> str:
    """Return why the first failed rank ended.

    The full report follows a moment later, when the run has ended.
    """
    failed = [rank for rank in status.ranks if rank.state is State.FAILED]
    if state is not State.FAILED or not failed:
        return ""
    first = min(failed, key=lambda rank: rank.ended or math.inf)
    how = "" if first.exit_code is None else f", exit code {first.exit_code}"
    return f" (rank {first.rank}{f', {signal_name(first.signal)}' if first.signal else how})"
