"""Names in the code of a function, a class body or a cell."""

from __future__ import annotations

import dis
import functools
import inspect
import re
import types
from typing import Any, NamedTuple

__all__ = ["CodeNames", "code_names", "statement_names", "words_in"]


class CodeNames(NamedTuple):
    """The names in a code object and in those nested in it."""

    reads: frozenset[str]
    """Global names that may be read or deleted, without the names of a class body that it reads itself."""
    writes: frozenset[str]
    """Names bound at the top level or by a `global` statement."""
    imports: frozenset[str]
    words: frozenset[str]
    """Every name and attribute."""
    texts: frozenset[str]
    """Words in the strings of the code, without its docstrings. Other code may evaluate such a string."""


_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_LONGEST = 10_000
"""The number of characters up to which a string is searched. A longer string is data."""
_NO_TEXT = {"CALL_KW", "CALL_FUNCTION_KW", "IMPORT_NAME"}
"""Instructions after a constant that contains names of keywords or of imports."""
_READS = {"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS", "DELETE_NAME", "DELETE_GLOBAL"}


@functools.lru_cache(maxsize=4096)  # each cell checks the functions of earlier cells again
def code_names(code: types.CodeType, *, class_body: bool = False, later: bool = True) -> CodeNames:
    """Return the names in a code object and in all code nested in it.

    With `later=False`, nested functions are left out, because they run only when they are called.
    """
    return _names(code, class_body, later)


@functools.lru_cache(maxsize=256)
def statement_names(code: types.CodeType, *, later: bool = True) -> CodeNames:
    """Return what `code_names` returns. Call this for statements, which few cells have in common."""
    return _names(code, False, later)


def _names(code: types.CodeType, class_body: bool, later: bool) -> CodeNames:
    reads: set[str] = set()
    writes: set[str] = set()
    imports: set[str] = set()
    words = set(code.co_names)
    texts: set[str] = set()
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
        elif operation == "RETURN_CONST":
            texts |= words_in(name)
        if constant is not None and operation not in _NO_TEXT and name != "__doc__":
            texts |= words_in(constant)
        constant = name if operation == "LOAD_CONST" else None
    for nested in code.co_consts:
        if isinstance(nested, types.CodeType) and (later or _runs_at_once(nested)):
            is_class = not nested.co_flags & inspect.CO_OPTIMIZED
            inner = code_names(nested, class_body=is_class, later=later)
            reads |= inner.reads
            writes |= inner.writes
            imports |= inner.imports
            words |= inner.words
            texts |= inner.texts
    found = (reads, writes, imports, words, texts)
    return CodeNames(*(frozenset(names) if names else _NONE for names in found))


_NONE = frozenset[str]()


def words_in(value: Any, depth: int = 3) -> set[str]:
    """Return the words in a string, or in the strings of a list, tuple, set or dict."""
    if issubclass(type(value), str):  # isinstance would ask the value itself for its class
        return {*_IDENTIFIER.findall(value)} if len(value) <= _LONGEST else set()
    if not depth or type(value) not in (list, tuple, set, frozenset, dict) or len(value) > _MOST:
        return set()
    parts = [*value, *value.values()] if type(value) is dict else value
    return set().union(*(words_in(part, depth - 1) for part in parts))


_MOST = 1000
"""The number of items up to which a container is searched."""


def _runs_at_once(code: types.CodeType) -> bool:
    comprehension = code.co_name in ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
    return comprehension or not code.co_flags & inspect.CO_OPTIMIZED
