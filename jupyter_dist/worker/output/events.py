"""A rank's events, one JSON line and one write each, so that a killed rank loses none."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..line_file import LineFile, write_all

__all__ = ["COLLECTIVES", "STEPS", "TRACE", "EventWriter", "close", "now", "open_writer", "tell", "writer"]

COLLECTIVES = "collectives"
"""The kind of a rank's record of its last collectives (worker/rank/collectives.py)."""
STEPS = "steps"
"""The kind of a rank's record of where the time of its steps goes (worker/steps/)."""
TRACE = "trace"
"""The kind of a rank's answer to a request for a trace (worker/steps/trace.py)."""
_LARGEST = sys.float_info.max
_ESSENTIAL = frozenset({"started", "cell", "result"})
"""The events without which nobody can judge the run. If one of them cannot be written, the rank fails."""
_writer: EventWriter | None = None
_clock_offset_s = 0.0
_clock_offset_ns = 0


class EventWriter:
    """A writer that appends to `events.jsonl`. Every method returns after the line is in the file.

    If a line cannot be written, for example because the disk is full, the training continues. The log gets
    one line. When there is room again, the writer first writes a note that counts the lost lines. For the
    events without which a run cannot be judged, the methods raise OSError.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = LineFile(path)
        self._lost: Counter[str] = Counter()
        """The kinds of the lines that were lost since the last note, and their numbers."""
        self._why, self._printed = "", False
        self._seq = itertools.count()
        self._keys: dict[str, str] = {}
        self.losses: Any = None
        """Gets all metrics after the first value that is not finite (hints/losses.py)."""
        self._has_odd = False

    def metric(self, values: Mapping[str, float], step: int | None) -> bool:
        """Write the metrics of one step. Values are ints or floats; NaN and infinities are kept.

        Returns whether they are in the file.

        The line is encoded by hand: this runs in the training loop, and `json.dumps` would be most of its
        cost. The time is a whole number of microseconds, because formatting an int costs less than rounding a
        float. Its 16 digits and the exponent are read without loss, and as fast as a decimal point.
        """
        keys = self._keys
        parts = []
        for name, value in values.items():
            key = keys.get(name)
            if key is None:
                key = keys[name] = json.dumps(name) + ":"
            # An int can be larger than the largest float that a reader could make of it.
            parts.append(f"{key}{value!r}" if -_LARGEST <= value <= _LARGEST else key + self._special(value))
        line = (
            f'{{"seq":{next(self._seq)},"time":{(time.time_ns() + _clock_offset_ns) // 1000}e-6,'
            f'"kind":"metric","step":{"null" if step is None else step},"values":{{{",".join(parts)}}}}}\n'
        )
        written = self._append("metric", line.encode())
        if self._has_odd and self.losses is not None:
            self.losses.take(values, step)
        return written

    def progress(
        self,
        id: int,
        n: float,
        total: float | None,
        desc: str,
        note: str = "",
        unit: str = "",
        closed: bool = False,
        loop: tuple[float, int, str] | None = None,
    ) -> None:
        """Write the state of a progress bar. `closed`: the bar has ended, even below its total.

        `loop`: when the bar began, how many bars began with its first description before, and this
        description. With it a reader finds the same bar on other ranks.
        """
        more: dict[str, Any] = {"note": note, "unit": unit, "closed": closed}
        if loop is not None:
            began, nth, first = loop
            more |= {"began": began, "nth": nth, "first": "" if first == desc else first}
        more = {name: value for name, value in more.items() if value}
        self.event("progress", {"id": id, "n": n, "total": total, "desc": desc, **more})

    def note(self, text: str, *, printed: bool = False) -> None:
        """Write a note for the user, which the views show once. `printed`: the note is in the log as well."""
        self.event("note", {"text": text, **({"printed": True} if printed else {})})

    def started(self, host: str, gpus: Sequence[str] = ()) -> None:
        """Write that the rank has started. `gpus`: the rank's GPUs, as named in CUDA_VISIBLE_DEVICES."""
        more = {"gpus": list(gpus), "clock_offset_s": _clock_offset_s}
        told = {name: value for name, value in more.items() if value}
        self.event("started", {"pid": os.getpid(), "host": host, **told})

    def cell(self) -> None:
        """Write that the user's code begins. From now on, nobody may rerun it without the user's request."""
        self.event("cell", {})

    def result(
        self,
        repr_: str,
        nbytes: int | None,
        error: str | None,
        outline: Mapping[str, Any] | None = None,
        content: str | None = None,
    ) -> None:
        """Write the result of the cell.

        `outline`: a summary for views, which unpickle nothing (result_outline.py). `content`: a digest that
        distinguishes results with equal reprs (worker/rank/result_digest.py).
        """
        more = {"outline": outline, "content": content}
        told = {key: value for key, value in more.items() if value is not None}
        self.event("result", {"repr": repr_, "bytes": nbytes, "error": error, **told})

    def close(self) -> None:
        """Write what is still to be reported about lost lines, and close the file."""
        if self._lost:
            self._report_loss()
        self._file.close()

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Write an event of any other kind, such as those of media.py."""
        event = {"seq": next(self._seq), "time": now(), "kind": kind, **data}
        self._append(kind, json.dumps(event, ensure_ascii=True).encode() + b"\n")

    def lose(self, kind: str, error: OSError) -> None:
        """Count an event that cannot be written. The first one since the last note is reported in the log."""
        self._lost[kind] += 1
        if self._lost.total() == 1:
            self._why = error.strerror or str(error)
            self._printed = _print(
                f"cannot write to {os.path.basename(self.path)!r}: {self._why}. The rank continues, and "
                "counts the metrics that are lost. Free some space on the disk of the run folder"
            )

    def _special(self, value: float) -> str:
        self._has_odd = True
        # JSON has no NaN. Every reader can distinguish a string from a number.
        return '"NaN"' if value != value else '"Infinity"' if value > 0 else '"-Infinity"'

    def _append(self, kind: str, line: bytes) -> bool:
        """Append a line. Return whether it is in the file."""
        try:
            if self._lost and not self._report_loss() and kind not in _ESSENTIAL:
                self._lost[kind] += 1
                return False
            self._file.append(line)
        except OSError as error:
            if kind in _ESSENTIAL:
                raise
            self.lose(kind, error)
            return False
        return True

    def _report_loss(self) -> bool:
        """Write the note about the lost lines. Return whether there was room for the note."""
        metrics, others = self._lost["metric"], self._lost.total() - self._lost["metric"]
        counted = ((metrics, "metric"), (others, "other record"))
        what = " and ".join(f"{n:,} {name}{'s' * (n > 1)}" for n, name in counted if n)
        were = "was" if self._lost.total() == 1 else "were"
        text = f"{what} of this rank {were} not written: {self._why}. The curves have a gap there."
        event = {"seq": next(self._seq), "time": now(), "kind": "note", "text": text}
        try:
            self._file.append(json.dumps(event, ensure_ascii=True).encode() + b"\n")
        except OSError:
            return False
        if not self._printed:  # the log is on the same disk, and had no room either
            _print(text)
        self._lost.clear()
        return True


def _print(text: str) -> bool:
    """Print a line in the rank's log. Return whether it is there."""
    with contextlib.suppress(OSError):
        write_all(2, f"jupyter_dist: {text}\n".encode())
        return True
    return False


def now() -> float:
    """Return the time in the clock of the machine that started the run."""
    return time.time() + _clock_offset_s


def open_writer(path: str) -> EventWriter:
    """Make `path` the file that `writer()` writes to."""
    global _writer, _clock_offset_s, _clock_offset_ns
    _clock_offset_s = float(os.environ.get("JUPYTER_DIST_CLOCK_OFFSET_S") or 0)
    _clock_offset_ns = round(_clock_offset_s * 1e9)
    _writer = EventWriter(path)
    return _writer


def close() -> None:
    global _writer
    if _writer is not None:
        _writer.close()
        _writer = None


def writer() -> EventWriter | None:
    """Return this rank's event writer, or None outside a run."""
    return _writer


def tell(text: str) -> None:
    """Print one line in the log of every rank, and show rank 0's as a note in the views."""
    print(text, flush=True)
    if _writer is not None and os.environ.get("RANK", "0") == "0":
        _writer.note(text, printed=True)
