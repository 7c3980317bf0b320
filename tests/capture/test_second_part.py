"""The second part of a payload: what no code of the cell names is there when something asks for it."""

from __future__ import annotations

import pickle
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.capture import second_part
from jupyter_dist.worker import payload
from tests.rigs.notebook_cells import FUTURE_ANNOTATIONS, Notebook

DEFINITIONS = """
import math, json, functools, enum, typing
from pathlib import Path as path
def text(name): return path(name).read_text()
import dataclasses as dc
from fractions import Fraction as Ratio
FACTOR = 4
cut = 3
def halve(x): return x / 2
def scaled(x): return halve(x) * FACTOR
@functools.lru_cache
def cached(x): return scaled(x) + 1
class Kind(enum.Enum):
    A = "a"
    B = "b"
class Base:
    def go(self): return type(self).__name__, scaled(4)
class Child(Base): pass
class Grandchild(Child): kind = Kind.B
class Node:
    other = None
class Leaf(Node):
    pass
Node.other = Leaf
@dc.dataclass
class Row:
    x: int = 1
    kind: Kind = Kind.A
    def total(self): return self.x * FACTOR + math.floor(1.5)
rows = [Row(2), Row(3)]
Alias = Child
"""

EXPRESSIONS = [
    ("eval(text('expr.txt'))", "expr.txt", "scaled(6) + cached(2)"),
    (
        "[eval(line) for line in text('lines.txt').split('\\n')]",
        "lines.txt",
        "halve(1)\nKind('b').name\nRatio(1, 2) + 1",
    ),
    ("(exec(text('code.py'), globals()), made())[1]", "code.py", "def made(): return Row(5).total()"),
    ("eval('math.sqrt(cut + 1)')", "", ""),
    ("globals()['evlah'[::-1]](5)", "", ""),
    ("vars()['dniK'[::-1]].A.value", "", ""),
    ("'{cut} and {FACTOR}'.format(**globals())", "", ""),
    ("'%(cut)d' % globals()", "", ""),
    ("__import__('__main__').scaled(3)", "", ""),
    ("getattr(__import__('sys').modules['__main__'], 'dlihC'[::-1])().go()", "", ""),
    ("__import__('importlib').import_module('__main__').Grandchild().go()", "", ""),
    ("__import__('__main__').Node.other.other.__name__", "", ""),
    ("__import__('__main__').Alias is __import__('__main__').Child", "", ""),
    ("hasattr(__import__('__main__'), 'Nowhere'), hasattr(__import__('__main__'), '__path__')", "", ""),
    ("__import__('__main__').json.dumps({'a': 1})", "", ""),
    ("__import__('pickle').loads(path('rows.pkl').read_bytes())[1].total()", "rows.pkl", ""),
    ("__import__('timeit').timeit('halve(2)', globals=globals(), number=1) > 0", "", ""),
]


