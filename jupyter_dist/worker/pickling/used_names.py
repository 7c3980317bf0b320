"""Names in the code of a function, a class body or a cell."""

from __future__ import annotations

import dis
import functools
import inspect
import types
from typing import Any, NamedTuple

__all__ = ["CodeNames", "code_names"]


class CodeNames(NamedTuple):
    """The names in a code object and in those nested in it."""

    reads: frozenset[str]
    """Global names that may be read or deleted, without the names of a class body that it reads itself."""
    writes: frozenset[str]
    """Names bound at the top level or by a `global` statement."""
    imports: frozenset[str]
    words: frozenset[str]
    """Every name and attribute."""


_READS = {"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS", "DELETE_NAME", "DELETE_GLOBAL"}


@functools.lru_cache(maxsize=4096)  # each cell checks the functions of earlier cells again
def code_names(code: types.CodeType, *, class_body: bool = False, later: bool = True) -> CodeNames:
    """Return the names in a code object and in all code nested in it.

    With `later=False`, nested functions are left out, because they run only when they are called.
    """
    reads: set[str] = set()
    writes: set[str] = set()
    imports: set[str] = set()
    words = set(code.co_names)
    own: set[str] = set()
    constant: Any = None
    for instruction in dis.get_instructions(code):
        operation, name = instruction.opname, instruction.argval
        if operation in _READS:
            # `@data.setter` in a class body refers to the line above, not to the notebook.
            reads |= {name} - own
        elif operation in ("STORE_NAME", "STORE_GLOBAL"):
            (own if class_body and operation == "STORE_NAME" else writes).add(name)
        elif operation == "IMPORT_NAME":
            imports.add(name)
            imports |= {f"{name}.{part}" for part in constant or ()}
        elif operation == "LOAD_CONST":
            constant = name
    for nested in code.co_consts:
        if isinstance(nested, types.CodeType) and (later or _runs_at_once(nested)):
            is_class = not nested.co_flags & inspect.CO_OPTIMIZED
            inner = code_names(nested, class_body=is_class, later=later)
            reads |= inner.reads
            writes |= inner.writes
            imports |= inner.imports
            words |= inner.words
    return CodeNames(frozenset(reads), frozenset(writes), frozenset(imports), frozenset(words))


def _runs_at_once(code: types.CodeType) -> bool:
    comprehension = code.co_name in ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
    return comprehension or not code.co_flags & inspect.CO_OPTIMIZED
