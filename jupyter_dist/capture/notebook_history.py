"""Code that has run in this notebook so far, or the script that is running."""

from __future__ import annotations

import ast
import bisect
import contextlib
import functools
import linecache
import math
import os
import re
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = [
    "CELLS",
    "OLD_CLASS",
    "RanCell",
    "cells",
    "code_texts",
    "hidden_names",
    "mentions",
    "old_classes",
    "texts",
    "tree",
    "variables",
]

CELLS = 10_000
"""Of how many cells the facts are kept. Each capture asks for the facts of all cells that have run."""
OLD_CLASS = "old-class"
"""The name of the hint on objects of classes that were defined again. Each note of the hint ends with it."""

_VARIABLE = re.compile(
    r"""\benviron(?:\[|\.setdefault\()\s*["'](\w+)["']\s*(?:\]\s*=(?!=)|,)"""
    r"""|run_line_magic\('(?:set_)?env', '(\w+)[ =]"""
)
_UPDATES = re.compile(r"\benviron(?:\.update\(|\s*\|=)")
_MAGIC = "get_ipython().run_cell_magic("
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
_IPYTHON = {"In", "Out", "get_ipython", "_", "__", "___", "_i", "_ii", "_iii", "_ih", "_oh", "_dh"}
_OF_A_MODULE = {"__builtins__", "__builtin__", "__doc__", "__file__", "__loader__", "__name__", "__package__"}
_OF_A_MODULE |= {"__spec__", "__annotations__", "__annotate__", "__conditional_annotations__"}
_OUTPUTS, _NO_OUTPUT = {"_", "__", "___"}, ""
_NUMBERED = re.compile(r"_i?\d+")
_REPLACED = ("exit", "open", "quit")
"""Builtins in whose place IPython has its own."""


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
    found, last = [*_whole_cells(sources)], len(sources) - 1
    ends: dict[int, float] = {**_failures(namespace)}
    ends[last] = min(ends.get(last, math.inf), _current_line(namespace))
    for number, end in ends.items():
        index = bisect.bisect_left(found, (number,))
        if index < len(found) and found[index].number == number:
            found[index] = found[index]._replace(end=end)
    return found


_known: tuple[list[Any], list[RanCell]] = ([], [])
"""The sources of a notebook at its last capture, and their cells."""


def _whole_cells(sources: Sequence[Any]) -> list[RanCell]:
    """Return the cells as if no line had failed. Reads only the sources that are new since the last call."""
    global _known
    read, found = _known
    if sources[: len(read)] != read:  # another notebook, or a history that was cleared
        read, found = [], []
    new = list(sources[len(read) :])
    if new:
        texts = [(cell, _run_here(cell) if isinstance(cell, str) else "") for cell in new]
        more = [
            RanCell(number, text, int(text is not cell), math.inf)
            for number, (cell, text) in enumerate(texts, len(read))
            if text
        ]
        _known = read, found = [*read, *new], [*found, *more]
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
        line = _failed_line(number, tuple(error.get("traceback", ())))
        if line is not None:
            found[number] = line
    return found


@functools.lru_cache(CELLS)
def _failed_line(number: int, traceback: tuple[str, ...]) -> int | None:
    place = re.search(rf"In\s?\[{number}\], line (\d+)", _COLOURS.sub("", "\n".join(traceback)))
    return None if place is None else int(place[1])


def _current_line(namespace: Mapping[str, Any]) -> float:
    """Return the line of the top-level statement that runs now, as in a cell that calls `dist.run`."""
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals is namespace and frame.f_code.co_name.startswith(("<module>", "<cell line")):
            return frame.f_lineno
        frame = frame.f_back
    return math.inf


def texts(namespace: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the text of each cell that has run in this kernel, or of the script.

    Cells that did not run in this process are left out, such as those of `%%distribute` and `%%writefile`. Of
    a cell with another magic, such as `%%time`, only the body is returned.
    """
    cells = namespace.get("In")
    if isinstance(cells, Sequence) and not isinstance(cells, str):
        return tuple(cell.text for cell in _whole_cells(cells))
    script = getattr(sys.modules["__main__"], "__file__", None)
    return ("".join(linecache.getlines(script)),) if script else ()


def mentions(namespace: Mapping[str, Any], text: str) -> bool:
    """Return whether a cell that has run in this kernel contains the text."""
    return any(text in cell for cell in texts(namespace))


def variables(namespace: Mapping[str, Any]) -> list[str]:
    """Return the names of environment variables that cells have set and that still exist."""
    ran = texts(namespace)
    names = {match[1] or match[2] for text in ran for match in _VARIABLE.finditer(text)}
    names |= {name for text in ran if _UPDATES.search(text) for name in _updated(text)}
    return sorted(name for name in names if name in os.environ)


@functools.lru_cache(CELLS)
def _updated(text: str) -> frozenset[str]:
    """Return the names in `os.environ.update({"NAME": …}, NAME=…)` and in `os.environ |= {"NAME": …}`."""
    parsed, found = tree(text), set[str]()
    for node in ast.walk(parsed) if parsed is not None else ():
        owner: ast.expr
        if isinstance(node, ast.AugAssign):
            owner, given, keywords = node.target, [node.value], []
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner, given, keywords = node.func.value, node.args, node.keywords
        else:
            continue
        if "environ" in (getattr(owner, "attr", ""), getattr(owner, "id", "")):
            found |= {one.arg for one in keywords if one.arg}
            keys = [key for one in given if isinstance(one, ast.Dict) for key in one.keys]
            found |= {key.value for key in keys if isinstance(key, ast.Constant) and type(key.value) is str}
    return frozenset(found)


@functools.lru_cache(1000)
def tree(text: str) -> ast.Module | None:
    """Return the text as a syntax tree. None if it is not Python."""
    return _tree(text)


def _tree(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


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
    return body if isinstance(body, str) and name not in _NOT_RUN_HERE else ""


_NOT_RUN_HERE = frozenset(
    "! HTML SVG bash cmd distribute file html javascript js latex markdown perl px pypy python python2 "
    "python3 ruby script sh svg sx system writefile".split()
)
"""Magics whose cell is a text, or runs in another process. `%%script false` skips a cell."""


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


def _is_output(value: object, outputs: object) -> bool:
    """Return whether IPython has put this value into `_`. The newest outputs are looked at first."""
    shown = reversed(outputs.values()) if isinstance(outputs, dict) else ()
    return value is _NO_OUTPUT or any(value is each for each in shown)


def hidden_names(namespace: Mapping[str, Any]) -> set[str]:
    """Return names that the shell or the interpreter put into the notebook. A rank has its own or none."""
    found = {*filter(_is_hidden, namespace)}
    # IPython leaves `_` alone after `from gettext import gettext as _`, and so the name is the user's.
    found -= {name for name in _OUTPUTS & found if not _is_output(namespace[name], namespace.get("Out"))}
    found.update(name for name in _REPLACED if name in namespace and _is_ipythons(namespace[name]))
    return found


@functools.cache  # a long notebook has thousands of numbered names
def _is_hidden(name: str) -> bool:
    return name in _IPYTHON or name in _OF_A_MODULE or _NUMBERED.fullmatch(name) is not None


def _is_ipythons(value: Any) -> bool:
    # IPython's `open` claims to be from `io`, but a function's globals show its real module.
    space = getattr(value, "__globals__", {"__name__": type(value).__module__})
    return str(space.get("__name__")).partition(".")[0] in ("IPython", "ipykernel")
