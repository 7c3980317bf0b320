"""The top-level statements of the cells that have run.

A notebook may have hundreds of cells. A cell is parsed once, and only if a question needs its statements.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from ..worker.pickling.used_names import code_names
from .notebook_history import CELLS, RanCell, tree

__all__ = ["Place", "RanStatements", "Statement", "first_line"]

Place = tuple[int, int]
"""The index of a cell and that of the statement in it. Places are in the order in which statements ran."""


class Statement(NamedTuple):
    """A top-level statement that ran without an error."""

    cell: RanCell
    node: ast.stmt
    binds: frozenset[str]
    words: frozenset[str]

    @property
    def where(self) -> str:
        return f"In[{self.cell.number}], line {first_line(self.node) + self.cell.lines_before}"


class RanStatements:
    """The statements of cells, found by the words in the text of a cell."""

    def __init__(self, cells: Sequence[RanCell]) -> None:
        self._cells = [(cell, _words(cell.text)) for cell in cells]
        self._bindings: dict[str, list[tuple[Place, ast.stmt]]] = {}

    def bindings(self, name: str) -> list[tuple[Place, ast.stmt]]:
        """Return the statements that have bound a name."""
        if name not in self._bindings:
            found = self.with_any({name})
            self._bindings[name] = [(at, one.node) for at, one in found if name in one.binds]
        return self._bindings[name]

    def with_any(
        self,
        names: Collection[str],
        pattern: re.Pattern[str] | None = None,
        *,
        subscripted: Collection[str] = (),
    ) -> Iterator[tuple[Place, Statement]]:
        """Yield all statements of each cell that has one of the words, or a match of the pattern.

        A name of `subscripted` counts only before a bracket, as in `TABLE["key"]`.
        """
        for index, (cell, words) in enumerate(self._cells):
            if (
                words is None
                or not words.all.isdisjoint(names)
                or not words.subscripted.isdisjoint(subscripted)
                or (pattern is not None and _matches(pattern, cell.text))
            ):
                for number, (node, binds, inner) in enumerate(_parsed(cell.text)):
                    if (node.end_lineno or node.lineno) + cell.lines_before < cell.end:
                        yield (index, number), Statement(cell, node, binds, inner)


def first_line(node: ast.stmt) -> int:
    """Return the line of a statement, or of its first decorator."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(item.lineno for item in decorators)])


class _Words(NamedTuple):
    all: frozenset[str]
    subscripted: frozenset[str]


_WORD = re.compile(r"[^\W\d]\w*")
_SUBSCRIPTED = re.compile(r"([^\W\d]\w*)[\s\\]*\[")


@functools.lru_cache(CELLS)
def _words(text: str) -> _Words | None:
    """Return the words in a text. None if Python may spell a name in another way than the text does."""
    if not text.isascii():
        return None
    return _Words(frozenset(_WORD.findall(text)), frozenset(_SUBSCRIPTED.findall(text)))


@functools.lru_cache(CELLS)
def _matches(pattern: re.Pattern[str], text: str) -> bool:
    return pattern.search(text) is not None


@functools.lru_cache(1000)
def _parsed(text: str) -> tuple[tuple[ast.stmt, frozenset[str], frozenset[str]], ...]:
    parsed = tree(text)
    found = []
    for node in parsed.body if parsed is not None else ():
        try:
            code = compile(ast.Module([node], []), "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
        except (SyntaxError, ValueError, RecursionError):
            return ()
        names = code_names(code)
        found.append((node, names.writes, names.words))
    return tuple(found)
