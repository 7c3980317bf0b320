"""Write a rank's events, one JSON line and one write each, so that a killed rank loses none."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["EventWriter", "close", "now", "open_writer", "tell", "writer"]

_LARGEST = sys.float_info.max
_writer: EventWriter | None = None
_clock_offset_s = 0.0


class EventWriter:
    """Appends to `events.jsonl`. Every method returns after the line is in the file.

    Raises OSError where the disk is full: a metric is never dropped in silence.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._seq = itertools.count()
        self._keys: dict[str, str] = {}

    def metric(self, values: Mapping[str, float], step: int | None) -> None:
        """Metrics of one step. Values are ints or floats; NaN and infinities are kept.

        Encoded by hand: this runs in the training loop and `json.dumps` is most of its cost.
        """
        keys = self._keys
        parts = []
        for name, value in values.items():
            key = keys.get(name)
            if key is None:
                key = keys[name] = json.dumps(name) + ":"
            # An int may be larger than any float that a reader could make of it.
            parts.append(key + (repr(value) if -_LARGEST <= value <= _LARGEST else _special(value)))
        os.write(
            self._fd,
            (
                f'{{"seq":{next(self._seq)},"time":{now():.6f},"kind":"metric",'
                f'"step":{"null" if step is None else step},"values":{{{",".join(parts)}}}}}\n'
            ).encode(),
        )

    def progress(
        self,
        id: int,
        n: float,
        total: float | None,
        desc: str,
        note: str = "",
        unit: str = "",
        closed: bool = False,
    ) -> None:
        """Where a bar stands. `closed`: it is over, also where it has not come to its total."""
        more = {name: value for name, value in (("note", note), ("unit", unit), ("closed", closed)) if value}
        self.event("progress", {"id": id, "n": n, "total": total, "desc": desc, **more})

    def note(self, text: str, *, printed: bool = False) -> None:
        """Something the user should be told, shown once by the views. `printed`: it is in the log as well."""
        self.event("note", {"text": text, **({"printed": True} if printed else {})})

    def started(self, host: str, gpus: Sequence[str] = ()) -> None:
        """`gpus`: those of the rank, as CUDA_VISIBLE_DEVICES calls them."""
        more = {"gpus": list(gpus), "clock_offset_s": _clock_offset_s}
        told = {name: value for name, value in more.items() if value}
        self.event("started", {"pid": os.getpid(), "host": host, **told})

    def cell(self) -> None:
        """The user's code begins: from here on nobody may run it again without being asked to."""
        self.event("cell", {})

    def result(
        self,
        repr_: str,
        nbytes: int | None,
        error: str | None,
        outline: Mapping[str, Any] | None = None,
        content: str | None = None,
    ) -> None:
        """`outline`: what it is, for views, which unpickle nothing (result_outline.py). `content`: tells
        apart results whose repr does not (worker/rank/result_digest.py)."""
        more = {"outline": outline, "content": content}
        told = {key: value for key, value in more.items() if value is not None}
        self.event("result", {"repr": repr_, "bytes": nbytes, "error": error, **told})

    def close(self) -> None:
        os.close(self._fd)

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """One of any other kind, such as what media.py writes."""
        event = {"seq": next(self._seq), "time": now(), "kind": kind, **data}
        os.write(self._fd, json.dumps(event, ensure_ascii=True).encode() + b"\n")


def _special(value: float) -> str:
    # JSON has no NaN; a string is what every reader can tell from a number.
    return '"NaN"' if value != value else '"Infinity"' if value > 0 else '"-Infinity"'


def now() -> float:
    """The time in the clock of the machine that the run was started from."""
    return time.time() + _clock_offset_s


def open_writer(path: str) -> EventWriter:
    """Make `path` the file that `writer()` writes to."""
    global _writer, _clock_offset_s
    _clock_offset_s = float(os.environ.get("JUPYTER_DIST_CLOCK_OFFSET_S") or 0)
    _writer = EventWriter(path)
    return _writer


def close() -> None:
    global _writer
    if _writer is not None:
        _writer.close()
        _writer = None


def writer() -> EventWriter | None:
    """This rank's event writer; None outside a run."""
    return _writer


def tell(text: str) -> None:
    """One line in the log of every rank, and rank 0's as a note in the views."""
    print(text, flush=True)
    if _writer is not None and os.environ.get("RANK", "0") == "0":
        _writer.note(text, printed=True)
