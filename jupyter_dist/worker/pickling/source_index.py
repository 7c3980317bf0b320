"""The functions in a source text, by places that are the same for every version of Python.

A place is the number of a `def` or `lambda` in the text, together with its name. A version of Python compiles
the text with its own bytecode. The place then finds the code of the same function there.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import functools
import re
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Optional, Union

__all__ = ["Index", "Place", "compiled", "future_flags", "index", "path_of"]

Place = tuple[int, str]
_Function = Union[ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda]
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_FIRST = 1_000_000
"""The line of the first marked function. No text has so many lines."""
_OF_NO_PATH = re.compile(r"<(?!lambda>)[^>]*>\.")
_FUTURE = functools.reduce(
    lambda bits, name: bits | getattr(__future__, name).compiler_flag, __future__.all_feature_names, 0
)


class Index(NamedTuple):
    """The code of all functions in a text, as this Python compiles it."""

    codes: dict[Place, types.CodeType]
    places: dict[types.CodeType, Place]
    paths: dict[str, list[Place]]
    """The names of the enclosing functions and classes, and of the function itself, joined by dots."""


def future_flags(flags: int) -> int:
    """Return the flags of a code or a compiler that are `__future__` imports. All Pythons have these."""
    return flags & _FUTURE


def path_of(qualname: str) -> str:
    """Return a qualified name as `Index.paths` has it."""
    return _OF_NO_PATH.sub("", qualname)


def compiled(code: types.CodeType, path: str = "") -> Iterator[tuple[types.CodeType, str]]:
    """Yield the functions inside compiled code, with their paths."""
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            named = inner.co_name == "<lambda>" or not inner.co_name.startswith("<")
            yield inner, f"{path}{inner.co_name}"
            yield from compiled(inner, f"{path}{inner.co_name}." if named else path)


@functools.lru_cache(maxsize=1000)  # each cell captures the functions of earlier cells again
def index(
    text: str, filename: str, flags: int = 0, optimize: int = -1, *, by_statement: bool = False
) -> Index:
    """Compile a text and return the index of its functions. Raises SyntaxError.

    `by_statement`: compile each statement alone, as IPython does. The bytecode differs if another statement
    imports a name that a function uses.
    """
    flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the text was compiled before, with its warnings
        tree = compile(text, filename, "exec", flags | ast.PyCF_ONLY_AST, True, optimize)
        parts = [ast.Module([node], []) for node in tree.body] if by_statement else [tree]
        plain = [compile(part, filename, "exec", flags, True, optimize) for part in parts]
        numbers = _Numbers()
        numbers.number(tree, "")
        numbers.mark()
        marked = [compile(part, filename, "exec", flags, True, optimize) for part in parts]
    made = Index({}, {}, {})
    for part, own, code in zip(parts, marked, plain):
        again = functools.partial(compile, part, filename, "exec", flags, True, optimize)
        _Pairing(numbers, again, made).pair(own, code, ())
    for path, place in numbers.paths:
        if place in made.codes:
            made.paths.setdefault(path, []).append(place)
    return made


class _Numbers:
    """The functions of a tree in the order of the text's nodes."""

    def __init__(self) -> None:
        self.paths: list[tuple[str, Place]] = []
        self.found: dict[tuple[int, str], Place] = {}
        """Line and name of a marked function → its place."""
        self.lines: list[int] = []
        """The first line of each function in the text."""
        self._nodes: list[_Function] = []
        self._positions: list[list[tuple[ast.AST, _Position]]] = []

    def number(self, node: ast.AST, path: str) -> None:
        inside = path
        if isinstance(node, _FUNCTIONS):
            name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
            inside = f"{path}{name}."
            self.paths.append((f"{path}{name}", (len(self._nodes), name)))
            self._nodes.append(node)
        elif isinstance(node, ast.ClassDef):
            inside = f"{path}{node.name}."
        for field, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):  # decorators and defaults belong to the scope around
                    self.number(child, inside if field == "body" else path)

    def mark(self) -> None:
        """Set a first line of its own for each function."""
        for node in self._nodes:
            first = _first(node)
            self.lines.append(first.lineno)
            self._positions.append([(each, _position(each)) for each in {node: 0, first: 0}])
        for number, node in enumerate(self._nodes):
            _move(node, _FIRST + number)
        for number, node in enumerate(self._nodes):
            _, place = self.paths[number]
            first = _first(node)  # the code's first line is that of the first decorator
            if not isinstance(first, ast.Lambda):
                _move(first, _FIRST + number)
            self.found[first.lineno, place[1]] = place

    @contextlib.contextmanager
    def unmarked(self, numbers: Iterable[int]) -> Iterator[None]:
        """Restore the lines of some functions for a while."""
        nodes = {node: kept for number in numbers for node, kept in self._positions[number]}
        marks = {node: _position(node) for node in nodes}
        try:
            for node, kept in nodes.items():
                _set_position(node, kept)
            yield
        finally:
            for node, kept in marks.items():
                _set_position(node, kept)


_Position = tuple[int, Optional[int], int, Optional[int]]


def _first(node: _Function) -> Any:
    return node if isinstance(node, ast.Lambda) or not node.decorator_list else node.decorator_list[0]


def _position(node: Any) -> _Position:
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset


def _set_position(node: Any, position: _Position) -> None:
    node.lineno, node.end_lineno, node.col_offset, node.end_col_offset = position


def _move(node: ast.AST, line: int) -> None:
    _set_position(node, (line, line, 0, 0))


class _Pairing:
    """The search for the code of each marked function, as Python compiles the text without marks."""

    def __init__(self, numbers: _Numbers, again: Callable[[], types.CodeType], made: Index) -> None:
        self._numbers = numbers
        self._again = again
        """Compile the tree with its present marks."""
        self._made = made

    def pair(self, marked: types.CodeType, plain: types.CodeType, path: tuple[int, ...]) -> None:
        """Find the functions inside `plain`. `path`: the positions of `marked` and the code around it."""
        inside, codes = _inside(marked), _inside(plain)
        for position, own in enumerate(inside):
            code = codes[position] if len(codes) == len(inside) else None
            if code is None or not self._fits(own, code):
                # Python has merged equal functions of one line, which the marks keep apart.
                code = self._alone(own, (*path, position))
            if not self._fits(own, code):
                continue
            place = self._place(own)
            if place is not None:
                self._made.codes[place] = code
                self._made.places.setdefault(code, place)
            self.pair(own, code, (*path, position))

    def _place(self, own: types.CodeType) -> Place | None:
        return self._numbers.found.get((own.co_firstlineno, own.co_name))

    def _fits(self, own: types.CodeType, code: types.CodeType) -> bool:
        place = self._place(own)
        line = own.co_firstlineno if place is None else self._numbers.lines[place[0]]
        return own.co_name == code.co_name and (line >= _FIRST or line == code.co_firstlineno)

    def _alone(self, own: types.CodeType, path: tuple[int, ...]) -> types.CodeType:
        """Compile the text with marks on all functions but one, and those inside it."""
        with self._numbers.unmarked(self._numbers_in(own)):
            code = self._again()
        for position in path:
            code = _inside(code)[position]
        return code

    def _numbers_in(self, own: types.CodeType) -> Iterator[int]:
        place = self._place(own)
        if place is not None:
            yield place[0]
        for code in _inside(own):
            yield from self._numbers_in(code)


def _inside(code: types.CodeType) -> list[types.CodeType]:
    return [value for value in code.co_consts if isinstance(value, types.CodeType)]
