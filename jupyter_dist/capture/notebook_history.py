"""Code that has run in this notebook so far, or the script that is running."""

from __future__ import annotations

import ast
import contextlib
import functools
import linecache
import os
import re
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = [
    "OLD_CLASS",
    "RanCell",
    "cells",
    "code_texts",
    "mentions",
    "old_classes",
    "texts",
    "tree",
    "variables",
]

OLD_CLASS = "old-class"
"""The name of the hint on objects of classes that were defined again. Each note of the hint ends with it."""

_VARIABLE = re.compile(
    r"""\benviron(?:\[|\.setdefault\()\s*["'](\w+)["']\s*(?:\]\s*=(?!=)|,)"""
    r"""|run_line_magic\('(?:set_)?env', '(\w+)[ =]"""
)
_MAGIC = "get_ipython().run_cell_magic("
_COLOURS = re.compile(r"\x1b\[[\d;]*m")


class RanCell(NamedTuple):
    """A cell that has run in this kernel."""

    number: int
    text: str
    lines_before: int
    """Lines of the cell before the text: 1 for a cell with a magic, such as `%%time`."""
    end: float
    """The line that failed, or that runs now. Later lines have not run."""


def cells(namespace: Mapping[str, Any]) -> list[RanCell]:
    """Return the cells that have run in this kernel, in their order. Empty for a script.

    IPython records since version 9 which cells failed. With an earlier version, all lines count as run.
    """
    sources = namespace.get("In")
    if not isinstance(sources, Sequence) or isinstance(sources, str):
        return []
    failures = _failures(namespace)
    found = []
    for number, cell in enumerate(sources):
        text = _run_here(cell) if isinstance(cell, str) else ""
        if text:
            end = failures.get(number, float("inf"))
            if number == len(sources) - 1:
                end = min(end, _current_line(namespace))
            found.append(RanCell(number, text, int(text is not cell), end))
    return found


def code_texts(namespace: Mapping[str, Any], sources: Mapping[str, str] | None) -> list[tuple[str, str]]:
    """Return the texts of code that `linecache` lacks, with the file names that the code has.

    `sources`: file name → text. All cells with `%%time` have one file name.
    """
    timed = [cell.text for cell in reversed(cells(namespace)) if cell.lines_before]
    transform = getattr(getattr(namespace.get("get_ipython"), "__self__", None), "transform_cell", None)
    if transform is not None:
        with contextlib.suppress(Exception):  # a line that only its own magic understands
            timed = [transform(text) for text in timed]
    return [*(sources or {}).items(), *(("<timed exec>", text) for text in timed)]


def _failures(namespace: Mapping[str, Any]) -> dict[int, int]:
    """Return by the number of each failed cell the line that failed."""
    found = {}
    try:
        recorded = dict(namespace["get_ipython"]().history_manager.exceptions)
    except Exception:  # an earlier IPython, or a namespace without a shell
        return {}
    for number, error in recorded.items():
        lines = _COLOURS.sub("", "\n".join(error.get("traceback", ())))
        place = re.search(rf"In\s?\[{number}\], line (\d+)", lines)
        if place is not None:
            found[number] = int(place[1])
    return found


def _current_line(namespace: Mapping[str, Any]) -> float:
    """Return the line of the top-level statement that runs now, as in a cell that calls `dist.run`."""
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals is namespace and frame.f_code.co_name.startswith(("<module>", "<cell line")):
            return frame.f_lineno
        frame = frame.f_back
    return float("inf")


def texts(namespace: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the text of each cell that has run in this kernel, or of the script.

    Cells that ran only on ranks are left out. Of a cell with a magic, such as `%%time`, only the body is
    returned.
    """
    cells = namespace.get("In")
    if isinstance(cells, Sequence) and not isinstance(cells, str):
        return tuple(filter(None, (_run_here(cell) for cell in cells if isinstance(cell, str))))
    script = getattr(sys.modules["__main__"], "__file__", None)
    return ("".join(linecache.getlines(script)),) if script else ()


def mentions(namespace: Mapping[str, Any], text: str) -> bool:
    """Return whether a cell that has run in this kernel contains the text."""
    return any(text in cell for cell in texts(namespace))


def variables(namespace: Mapping[str, Any]) -> list[str]:
    """Return the names of environment variables that cells have set and that still exist."""
    names = {match[1] or match[2] for text in texts(namespace) for match in _VARIABLE.finditer(text)}
    return sorted(name for name in names if name in os.environ)


@functools.lru_cache(1000)
def tree(text: str) -> ast.Module | None:
    """Return the text as a syntax tree. None if it is not Python."""
    return _tree(text)


def _tree(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


@functools.lru_cache(1000)
def _run_here(cell: str) -> str:
    """Return a cell's body.

    IPython stores a cell with a magic as a call, with the body as the last argument.
    """
    if not cell.startswith(_MAGIC):
        return cell
    parsed = _tree(cell)  # nobody needs it again, and a tree takes kilobytes
    call = parsed.body[0] if parsed is not None and parsed.body else None
    if not (isinstance(call, ast.Expr) and isinstance(call.value, ast.Call) and len(call.value.args) == 3):
        return ""
    name, _, body = (arg.value if isinstance(arg, ast.Constant) else "" for arg in call.value.args)
    return body if isinstance(body, str) and name != "distribute" else ""


def old_classes(values: Mapping[str, Any]) -> list[str]:
    """Return a note for each object whose class the notebook has defined again since the object was made.

    Only if the values also have the class, by its name. Code that uses one of both alone has no problem.
    """
    found = []
    for name, value in values.items():
        kind = type(value)
        now = values.get(kind.__qualname__) if kind.__module__ == "__main__" else None
        if isinstance(now, type) and not isinstance(value, now):
            found.append(
                f"{name} is an object of an earlier definition of {kind.__qualname__}, so that "
                f"isinstance({name}, {kind.__qualname__}) is false. Run the cell that makes {name} again. "
                f"To hide this note: --no-hint {OLD_CLASS}"
            )
    return found