@pytest.fixture
def defined(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> Notebook:
    monkeypatch.chdir(notebook.folder)
    notebook.cell(DEFINITIONS)
    return notebook


@pytest.mark.parametrize(("expression", "file", "text"), EXPRESSIONS, ids=[row[0] for row in EXPRESSIONS])
def test_a_name_that_no_code_names(defined: Notebook, expression: str, file: str, text: str) -> None:
    if file == "rows.pkl":
        Path(file).write_bytes(pickle.dumps(defined.names["rows"]))
    elif file:
        Path(file).write_text(text)
    assert repr(defined.run(f"result = {expression}")) == repr(eval(expression, defined.names))


def test_the_subclasses_of_a_class_are_there(defined: Notebook) -> None:
    cell = """
    def below(cls): return sorted(c.__name__ for s in cls.__subclasses__() for c in (s, *s.__subclasses__()))
    result = below(Base), [cls().go() for cls in Base.__subclasses__()]
    """
    assert defined.run(cell) == (["Child", "Grandchild"], [("Child", 8.0)])


def test_the_subclasses_of_a_class_that_only_an_instance_brings_are_there(defined: Notebook) -> None:
    defined.cell("thing = Base()")
    assert defined.run("result = [cls.__name__ for cls in type(thing).__subclasses__()]") == ["Child"]


def test_the_subclasses_of_a_class_of_a_file_beside_the_notebook(defined: Notebook, monkeypatch: Any) -> None:
    (defined.folder / "sp_models.py").write_text(
        "class Model: pass\ndef known(): return [m.__name__ for m in Model.__subclasses__()]"
    )
    monkeypatch.syspath_prepend(str(defined.folder))
    defined.cell("import sp_models\nclass Mine(sp_models.Model): pass")
    assert defined.run("result = sp_models.known()") == ["Mine"]


def test_the_subclasses_of_a_class_of_the_second_part(defined: Notebook) -> None:
    cell = "import __main__\nresult = [c.__name__ for c in getattr(__main__, 'esaB'[::-1]).__subclasses__()]"
    assert defined.run(cell) == ["Child"]


@pytest.mark.parametrize("flags", [0, FUTURE_ANNOTATIONS])
def test_annotations_that_are_strings(notebook: Notebook, flags: int) -> None:
    notebook.cell(
        "import dataclasses, enum\nfrom typing import Annotated, Optional, get_type_hints\nMOST = 8"
    )
    source = """
    class Kind(enum.Enum):
        A = 1
    @dataclasses.dataclass
    class Tree:
        left: Optional["Tree"] = None
        kind: "Kind" = Kind.A
        size: "Annotated[int, MOST]" = 0
    def of(tree: "Tree") -> "Annotated[Kind, MOST]": ...
    """
    notebook.cell(source, flags)
    cell = """
    hints = get_type_hints(Tree, include_extras=True)
    result = hints["kind"].__name__, hints["size"].__metadata__, get_type_hints(of)["return"].__name__
    """
    assert notebook.run(cell, flags=flags) == ("Kind", (8,), "Kind")


def test_a_class_in_both_parts_is_one(defined: Notebook) -> None:
    defined.cell("things = [Row(7), halve]")
    Path("rows.pkl").write_bytes(pickle.dumps([*defined.names["rows"], defined.names["halve"]]))
    cell = """
    Kept = type(things[0])
    Kept.label = "mine"
    import pickle
    loaded = pickle.loads(path("rows.pkl").read_bytes())
    row, _, function = loaded
    result = type(row) is Kept, row.label, function is things[1], row.kind is things[0].kind
    """
    assert defined.run(cell) == (True, "mine", True, True)


def test_what_the_cell_binds_itself_stays(defined: Notebook) -> None:
    cell = """
    Row = "mine"
    import __main__
    result = __main__.Row, eval("Row"), __main__.rows[0].total() if "rows" in dir() else None
    """
    assert defined.run(cell)[:2] == ("mine", "mine")


def test_results_come_back_as_the_notebooks_own_classes(defined: Notebook) -> None:
    Path("rows.pkl").write_bytes(pickle.dumps(defined.names["rows"]))
    rows, kinds = defined.run(
        "import pickle\nrows = pickle.loads(path('rows.pkl').read_bytes())\n"
        "result = rows, [r.kind for r in rows]"
    )
    assert rows == defined.names["rows"]
    assert type(rows[0]) is defined.names["Row"]
    assert kinds[0] is defined.names["Kind"].A


class TestData:
    @pytest.mark.needs("pandas")
    def test_travels_for_a_word_in_a_string(self, notebook: Notebook) -> None:
        notebook.cell(
            "import pandas as pd\ncut = 2\ntable = pd.DataFrame({'n': [1, 2, 3]})\nrule = 'n >= @least'"
        )
        notebook.cell("least = 3")
        assert notebook.run("result = len(table.query('n >= @cut')), len(table.query(rule))") == (2, 1)

    def test_stays_behind_otherwise(self, notebook: Notebook) -> None:
        notebook.cell("secret = 'x' * 1000\nother = 3")
        captured = notebook.capture("print(other, sep='')")
        assert b"xxxx" not in captured.body
        assert notebook.run("result = getattr(__import__('__main__'), 'terces'[::-1], 0)") == 0

    @pytest.mark.needs("numpy")
    def test_stays_behind_if_it_is_large(self, notebook: Notebook) -> None:
        notebook.cell(
            "import numpy as np\nbig = np.ones(200_000)\nsmall = np.ones(20)\nmany = list(range(10**6))"
        )
        captured = notebook.capture("result = [n in globals() for n in ('big', 'small', 'many')]")
        assert captured.nbytes < 20_000
        assert captured.header["unnamed"]["big"] == "it has more than 1,000 kB"
        assert notebook.run_payload(captured) == [False, True, False]

    @pytest.mark.needs("numpy")
    def test_a_function_with_a_large_default(self, notebook: Notebook) -> None:
        notebook.cell("import numpy as np\ndef total(x=np.ones((100, 100))): return x.sum()")
        notebook.cell("def more(x=np.ones((1000, 1000))): return x.sum()")
        captured = notebook.capture("import __main__\nresult = __main__.total(), hasattr(__main__, 'more')")
        assert captured.header["unnamed"]["more"] == "it has more than 1,000 kB"
        assert notebook.run_payload(captured) == (10_000, False)

    def test_all_together_are_limited(self, notebook: Notebook) -> None:
        notebook.cell("\n".join(f"d{i} = b'{i:02}' * 450_000" for i in range(15)) + "\ndef tiny(): return 1")
        captured = notebook.capture(
            f"result = {[f'd{i}' for i in range(15)]!r}, __import__('__main__').tiny()"
        )
        assert len(captured.body) < 10_100_000
        assert "together" in captured.header["unnamed"]["d0"]
        assert notebook.run_payload(captured)[1] == 1

    def test_the_largest_are_left_out_first(self, notebook: Notebook) -> None:
        sizes = {"huge": 990_000, **{f"d{i}": 700_000 for i in range(13)}, "small": 200_000}
        notebook.cell("\n".join(f"{name} = b'1' * {size}" for name, size in sizes.items()))
        unnamed = notebook.capture(f"result = {[*sizes]!r}").header["unnamed"]
        assert [name for name, reason in unnamed.items() if "together" in reason] == ["huge"]

    def test_that_the_code_of_the_second_part_reads_travels(self, defined: Notebook) -> None:
        assert defined.run("result = __import__('__main__').rows if 0 else eval('Row(5)').total()") == 21

    def test_that_only_other_data_name_travels(self, notebook: Notebook) -> None:
        notebook.cell("limit = 5\ninner = 'limit + 1'\nrule = 'x > eval(inner)'")
        notebook.cell("def allowed(x): return eval(rule)")
        assert notebook.run("import __main__\nresult = [__main__.allowed(x) for x in (6, 7)]") == [
            False,
            True,
        ]


class TestLeftOut:
    def test_what_cannot_be_pickled(self, notebook: Notebook) -> None:
        notebook.cell("def bad(f=(i for i in [1])): return f\ndef good(): return 5")
        captured = notebook.capture("result = eval('good()')")
        assert notebook.run_payload(captured) == 5
        assert "cannot pickle 'generator' object" in captured.header["unnamed"]["bad"]

    def test_the_error_names_the_remedy(self, notebook: Notebook) -> None:
        notebook.cell("data = [1]\ndef bad(f=(i for i in data)): return f")
        done = notebook.start(notebook.capture("import __main__\n__main__.data"))
        assert done.stderr.endswith(
            "AttributeError: data is in the notebook, but this cell does not name it. "
            "Write data on a line of the cell.\n"
        )
        done = notebook.start(notebook.capture("import __main__\n__main__.bad"))
        assert re.search(
            r"does not name it, and it was left out \(it cannot be pickled: .*generator", done.stderr
        )

    def test_what_the_rank_cannot_import(self, notebook: Notebook, monkeypatch: Any) -> None:
        (notebook.folder / "here").mkdir()
        (notebook.folder / "here" / "sp_gone.py").write_text("def f(): return 3")
        monkeypatch.syspath_prepend(str(notebook.folder / "here"))
        notebook.cell("import sp_gone\ndef uses(): return sp_gone.f()")
        captured = notebook.capture(
            "print('sp_gone', 'uses')\nimport __main__\nresult = callable(__main__.uses)"
        )
        for path in (notebook.folder / "here").glob("sp_*"):
            path.unlink()
        assert notebook.run_payload(captured) is True

    def test_a_reducer_of_a_library_is_not_run(self, notebook: Notebook, capsys: Any) -> None:
        notebook.cell("class Loud:\n    def __reduce__(self): raise SystemError('asked')\nloud = Loud()")
        assert notebook.run("result = 'loud' in globals()") is False


class TestCache:
    def pickled(self, notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Return the names that the next captures pickle."""
        names: list[str] = []
        new = second_part._Pickling._new

        def counted(self: Any, name: str, *rest: Any) -> Any:
            names.append(name)
            return new(self, name, *rest)

        monkeypatch.setattr(second_part._Pickling, "_new", counted)
        return names

    def test_unchanged_definitions_are_pickled_once(self, defined: Notebook, monkeypatch: Any) -> None:
        defined.capture("1")
        names = self.pickled(defined, monkeypatch)
        defined.capture("2")
        assert set(names) <= {"FACTOR", "Kind"}

    def test_data_that_was_too_large_for_another_cell(self, notebook: Notebook) -> None:
        notebook.cell(
            "import array\nweights = array.array('b', bytes(50_000))\ndef total(): return len(weights)"
        )
        assert notebook.capture("1").header["unnamed"]["weights"] == "it has more than 10 kB"
        assert notebook.run("result = eval('len(weights)')") == 50_000

    def test_ranks_with_another_python_follow_ranks_with_this_one(self, notebook: Notebook) -> None:
        notebook.cell("def unnamed(): return 1")
        notebook.capture("1")
        header = notebook.capture("1", other_python=True).header
        assert [text for _, text in header["texts"]] == ["def unnamed(): return 1"]

    @pytest.mark.parametrize(
        ("change", "expression", "expected"),
        [
            ("Row.x2 = property(lambda self: self.x * 10)", "Row(3).x2", 30),
            ("Row.total = lambda self: -1", "Row(3).total()", -1),
            ("def halve(x): return 100", "scaled(1)", 400),
            ("halve.__defaults__ = (8,)", "halve()", 4.0),
            ("FACTOR = 7", "scaled(2)", 7.0),
            ("class Base:\n    def go(self): return 'new'", "Base().go(), Child().go()[0]", ("new", "Child")),
            ("Row.notes = []\nRow.notes.append(4)", "Row.notes", [4]),
            ("Row.__dataclass_fields__['x'].metadata", "Row().x", 1),
            ("Kind.extra = 5", "Kind.extra", 5),
            ("scaled.__dict__['mark'] = [1]\nscaled.mark.append(2)", "scaled.mark", [1, 2]),
        ],
    )
    def test_a_change_is_seen(self, defined: Notebook, change: str, expression: str, expected: Any) -> None:
        defined.capture("1")
        defined.cell(change)
        Path("e.txt").write_text(expression)
        cell = "result = eval(text('e.txt'))"
        assert defined.run(cell) == expected
        assert defined.run(cell) == expected

    def test_a_name_that_is_defined_later(self, notebook: Notebook) -> None:
        notebook.cell("import xml\ndef early(): return late() + xml.dom.minidom.__name__")
        notebook.capture("1")
        notebook.cell("import xml.dom.minidom\ndef late(): return 'late '")
        assert notebook.run("import __main__\nresult = __main__.early()") == "late xml.dom.minidom"

    def test_an_item_of_a_list_of_a_class(self, defined: Notebook) -> None:
        defined.cell("class Known:\n    names = ['a']\n    table = {'k': [1]}")
        Path("e.txt").write_text("Known.names, Known.table")
        cell = "result = eval(text('e.txt'))"
        assert defined.run(cell) == (["a"], {"k": [1]})
        defined.cell("Known.names.append('b'); Known.table['k'].append(2)")
        assert defined.run(cell) == (["a", "b"], {"k": [1, 2]})


def test_builtins_can_be_replaced_where_the_cell_evaluates(defined: Notebook) -> None:
    cell = """
    import builtins
    builtins.answer = 42
    def asks(): return answer, len([1])
    try: nothing_of_this_name
    except NameError as error: missing = str(error)
    result = asks(), eval("halve(4)"), missing
    """
    assert defined.run(cell) == ((42, 1), 2.0, "name 'nothing_of_this_name' is not defined")


def test_a_call_has_a_second_part_too(notebook: Notebook) -> None:
    from jupyter_dist.capture.payload_builder import capture_call

    notebook.cell("def helper(): return 6\ndef main(name): return globals()[name]() + eval('helper')()")
    captured = capture_call(notebook.names["main"], ["hel" + "per"], {}, label="f", directory=notebook.folder)
    assert notebook.run_payload(captured) == 12


def test_the_kernel_loads_no_second_part(defined: Notebook, tmp_path: Path) -> None:
    defined.capture("halve").write(tmp_path / "payload.pkl")
    before = dict(vars(sys.modules["__main__"]))
    assert payload.load(tmp_path / "payload.pkl")["halve"](4) == 2
    assert vars(sys.modules["__main__"]) == before


def test_a_module_of_the_users_goes_along(notebook: Notebook, monkeypatch: Any) -> None:
    (notebook.folder / "sp_own.py").write_text("class Own:\n    x = 3")
    (notebook.folder / "sp_big.py").write_text(f"data = {'x' * 1_100_000!r}")
    monkeypatch.syspath_prepend(str(notebook.folder))
    notebook.cell("from sp_own import Own\nimport sp_big, sp_own as also")
    captured = notebook.capture("import __main__\nresult = __main__.Own.x, __main__.also.Own is __main__.Own")
    assert [file.path for file in captured.modules] == ["sp_own.py"]
    for path in notebook.folder.glob("sp_*"):
        path.unlink()
    assert notebook.run_payload(captured) == (3, True)
    assert notebook.capture("1", ship_modules="none").modules == ()


def test_threads_may_ask_at_once(defined: Notebook) -> None:
    cell = """
    import concurrent.futures, __main__
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: getattr(__main__, ["Row", "Child", "scaled"][i % 3]), range(60)))
    result = len({id(each) for each in found})
    """
    assert defined.run(textwrap.dedent(cell)) == 3


def test_a_module_that_nobody_asks_for_is_not_imported(notebook: Notebook) -> None:
    notebook.cell("import wave")
    cell = (
        "import sys\nresult = [len(globals()) > 0, 'evaw'[::-1] in sys.modules, eval('evaw'[::-1]).__name__]"
    )
    assert notebook.run(cell) == [True, False, "wave"]
    assert notebook.run(cell.replace("len(globals())", "1")) == [True, False, "wave"]
