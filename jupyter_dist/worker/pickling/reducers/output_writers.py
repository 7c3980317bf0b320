"""What writes the notebook's output: tqdm's bars, loguru's handlers, torch's SummaryWriter.

Every rank draws its own bar with the same count, in its own log. A handler of loguru writes without loguru's
thread on a rank. Files that loguru writes stay the notebook's. A rank's SummaryWriter begins its own event
file in the same folder with the first value that the rank adds, as the notebook's does after `close`.
"""

from __future__ import annotations

import atexit
import importlib
from typing import Any

from . import Note

__all__ = ["NoFile", "reduce"]

_BAR = "a tqdm bar of the notebook is drawn anew by every rank, in the rank's own output"
_OPTIONS = (
    *("total", "desc", "leave", "ncols", "mininterval", "maxinterval", "miniters", "ascii", "unit"),
    *("unit_scale", "unit_divisor", "dynamic_ncols", "smoothing", "bar_format", "colour", "delay"),
)


def reduce(obj: Any, note: Note) -> Any:
    if hasattr(obj, "add_scalar"):
        note(f"each rank that adds values writes an event file of its own to {obj.log_dir}")
        return _summary_writer, (type(obj), {**vars(obj), "file_writer": None, "all_writers": None})
    return _reduce_bar(obj, note) if hasattr(obj, "set_postfix_str") else _reduce_handler(obj, note)


def _reduce_bar(obj: Any, note: Note) -> Any:
    own = vars(obj)
    options = {name: own[name] for name in _OPTIONS if own.get(name) is not None}
    if options.get("desc"):
        options["desc"] = options["desc"].removesuffix(": ")
    if own.get("dynamic_miniters"):
        options.pop("miniters", None)  # the value was measured, not requested
    options |= {"disable": bool(own.get("disable")), "initial": own.get("n", 0)}
    if not own.get("disable"):
        note(_BAR)
    return _bar, (own.get("iterable"), options, getattr(obj, "postfix", None))


def _reduce_handler(handler: Any, note: Note) -> Any:
    make, args, state, *_ = handler.__reduce_ex__(4)
    sink = handler._sink
    if type(sink).__module__ == "loguru._file_sink":
        note(
            f"jupyter-dist does not send loguru's file, handler {handler!r}. Call logger.add inside the "
            "cell, if the ranks need it"
        )
        sink = NoFile()
    state |= {"_sink": sink, "_enqueue": False, "_queue": None}
    state |= {"_confirmation_event": None, "_confirmation_lock": None}
    return make, args, state


# A pickle calls these when it is loaded. Their names are part of the format.


class NoFile:
    """A sink of loguru that drops its lines."""

    def write(self, message: str) -> None:
        pass

    def stop(self) -> None:
        pass

    def tasks_to_complete(self) -> list[Any]:
        return []


def _summary_writer(kind: Any, state: dict[str, Any]) -> Any:
    writer = kind.__new__(kind)
    vars(writer).update(state)
    atexit.register(writer.close)  # values are written two minutes late, and the notebook would not end
    return writer


def _bar(iterable: Any, options: dict[str, Any], postfix: str | None) -> Any:
    std = importlib.import_module("tqdm.std")
    bar = std.tqdm(iterable, **options)
    if postfix:
        bar.set_postfix_str(postfix, refresh=False)
    return bar
