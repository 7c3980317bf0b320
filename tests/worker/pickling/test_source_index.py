"""The functions of a text by their places: each place is the function that a compiler makes there."""

from __future__ import annotations

import sys
import textwrap
import types
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_dist.worker.pickling.source_index import compiled, future_flags, index, path_of

TEXT = textwrap.dedent(
    """
    twice, once, again = [lambda x: x * 2, lambda x: x, lambda x: x]
    nested = lambda a: (lambda b: (a, b))
    @(lambda f: f)
    def plain(a, b=lambda: 1, *c, d=(lambda: 2)):
        fs = [(lambda: i) for i in range(3)]
        class Inside:
            x = [lambda: 7, lambda: 7, lambda: 8]
            @staticmethod
            async def of(self):
                return f"{(lambda q: q)(3)}"
        try:
            return Inside, fs
        finally:
            later = lambda: b
    class Outer:
        class Inner:
            def get(self):
                return __class__, [(lambda: (self, j)) for j in "ab"]
            @property
            def value(self): return 1
            @value.setter
            def value(self, new): self.x = new
    if 0:
        def never(): pass
    """
)


def codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield const
            yield from codes_in(const)


@pytest.mark.parametrize("by_statement", [False, True])
def test_each_function_of_a_compiled_text_has_a_place(by_statement: bool) -> None:
    found = index(TEXT, "cell", by_statement=by_statement)
    functions = {
        code for code in codes_in(compile(TEXT, "cell", "exec", dont_inherit=True)) if code.co_name[:1] != "<"
    }
    functions -= {code for code in functions if code.co_name in ("Inside", "Outer", "Inner")}
    assert {code.co_name for code in functions} >= {"plain", "of", "get", "value"}
    for code in codes_in(compile(TEXT, "cell", "exec", dont_inherit=True)):
        if code in functions or code.co_name == "<lambda>":
            assert found.codes[found.places[code]] == code
            assert found.places[code][1] == code.co_name


def test_lambdas_of_one_line_are_told_apart() -> None:
    found = index(TEXT, "cell")
    codes = [found.codes[place] for place in found.paths["<lambda>"]]
    assert [code.co_firstlineno for code in codes] == [2, 2, 2, 3, 5, 5, 4]
    first, second, third = (types.FunctionType(code, {}) for code in codes[:3])
    assert (first(5), second(5), third(5)) == (10, 5, 5)
    eights = [types.FunctionType(found.codes[p], {})() for p in found.paths["plain.Inside.<lambda>"]]
    assert eights == [7, 7, 8]


def test_lines_are_the_text_s() -> None:
    """Finding the functions must leave no trace in what a traceback shows."""
    found = index(TEXT, "cell")
    code = found.codes[found.paths["Outer.Inner.get"][0]]
    lines = {line for _, _, line in code.co_lines() if line is not None}
    start = TEXT[: TEXT.index("    def get")].count("\n") + 1
    assert code.co_firstlineno == start
    assert lines <= {start, start + 1}


def test_both_functions_of_one_name_are_found() -> None:
    getter, setter = (index(TEXT, "cell").codes[p] for p in index(TEXT, "cell").paths["Outer.Inner.value"])
    assert (getter.co_argcount, setter.co_argcount) == (1, 2)


def test_a_statement_that_imports_changes_the_bytecode_of_another() -> None:
    """IPython compiles each statement alone."""
    text = "import os\ndef f():\n    return os.getcwd()\n"
    alone = compile(text.replace("import os", ""), "cell", "exec", dont_inherit=True).co_consts[0]
    assert index(text, "cell", by_statement=True).places.get(alone) == (0, "f")
    if sys.version_info >= (3, 11):
        assert index(text, "cell").places.get(alone) is None


