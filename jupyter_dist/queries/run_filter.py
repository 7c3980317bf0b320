"""Filter of the list of runs: words, fields such as `tag:best`, and comparisons such as `lr>=0.1`."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from .answers.runs import RunSummary

__all__ = ["fits"]

_COMPARISON = re.compile(r"([^<>=!:]+)(>=|<=|!=|=|>|<)(.+)", re.DOTALL)
_FIELD = re.compile(r"(tag|state|notebook|name|backend):(.+)", re.DOTALL)
_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def fits(info: RunSummary, searched: str, word: str) -> bool:
    """Return whether a run matches one word of a filter. The word is in lower case.

    `searched`: all text of the run in lower case. A comparison looks at the run's parameters, metrics,
    `duration` in seconds and `ranks`. If the run has none of that name, the word is searched as text.
    """
    field = _FIELD.fullmatch(word)
    if field is not None:
        return _has(info, field[1], field[2])
    comparison = _COMPARISON.fullmatch(word)
    if comparison is not None:
        found = _value(info, comparison[1])
        if found is not None:
            return _compared(found, comparison[2], comparison[3])
    return word in searched


def _has(info: RunSummary, field: str, wanted: str) -> bool:
    if field == "tag":
        return any(tag.lower() == wanted for tag in info.get("tags", ()))
    if field == "state":
        state = "stalled" if info["stall"] is not None and info["state"] == "running" else info["state"]
        return state == wanted
    if field == "notebook":
        return wanted in os.path.basename(info["notebook"] or "").lower()
    return wanted in info["name" if field == "name" else "backend"].lower()


def _value(info: RunSummary, name: str) -> bool | float | str | None:
    for values in (info.get("parameters", {}), info.get("final", {})):
        for known, value in values.items():
            if known.lower() == name:
                return value
    if name == "ranks":
        return info["world_size"]
    if name == "duration" and info["started"] is not None:
        return (info["ended"] or info["host_time"]) - info["started"]
    return None


def _compared(found: bool | float | str, sign: str, wanted: str) -> bool:
    try:
        number = float(wanted)
    except ValueError:
        number = math.nan
    if isinstance(found, int | float) and not isinstance(found, bool) and not math.isnan(number):
        close = math.isclose(found, number, rel_tol=1e-9)
        return {"=": close, "!=": not close}.get(sign, _COMPARE[sign](found, number))
    return _COMPARE[sign](str(found).lower(), wanted)
