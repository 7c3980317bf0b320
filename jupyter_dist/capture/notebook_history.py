"""Code that has run in this notebook so far, or the script that is running."""

from __future__ import annotations

import ast
import functools
import linecache
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["texts", "tree", "variables"]

_VARIABLE = re.compile(
    r"""\benviron(?:\[|\.setdefault\()\s*["'](\w+)["']\s*(?:\]\s*=(?!=)|,)"""
    r"""|run_line_magic\('(?:set_)?env', '(\w+)[ =]"""
)
_MAGIC = "get_ipython().run_cell_magic("


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


def variables(namespace: Mapping[str, Any]) -> list[str]:
    """Return the names of environment variables that cells have set and that still exist."""
    names = {match[1] or match[2] for text in texts(namespace) for match in _VARIABLE.finditer(text)}
    return sorted(name for name in names if name in os.environ)


@functools.lru_cache(1000)
def tree(text: str) -> ast.Module | None:
    """Return the text as a syntax tree. None if it is not Python."""
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
    parsed = tree(cell)
    call = parsed.body[0] if parsed is not None and parsed.body else None
    if not (isinstance(call, ast.Expr) and isinstance(call.value, ast.Call) and len(call.value.args) == 3):
        return ""
    name, _, body = (arg.value if isinstance(arg, ast.Constant) else "" for arg in call.value.args)
    return body if isinstance(body, str) and name != "distribute" else ""