def test_future_imports_of_an_earlier_cell_count() -> None:
    space: dict[str, object] = {}
    exec(compile("from __future__ import annotations\ndef f(x: Missing): pass", "cell", "exec"), space)
    code = space["f"].__code__  # type: ignore[attr-defined]
    flags = future_flags(code.co_flags)
    assert flags
    assert index("\ndef f(x: Missing): pass", "cell", flags).places.get(code) == (0, "f")


def test_a_qualified_name_is_a_path() -> None:
    assert path_of("outer.<locals>.Inner.get") == "outer.Inner.get"
    assert path_of("f.<locals>.<listcomp>.<lambda>") == "f.<lambda>"
    assert "plain.Inside.of" in index(TEXT, "cell").paths


def test_compiled_code_has_the_same_paths_as_its_text() -> None:
    """Some installations of Python have no text of their library."""
    found = index(TEXT, "cell").paths
    paths: dict[str, int] = {}
    for _, path in compiled(compile(TEXT, "cell", "exec", dont_inherit=True)):
        paths[path] = paths.get(path, 0) + 1
    assert {
        path: len(places) for path, places in found.items() if "lambda" not in path
    }.items() <= paths.items()
    assert paths["plain.Inside.of.<lambda>"] == 1


MERGED: dict[str, tuple[str, list[Any]]] = {
    "equal, then another with the same constants in another order": (
        "fs = [lambda p: (p, 0, 1), lambda p: (p, 0, 1), lambda p: (p, 1, 0)]",
        [(10, 0, 1), (10, 0, 1), (10, 1, 0)],
    ),
    "equal, then another with exchanged constants": (
        "fs = [lambda x: x * 2 + 3, lambda x: x * 2 + 3, lambda x: x * 3 + 2]",
        [23, 23, 32],
    ),
    "large constants": (
        "fs = [lambda *_: 1000000, lambda *_: 1000000, lambda *_: 2000000]",
        [1000000, 1000000, 2000000],
    ),
    "a class body": (
        "class C:\n    up, down = staticmethod(lambda x: x * 2 - 1), staticmethod(lambda x: x * 2 - 1)\n"
        "    left = staticmethod(lambda x: x * 1 - 2)\n"
        "fs = [C.up, C.down, C.left]",
        [19, 19, 8],
    ),
    "types of constants": (
        "fs = [lambda _: 1, lambda _: 1, lambda _: 1.0, lambda _: True]",
        [1, 1, 1.0, True],
    ),
    "lambdas of equal lambdas": (
        "fs = [(lambda a: lambda x: (a, x))(1), (lambda a: lambda x: (a, x))(1), lambda x: x]",
        [(1, 10), (1, 10), 10],
    ),
    "lambdas of equal comprehensions": (
        "fs = [*[lambda x: x for _ in 'a'], *[lambda x: x for _ in 'a'], *[lambda x: -x for _ in 'a']]",
        [10, 10, -10],
    ),
}
"""Lambdas of one line that some versions of Python merge, with what each returns for 10."""


@pytest.mark.parametrize("case", MERGED)
def test_merged_lambdas_are_told_apart(case: str) -> None:
    """The group `pythons` runs this on every version of Python: 3.10 merges all of these, 3.11 none."""
    text, expected = MERGED[case]
    found = index(text, "cell")
    space: dict[str, Any] = {}
    exec(compile(text, "cell", "exec", dont_inherit=True), space)
    assert [repr(f(10)) for f in space["fs"]] == [repr(value) for value in expected]
    # Each function is at the place of its text, and the code at the place returns the same.
    for f in space["fs"]:
        place = found.places[f.__code__]
        assert found.codes[place] == f.__code__
    leaves = [
        code
        for code in (found.codes[place] for place in sorted(found.codes))
        if not any(isinstance(inner, types.CodeType) for inner in code.co_consts)
    ]
    cells = tuple(types.CellType(1) for _ in leaves[0].co_freevars)
    calls = [types.FunctionType(code, {}, closure=cells if code.co_freevars else None)(10) for code in leaves]
    assert [repr(value) for value in calls] == [repr(value) for value in expected]
