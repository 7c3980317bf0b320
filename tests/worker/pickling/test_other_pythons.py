"""What differs between Pythons when values travel: annotations, aliases of types, counted references.

Since Python 3.14 annotations are computed when they are read.
"""

from __future__ import annotations

import dataclasses
import gc
import linecache
import sys
import textwrap
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle.cloudpickle as cp
import pytest

from jupyter_dist.capture import parameters
from jupyter_dist.capture.payload_builder import capture_cell
from jupyter_dist.errors import CaptureError
from jupyter_dist.worker import payload
from jupyter_dist.worker.pickling import annotation_values, generated_methods, loading
from jupyter_dist.worker.pickling.unpickling import hold
from jupyter_dist.worker.standard_library import module_names

DEFERRED = sys.version_info >= (3, 14)
WITH_LAZY_NAMES = "" if DEFERRED else "from __future__ import annotations\n"
"""What makes a name that is not there no error, before Python 3.14."""

Run = Callable[[str, str], Any]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run(cell, next)`: execute a cell, capture the next one, and load it where the first one never ran.

    Returns what the next one has called `result`, as the kernel gets it."""

    def play(first: str, then: str) -> Any:
        with monkeypatch.context() as patched:
            main = types.ModuleType("__main__")
            patched.setitem(sys.modules, "__main__", main)
            file, source = "/tmp/ipykernel_1/1.py", textwrap.dedent(first)
            linecache.cache[file] = (len(source), None, source.splitlines(True), file)
            exec(compile(source, file, "exec", dont_inherit=True), main.__dict__)
            captured = capture_cell(textwrap.dedent(then), main.__dict__, label="In[2]", directory=tmp_path)
            captured.write(tmp_path / "payload.pkl")
            # A rank is another process: nothing is known there.
            patched.setattr(cp, "_DYNAMIC_CLASS_TRACKER_BY_ID", type(cp._DYNAMIC_CLASS_TRACKER_BY_ID)())
            patched.setattr(cp, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", type(cp._DYNAMIC_CLASS_TRACKER_BY_CLASS)())
            rank = types.ModuleType("__main__")
            patched.setitem(sys.modules, "__main__", rank)
            header = payload.read_header(tmp_path / "payload.pkl")
            rank.__dict__.update(payload.load(tmp_path / "payload.pkl", main=rank.__dict__))
            code = compile(header["source"], header["filename"], "exec", header["flags"], dont_inherit=True)
            exec(code, rank.__dict__)
            payload.write_value(tmp_path / "result.pkl", rank.__dict__["result"])
        return payload.load(tmp_path / "result.pkl")

    return play


@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        (
            "def f(x: int, y: 'str' = 1) -> float: return x",
            "result = f(3), f.__annotations__",
            (3, {"x": int, "y": "str", "return": float}),
        ),
        ("class P:\n    x: int\n    y: float = 2.0", "result = P.__annotations__", {"x": int, "y": float}),
        (
            "class P: x: int\nP.__annotations__",
            "class Q(P): pass\nresult = P.__annotations__, vars(Q).get('__annotations__')",
            ({"x": int}, None),
        ),
        (
            "class A: pass\ndef f(x: A): return x\nclass B:\n    a: A",
            "result = f.__annotations__['x'] is A, B.__annotations__['a'] is A",
            (True, True),
        ),
        (
            "def make(q):\n    class Local: pass\n    def inner(x: Local): return q\n    return inner\n"
            "h = make(2)",
            "result = h(1), h.__annotations__['x'].__name__",
            (2, "Local"),
        ),
        (
            "from typing import NamedTuple, TypedDict\n"
            "class N(NamedTuple):\n    x: int\n    y: float = 2.0\n"
            "class T(TypedDict):\n    x: int\n",
            "result = N(1).y, N.__annotations__, T.__annotations__",
            (2.0, {"x": int, "y": float}, {"x": int}),
        ),
        (
            "from dataclasses import dataclass\n@dataclass(slots=True)\nclass D:\n    x: int = 1",
            "result = D(4) == D(4), D.__annotations__",
            (True, {"x": int}),
        ),
        ("def f(x): return x\nf.__annotations__ = {'x': 3}", "result = f.__annotations__", {"x": 3}),
        ("class C: pass\nC.__annotations__ = {'x': 3}", "result = C.__annotations__", {"x": 3}),
        ("a: int = 3", "if a:\n    b: int = a + 1\nresult = b", 4),
    ],
)
def test_the_values_travel(run: Run, first: str, then: str, expected: Any) -> None:
    assert run(first, then) == expected


@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        ("def f(x: Missing) -> float: return 2 * x", "result = f(3)", 6),
        ("import math\ndef f(x: math.no_such) -> float: return 2 * x", "result = f(3)", 6),
        (
            "class P:\n    x: Missing\n    def m(self, o: Other) -> P: return 5\n    @property\n"
            "    def p(self) -> Missing: return 6",
            "result = P().m(1), P().p",
            (5, 6),
        ),
        (
            "import functools\ndef around(fn):\n    @functools.wraps(fn)\n"
            "    def inner(*a: Missing): return fn(*a)\n    return inner\n"
            "@around\ndef f(x: Other): return x",
            "result = f(3)",
            3,
        ),
        (
            "from dataclasses import dataclass\nbig = bytearray(200_000)\n"
            "@dataclass\nclass D:\n    inner: Missing = None",
            "result = D(2).inner, 'gib'[::-1] in globals()  # a word in a string would travel",
            (2, False),
        ),
        ("a: Missing = 4", "b: int = a + 1\nresult = b", 5),
        *([("a: Missing = 4", "b: Other = a + 1\nresult = b", 5)] if DEFERRED else []),
    ],
)
def test_a_name_that_is_not_there_is_no_error(run: Run, first: str, then: str, expected: Any) -> None:
    assert run(WITH_LAZY_NAMES + first, then) == expected


@pytest.mark.parametrize(
    ("first", "place"),
    [
        ("def f(x: Later) -> float: return x", "f.__annotations__['x']"),
        ("class C:\n    Here = int\n    y: Here\n    x: Later", "C.__annotations__['x']"),
        ("class C:\n    Here = int\n    def f(self, y: Here, x: Later): pass", "C.f.__annotations__['x']"),
    ],
)
def test_a_name_that_comes_later_is_found_there(run: Run, first: str, place: str) -> None:
    found = run(WITH_LAZY_NAMES + first, f"class Later: pass\nresult = {place}, {place} is Later")
    assert found[1] if DEFERRED else found[0] == "Later"


def test_what_only_an_annotation_names_goes_along(run: Run) -> None:
    """It is read on a rank as in the notebook: beside the name that is not there, others are."""
    first = "class Known: pass\ndef f(x: Known, y: Missing): return x\n"
    then = "class Missing: pass\nresult = str(f.__annotations__['x'])"
    assert "Known" in run(WITH_LAZY_NAMES + first, then)


class Unreadable:
    """What Python 3.14 makes of a function whose annotation has a name that is not there."""

    @property
    def __annotations__(self) -> Any:  # type: ignore[override]
        raise NameError("name 'Missing' is not defined")

    def __init__(self) -> None:
        self.__annotate__ = lambda format: {"x": Missing}  # type: ignore[name-defined]  # noqa: F821


def test_what_computes_them_travels_where_they_cannot_be_read() -> None:
    """On any Python: the object stands for a function of Python 3.14."""
    function = Unreadable()
    assert annotation_values.of_function(function) == {"__annotate__": function.__annotate__}
    assert annotation_values.values(function) == {}


def test_a_call_is_checked_without_its_annotations() -> None:
    source = WITH_LAZY_NAMES + "def train(lr: Missing, *, steps: Other = 3): pass"
    space: dict[str, Any] = {}
    exec(compile(source, "cell", "exec", dont_inherit=True), space)
    assert list(annotation_values.signature(space["train"]).parameters) == ["lr", "steps"]
    assert parameters.of_call(space["train"], (0.1,), {}, {}) == {"lr": 0.1, "steps": 3}


def test_what_cannot_be_pickled_is_still_found_in_an_annotation(run: Run) -> None:
    first = "import threading\nclass Stream:\n    def __reduce__(self): raise ValueError('no way')\n"
    first += "stream = Stream()\ndef f(x: 3): pass\nf.__annotations__ = {'x': stream}\n"
    with pytest.raises(CaptureError, match=r"f\(\)'s annotation of x"):
        run(first, "f(1)\nresult = 1")


IN_SYNTAX = """
type Numbers = list[int]
type Pair[T] = tuple[T, T]
class G[T]:
    x: T
    def m(self, a: T) -> T: return a
def g[T: int](x: T) -> T: return x
"""
IN_CALLS = """
from typing import Generic, TypeVar
from typing_extensions import TypeAliasType
T = TypeVar("T")
Numbers = TypeAliasType("Numbers", list[int])
Pair = TypeAliasType("Pair", tuple[T, T], type_params=(T,))
class G(Generic[T]):
    x: T
    def m(self, a: T) -> T: return a
def g(x: T) -> T: return x
"""


@pytest.mark.parametrize("first", [IN_CALLS, *([IN_SYNTAX] if sys.version_info >= (3, 12) else [])])
def test_aliases_and_generic_classes_travel(run: Run, first: str) -> None:
    then = "result = Numbers.__value__, str(Pair[int]), Pair.__type_params__[0].__name__, G[int]().m(2), g(3)"
    assert run(first, then) == (list[int], "Pair[int]", "T", 2, 3)


class Referent:
    pass


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_rank_keeps_what_is_weakly_referred_to_only_if_nothing_else_does(elsewhere: bool) -> None:
    """How many references a Python counts for a value that one name holds differs between versions."""
    value = Referent()
    reference, holder = weakref.ref(value), [value] if elsewhere else []
    values = [value]
    del value
    with loading({}):
        hold(values)
        values.clear()
    assert reference() is not None
    holder.clear()
    gc.collect()
    assert (reference() is None) == elsewhere


def test_a_partialmethod_travels(run: Run) -> None:
    first = "import functools\nclass C:\n    def f(self, *a, **k): return a, k\n"
    first += "    g = functools.partialmethod(f, 1, b=2)"
    assert run(first, "result = C().g(3, c=4)") == ((1, 3), {"b": 2, "c": 4})


def test_a_pool_of_threads_travels_with_what_its_workers_call_first(run: Run) -> None:
    first = "from concurrent.futures import ThreadPoolExecutor\n"
    first += "pool = ThreadPoolExecutor(2, 'name', print, ('began',))"
    assert run(first, "result = pool._max_workers, pool._thread_name_prefix") == (2, "name")


def test_a_dataclass_of_python_39_gets_what_a_match_statement_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclasses.dataclass
    class Point:
        x: int

    with monkeypatch.context() as patched:
        patched.setattr(generated_methods, "_HAS_MATCH_ARGS", False)
        type.__delattr__(Point, "__match_args__")
        described = generated_methods.describe(Point)
    assert described is not None
    generated_methods.apply(Point, described)
    assert Point.__match_args__ == ("x",)


def test_the_standard_library_of_python_39_is_what_its_folders_contain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = module_names()
    with monkeypatch.context() as patched:
        patched.delattr(sys, "stdlib_module_names")
        found = module_names.__wrapped__()
    assert {"sys", "json", "os", "functools", "math"} <= found & listed
    assert not {"test", "numpy", "jupyter_dist", "site-packages"} & found
