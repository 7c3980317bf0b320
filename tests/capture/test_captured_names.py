"""The names that a cell needs: which ones are captured, and that they work on a rank."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_dist.capture.payload_builder import capture_cell
from jupyter_dist.worker import payload
from tests.rigs.notebook_cells import DEFINITIONS, FUTURE_ANNOTATIONS, Notebook

NAMES = [
    ("a + b.c", "a b"),
    ("a = 1; a", ""),
    ("a = a + 1", "a"),
    ("a += 1", "a"),
    ("f = a; f(b); c = d", "a b d"),
    ("for a in b: a, c", "b c"),
    ("for a in b: c = a\nc", "b c"),
    ("if a: b = 1\nb", "a b"),
    ("if a: b = 1\nelse: b = 2\nb", "a"),
    ("while a: b = 1\nb", "a b"),
    ("with a as b, b.c as d:\n  e = d\nb, e", "a"),
    ("try: a = b\nexcept c as d: raise\na", "b c"),
    ("try: a = b\nexcept c as d: d\na", "a b c"),
    ("try: a = b\nfinally: c = 1\na, c", "b"),
    ("import a.b as c, d.e\nfrom f import a\na, c, d", ""),
    ("match a:\n  case [b, *c] if d: e = b\n  case _: pass\ne", "a b d e"),
    ("for a in b:\n  match a:\n    case 1: break\n    case 2: continue", "b"),
    ("[a for a in b if c]; {d: e for d in b}; (x for x in f)", "b c e f"),
    ("lambda a, b=c: a + d", "c d"),
    ("def f(a, b=c) -> d:\n  e = a\n  return g(e)", "c d g"),
    ("def f():\n  global a\n  a = b", "b"),
    ("def f(): return a\na = 1\nf()", "a"),
    ("class A(B, metaclass=C):\n  d = e\n  f = d\n  def g(self): return h", "B C e h"),
    ("class A:\n  @property\n  def b(self): pass\n  @b.setter\n  def b(self, c): pass", ""),
    ("class A:\n  class B:\n    c = d\n  [e for e in f]", "d f"),
    ("def f():\n  class A:\n    b = c\n  return [d for d in e]", "c e"),
    ("@a\n@b.c(d)\ndef f(): pass", "a b d"),
    ("f'{a!r:{b}} {c.d}'", "a b c"),
    ("del a", "a"),
    ("a = 1\ndel a\na", "a"),
    ("a: b = c\nd: e", "b c e"),
    ("a[b] = c; d.e = f; (g, *h) = i", "a b c d f i"),
    ("a = (b := c); b", "b c"),
    ("await a; [b async for b in c]", "a c"),
    ("assert a, b\nraise c from d", "a b c d"),
    ("print(len); a.print", "a"),
]


class TestNames:
    @pytest.mark.parametrize(("source", "expected"), NAMES)
    def test_are_those_read_before_the_cell_has_bound_them(
        self, notebook: Notebook, source: str, expected: str
    ) -> None:
        notebook.names.update(dict.fromkeys("abcdefghixABC", 1))
        assert sorted(notebook.capture(source).header["names"]) == sorted(expected.split())

    def test_of_overridden_builtins_go_along(self, notebook: Notebook) -> None:
        notebook.cell("def print(x): return x * 2\ndef f(): return print(3)")
        assert notebook.run("result = [print(2), f(), len('abc')]") == [4, 6, 3]

    def test_of_the_interpreter_do_not(self, notebook: Notebook) -> None:
        shown = ["z"]
        notebook.names.update({"__name__": "__main__", "_i3": "x", "_5": shown, "In": [], "Out": {5: shown}})
        notebook.names.update({"_": shown, "__": ""})
        captured = notebook.capture("__name__, _i3, _5, _, __, In, Out, __builtins__")
        assert captured.header["names"] == []

    def test_an_underscore_that_the_notebook_has_assigned_goes_along(self, notebook: Notebook) -> None:
        notebook.names["Out"] = {1: "5"}
        notebook.cell("from gettext import gettext as _\ndef greet(): return _('hello')")
        assert notebook.run("result = greet()") == "hello"

    def test_what_the_cell_assigns_may_be_unpicklable(self, notebook: Notebook) -> None:
        notebook.cell("import zlib\nlock = zlib.compressobj()\nitems = [1, 2]")
        captured = notebook.capture("for i in items:\n    lock = i\nresult = lock")
        assert notebook.run_payload(captured) == 2
        (note,) = captured.notes
        assert note.startswith("'lock' stays behind, the cell assigns its own (lock: cannot pickle")

    def test_functions_use_what_the_cell_has_assigned_before_their_call(self, notebook: Notebook) -> None:
        notebook.cell("import contextlib, zlib\nlock, other = zlib.compressobj(), zlib.compressobj()\nn = 2")
        notebook.cell(
            "def f(): return lock\ndef g(): return f(), other\nclass A:\n  def go(self): return g()\na = A()"
        )
        for cell in ("lock = n", "import math as lock\nlock = 2", "with contextlib.nullcontext(): lock = 2"):
            captured = notebook.capture(f"{cell}\nresult = f()")
            assert notebook.run_payload(captured) == 2
            (note,) = captured.notes
            assert note.startswith("'lock' stays behind, the cell assigns its own (lock: cannot pickle")
        captured = notebook.capture("lock, (other, *_) = 1, [2]\nresult = a.go(), g()")
        assert notebook.run_payload(captured) == ((1, 2), (1, 2))
        assert len(captured.notes) == 2
        for cell in (
            "f()\nlock = 1",
            "if n: lock = 1\nf()",
            "for lock in [1]: f()\nlock = f()",
            "other = 1\ng()",
            "f()\nlock = 1\nf()",
            "a.go()\nlock = other = 1",
            "def lock(): return f()\ndel lock\nf()",
        ):
            assert "cannot pickle" in notebook.error(cell), cell

    def test_what_is_surely_read_first_may_not(self, notebook: Notebook) -> None:
        notebook.cell("import zlib\nlock = zlib.compressobj()")
        assert notebook.error("lock\nlock = 1").startswith("lock: cannot pickle")
        assert notebook.capture("def f(): return lock\nlock = 1\nresult = f()").header["names"] == []


USES = [
    ("Impl.make().go(), Impl.table(), Impl().twice, Impl().cached", (2.0, 1, 2, 0.5)),
    ("isinstance(Impl(), Base)", True),
    ("Colour.RED.label()", "RED 0.5"),
    ("Config(ys=[1]).colour is Colour.RED", True),
    ("Pair(3).scaled(), Point(1, 2).y", (1.5, 2)),
    ("even(10), odd(10)", (True, False)),
    ("decorated(4), decorated.__name__", (4.5, "decorated")),
    ("step(), step()", (2, 3)),
    ("annotated(3), sorted(annotated.__annotations__)", (3, ["return", "x", "y"])),
    ("list(generator())", [0.5]),
    ("managed().__enter__()", 0.5),
    ("fib(40)", 102334155),
    ("add(2)", 3.5),
    ("log.name, osp.basename('a/b'), pool()", ("mine", "b", "ThreadPoolExecutor")),
    ("Made().rate, type(Made).__name__", (0.5, "Meta")),
    ("method()", 2.0),
    ("loop(), inner_class()", (["a0.5"], (0.5, [1]))),
    ("(lambda: [LR for _ in TABLE])()", [0.5]),
]


class TestWhatTravels:
    @pytest.fixture(params=[0, FUTURE_ANNOTATIONS], ids=["", "future"])
    def defined(self, notebook: Notebook, request: pytest.FixtureRequest) -> Notebook:
        notebook.cell(DEFINITIONS, request.param)
        return notebook

    def test_works_as_in_the_notebook(self, defined: Notebook) -> None:
        source = "".join(f"result.append(({use}))\n" for use, _ in USES)
        assert defined.run("result = []\n" + source) == [expected for _, expected in USES]

    @pytest.mark.parametrize(("use", "expected"), USES)
    def test_each_is_captured_with_all_it_needs(self, notebook: Notebook, use: str, expected: Any) -> None:
        # Loaded here, not on a rank: missing names show as quickly, and the classes are this process's.
        notebook.cell(DEFINITIONS)
        captured = notebook.capture(use)
        captured.write(notebook.folder / "p.pkl")
        main: dict[str, Any] = {"__name__": "__main__"}
        main.update(payload.load(notebook.folder / "p.pkl", main=main))
        assert set(captured.header["names"]) <= main.keys()
        assert eval(captured.header["source"], main) == expected

    def test_the_cell_decides_what_functions_see(self, notebook: Notebook) -> None:
        notebook.cell("LR = 0.5\ndef train():\n    global steps\n    steps = 3\n    return LR")
        assert notebook.run("LR = 2\nresult = [train(), steps]") == [2, 3]
        assert "steps" not in notebook.names

    def test_a_copy_of_the_namespace_will_do(self, notebook: Notebook) -> None:
        notebook.cell("LR = 0.5\ndef train(): return LR")
        captured = capture_cell(
            "LR = 2\nresult = train()", dict(notebook.names), label="x", directory=notebook.folder
        )
        assert notebook.run_payload(captured) == 2

    def test_modules_go_by_name(self, notebook: Notebook) -> None:
        notebook.cell("import json as j, xml.etree.ElementTree as tree\nimport jupyter_dist as dist")
        captured = notebook.capture("result = [j.__name__, tree.__name__, dist.__name__]")
        assert len(captured.body) < 1000
        assert notebook.run_payload(captured) == ["json", "xml.etree.ElementTree", "jupyter_dist"]

    def test_instances_come_back_as_the_notebooks_own(self, notebook: Notebook) -> None:
        notebook.cell(DEFINITIONS)
        config = notebook.run("result = Config(x=9)")
        assert type(config) is notebook.names["Config"]
        assert config == notebook.names["Config"](9)

    def test_arrays_are_not_copied(self, notebook: Notebook) -> None:
        notebook.cell("import numpy as np\nX = np.zeros(1_000_000)\ndef total(): return float(X.sum())")
        captured = notebook.capture("X[0] = 3\nresult = total()")
        (view,) = captured.buffers
        notebook.names["X"][1] = 2  # seen through the view
        assert bytes(view[8:16]) == notebook.names["X"][1:2].tobytes()
        assert notebook.run_payload(captured) == 5
        assert notebook.names["X"][0] == 0

    def test_tracebacks_and_inspect_show_the_cells_lines(self, notebook: Notebook) -> None:
        notebook.cell("import inspect\ndef boom(x):\n    return 1 / x  # here")
        assert notebook.run("result = inspect.getsource(boom)") == "def boom(x):\n    return 1 / x  # here"
        captured = notebook.capture("\n\nboom(0)  # there")
        traceback = notebook.start(captured).stderr
        assert "return 1 / x  # here" in traceback
        assert "line 3, in <module>\n    boom(0)  # there" in traceback
        (file,) = notebook.labels
        assert captured.header["labels"] == {file: "In[1]", captured.header["filename"]: "In[7]"}

    def test_sources_that_are_given_win(self, notebook: Notebook) -> None:
        notebook.cell("def f(): pass")
        (file,) = notebook.labels
        captured = notebook.capture("f()", sources={file: "other", "unused": "text"})
        assert captured.header["sources"][file] == "other"
        assert "unused" not in captured.header["sources"]
