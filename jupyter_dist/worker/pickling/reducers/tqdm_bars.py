"""A tqdm bar of the notebook. Every rank draws its own bar with the same count, in its own log."""

from __future__ import annotations

import importlib
from typing import Any

from . import Note

__all__ = ["reduce"]

NOTE = "a tqdm bar of the notebook is drawn anew by every rank, in the rank's own output"
_OPTIONS = (
    *("total", "desc", "leave", "ncols", "mininterval", "maxinterval", "miniters", "ascii", "unit"),
    *("unit_scale", "unit_divisor", "dynamic_ncols", "smoothing", "bar_format", "colour", "delay"),
)


def reduce(obj: Any, note: Note) -> Any:
    own = vars(obj)
    options = {name: own[name] for name in _OPTIONS if own.get(name) is not None}
    if options.get("desc"):
        options["desc"] = options["desc"].removesuffix(": ")
    if own.get("dynamic_miniters"):
        options.pop("miniters", None)  # the value was measured, not requested
    options |= {"disable": bool(own.get("disable")), "initial": own.get("n", 0)}
    if not own.get("disable"):
        note(NOTE)
    return _bar, (own.get("iterable"), options, getattr(obj, "postfix", None))


# A pickle calls this function when it is loaded. Its name is part of the format.


def _bar(iterable: Any, options: dict[str, Any], postfix: str | None) -> Any:
    std = importlib.import_module("tqdm.std")
    bar = std.tqdm(iterable, **options)
    if postfix:
        bar.set_postfix_str(postfix, refresh=False)
    return bar
