"""Capture: what a cell needs goes along and works elsewhere; what cannot go is named before the start."""

from __future__ import annotations

import contextlib
import linecache
import os
import shutil
import subprocess
import sys
import textwrap
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_dist.capture import payload_builder, payload_size
from jupyter_dist.capture import source as _source
from jupyter_dist.capture.payload_builder import Payload, capture_call, capture_cell
from jupyter_dist.errors import CaptureError
from jupyter_dist.worker import payload

ROOT = Path(__file__).parents[2]
FUTURE_ANNOTATIONS = 0x1000000

RANK = """
import asyncio, importlib, inspect, linecache, sys, traceback, types
from pathlib import Path
from jupyter_dist.worker import payload
here = Path(sys.argv[1])
header = payload.read_header(here / "payload.pkl")
main = sys.modules["__main__"] = types.ModuleType("__main__")
sys.path[:0] = [str(here / "modules"), *header["sys_path"]]
for file, text in header["sources"].items():
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
names = payload.load(here / "payload.pkl", main=main.__dict__)
for name in header["submodules"]:
    importlib.import_module(name)
try:
    if header["kind"] == "call":
        main.result = names["fn"](*names["args"], **names["kwargs"])
    else:
        main.__dict__.update(names)
        code = compile(header["source"], header["filename"], "exec", header["flags"])
        value = eval(code, main.__dict__)
        if inspect.iscoroutine(value):
            asyncio.run(value)
except Exception:
    traceback.print_exc()  # unlike the interpreter, it looks into linecache
    sys.exit(1)
payload.write_value(here / "result.pkl", main.result)
"""


class Notebook:
    """A namespace with cells run in it as IPython does, and ranks to run captured ones."""

    def __init__(self, module: types.ModuleType, folder: Path) -> None:
        self.names = module.__dict__
        self.folder = folder
        self.labels: dict[str, str] = {}

    def cell(self, source: str, flags: int = 0) -> None:
        source = textwrap.dedent(source)
        number = len(self.labels) + 1
        file = f"/tmp/ipykernel_1/{id(self)}_{number}.py"
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)
        self.labels[file] = f"In[{number}]"
        exec(compile(source, file, "exec", flags, dont_inherit=True), self.names)

    def capture(self, source: str, **options: Any) -> Payload:
        options = {"label": "In[7]", "directory": self.folder, "labels": self.labels, **options}
        return capture_cell(textwrap.dedent(source), self.names, **options)

    def run(self, source: str, **options: Any) -> Any:
        """Capture a cell that sets `result`, run it in a fresh process, and return the result."""
        return self.run_payload(self.capture(source, **options))

    def run_payload(self, captured: Payload) -> Any:
        done = self.start(captured)
        assert done.returncode == 0, done.stderr
        return payload.load(self.folder / "run" / "result.pkl")

    def start(self, captured: Payload) -> subprocess.CompletedProcess[str]:
        run = self.folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir(0o700)
        captured.write(run / "payload.pkl")
        for shipped in captured.modules:
            target = run / "modules" / shipped.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(shipped.data)
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", RANK, str(run)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def error(self, source: str, **options: Any) -> str:
        with pytest.raises(CaptureError) as caught:
            self.capture(source, **options)
        return str(caught.value)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Notebook:
    module = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    return Notebook(module, tmp_path)


class TestSource:
    @pytest.mark.parametrize(
        ("source", "line", "instead"),
        [
            ("x = 1\n!ls -l", "line 2: !ls -l", "subprocess.run(['ls', '-l'], check=True)"),
            ("!ls *.py | wc", "line 1: !ls", "subprocess.run(['bash', '-c', 'ls *.py | wc'], check=True)"),
            ("\n\nfiles = !ls", "line 3: files = !ls", "files = subprocess.run(['ls'], capture_output=True"),
            ("if 1:\n    !ls {x}", "line 2: !ls {x}", "subprocess.run("),
            ("%time f()", "line 1: %time f()", "run %time in a cell of its own"),
            ("t = %timeit -o f()", "line 1: t = %timeit", "run %timeit in a cell of its own"),
            ("x = 1\n%matplotlib inline\n", "line 2: %matplotlib", "run %matplotlib in a cell"),
            ("%%bash\nls", "line 1: %%bash", "give this cell magic a cell of its own"),
            ("f?", "line 1: f?", "print(f.__doc__)"),
            ("x\n?f.g", "line 2: ?f.g", "print(f.g.__doc__)"),
            ("x = 1\nget_ipython().system('ls')", "line 2: get_ipython()", "in the notebook only"),
        ],
    )
    def test_refuses_what_needs_a_shell(
        self, notebook: Notebook, source: str, line: str, instead: str
    ) -> None:
        message = notebook.error(source)
        assert f"In[7], {line}" in message
        assert instead in message
        assert message.endswith("Nothing was started.")

    def test_takes_what_ipython_makes_plain(self, notebook: Notebook) -> None:
        assert notebook.run(">>> x = 1\n>>> result = x + 1") == 2
        assert notebook.run("    x = 1\n    result = x") == 1
        assert notebook.run(",str.format a{} b\nresult = 5") == 5

    def test_leaves_plain_python_as_it_is(self, notebook: Notebook) -> None:
        source = "\n\nx = '''\n!ls\n%time\n'''\nresult = (7\n%4)  # f?\n"
        assert notebook.capture(source).header["source"] == source
        assert notebook.run(source) == 3

    @pytest.mark.parametrize(
        ("source", "expected"),
        [
            ("x = 1\nfor x in y\n    pass", "In[7], line 2: expected ':'\n    for x in y\n              ^"),
            ("x = (1,\n", "In[7], line 1: '(' was never closed\n    x = (1,\n        ^"),
            ("if 1:\n    return 5", "In[7], line 2: 'return' outside function\n    return 5\n    ^^^^^^^^"),
            ("%time f()\nx = = 2", "In[7], line 2: invalid syntax\n    x = = 2\n        ^"),
            ("x = 'a\0b'", "In[7], line 1: source code string cannot contain null bytes"),
            ("if 1:\nx = 1", "In[7], line 2: expected an indented block"),
            ("x = '\ud800'", "In[7], line 1: "),
        ],
    )
    def test_shows_syntax_errors(self, notebook: Notebook, source: str, expected: str) -> None:
        message = notebook.error(source)
        assert message.startswith(expected)
        assert message.endswith("Nothing was started.")

    @given(st.text(alphabet="ab =:()[]{}'\"\\\n\t!%?;,.1@é\0\ud800#*&", max_size=40))
    def test_any_text_is_taken_or_refused_in_words(self, source: str) -> None:
        with contextlib.suppress(CaptureError):
            cell = _source.parse(source, "In[1]")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)  # `1(2)` is bad style, and compiles
                compile(cell.source, "x", "exec", cell.flags)

    def test_allows_await_at_the_top(self, notebook: Notebook) -> None:
        notebook.cell("import asyncio\nasync def double(x):\n    return 2 * x")
        source = """
        result = await double(4)
        async with asyncio.Lock():
            result += sum([await double(i) for i in range(2)])
        """
        assert notebook.run(source) == 10

    def test_keeps_the_future_statements_of_earlier_cells(self, notebook: Notebook) -> None:
        notebook.cell("from __future__ import annotations")
        source = "def f(x: not_defined): pass\nresult = f.__annotations__"
        assert notebook.run(source, flags=FUTURE_ANNOTATIONS) == {"x": "not_defined"}

    def test_warns_of_nothing_that_the_rank_warns_of_itself(self, notebook: Notebook) -> None:
        notebook.capture(r"x = '\d'")


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
        notebook.names.update({"__name__": "__main__", "_i3": "x", "_5": "y", "_": "z", "In": [], "Out": {}})
        captured = notebook.capture("__name__, _i3, _5, _, In, Out, __builtins__")
        assert captured.header["names"] == []

    def test_what_the_cell_assigns_may_be_unpicklable(self, notebook: Notebook) -> None:
        notebook.cell("import zlib\nlock = zlib.compressobj()\nitems = [1, 2]")
        captured = notebook.capture("for i in items:\n    lock = i\nresult = lock")
        assert notebook.run_payload(captured) == 2
        (note,) = captured.notes
        assert note.startswith("'lock' stays behind, the cell assigns its own (lock: cannot pickle")

    def test_what_is_surely_read_first_may_not(self, notebook: Notebook) -> None:
        notebook.cell("import zlib\nlock = zlib.compressobj()")
        assert notebook.error("lock\nlock = 1").startswith("lock: cannot pickle")
        assert notebook.capture("def f(): return lock\nlock = 1\nresult = f()").header["names"] == []


DEFINITIONS = """
import abc, collections, concurrent.futures, contextlib, dataclasses, enum, functools, logging, typing
import os.path as osp

LR = 0.5
TABLE = {"a": 1}

class Base(abc.ABC):
    known = []
    def __init_subclass__(cls): Base.known.append(cls.__name__)
    @abc.abstractmethod
    def go(self): ...

class Impl(Base):
    K: typing.ClassVar[int] = 4
    def __init__(self, x=1): self.x = x
    def go(self): return LR * self.K
    @classmethod
    def make(cls): return cls(2)
    @staticmethod
    def table(): return TABLE["a"]
    @property
    def twice(self): return self.x * 2
    @functools.cached_property
    def cached(self): return LR

class Colour(enum.Enum):
    RED = 1
    def label(self): return f"{self.name} {LR}"

@dataclasses.dataclass
class Config:
    x: int = 3
    colour: Colour = Colour.RED
    ys: list[int] = dataclasses.field(default_factory=list)

class Pair(typing.NamedTuple):
    a: int
    def scaled(self): return self.a * LR

Point = collections.namedtuple("Point", "x y")

def even(n): return n == 0 or odd(n - 1)
def odd(n): return n != 0 and even(n - 1)

def plus_rate(f):
    @functools.wraps(f)
    def wrapper(*args): return f(*args) + LR
    return wrapper

@plus_rate
def decorated(x): return x

def counter():
    n = 0
    def step():
        nonlocal n
        n += 1
        return n
    return step
step = counter()
step()

def annotated(x: Config, y: "Colour" = 2) -> Impl: return x
def generator(): yield from [LR]
@contextlib.contextmanager
def managed(): yield LR
@functools.lru_cache
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
add = functools.partial(lambda a, b: a + b + LR, 1)
log = logging.getLogger("mine")
def pool(): return concurrent.futures.ThreadPoolExecutor.__name__
class Meta(type):
    def __call__(cls, *args): return super().__call__(*args)
class Made(metaclass=Meta): rate = LR
method = Impl(5).go
def loop(): return [k + str(LR) for k in TABLE]
def inner_class():
    class Inner:
        rate = LR
        keys = [TABLE[k] for k in TABLE]
    return Inner.rate, Inner.keys
"""
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


UNPICKLABLE = """
import collections, functools, queue, socket, sqlite3, threading, zlib
class Model:
    def __init__(self): self.stream = zlib.compressobj()
    def go(self): return 1
class Slotted:
    __slots__ = ("a", "b")
    def __init__(self): self.a, self.b = 1, zlib.compressobj()
class Stateful:
    def __getstate__(self): return {"inner": [zlib.compressobj()]}
class Reduced:
    def __reduce__(self): return Reduced, (zlib.compressobj(),)
class Raises:
    def __reduce__(self): raise ZeroDivisionError("no way")
model = Model()
class Holder:
    stream = zlib.compressobj()
class User:
    @property
    def ready(self): return model
config = {"streams": [1, 2, zlib.compressobj()], 3: 4}
keyed = {threading.current_thread(): 1}
def train(): return model.go()
def outer(): return train()
def closure():
    connection = sqlite3.connect(":memory:")
    def query(): return connection
    return query
query = closure()
def default(x, event=Model()): pass
def named(*, event=zlib.compressobj()): pass
def tagged(): pass
tagged.stream = zlib.compressobj()
@functools.lru_cache
def cached(): return model
numbers = (i for i in range(3))
async def work(): pass
sock = socket.socket()
slotted, stateful, reduced, raises = Slotted(), Stateful(), Reduced(), Raises()
part = functools.partial(print, config)
method = model.go
ordered = collections.OrderedDict(a=collections.deque([0, zlib.compressobj()]))
jobs = queue.Queue()
jobs.put(zlib.compressobj())
shell_lambda = lambda: sock
deep = []
for _ in range(100_000): deep = [deep]
good = 1
"""
STREAM = "cannot pickle 'zlib.Compress' object"
PATHS = [
    ("model", f"model.stream: {STREAM}", "Create model inside the cell"),
    ("config", f"config['streams'][2]: {STREAM}", "Create config inside the cell"),
    ("train()", f"train() uses model.stream: {STREAM}", "Create model inside the cell"),
    ("outer()", f"outer() uses train() uses model.stream: {STREAM}", "Create model inside"),
    ("query()", "query() uses connection: cannot pickle 'sqlite3.Connection' object", "Connect inside"),
    ("default()", f"default()'s default for event.stream: {STREAM}", "Create it inside"),
    ("named()", f"named()'s default for event: {STREAM}", "Create it inside"),
    ("tagged()", f"tagged.stream: {STREAM}", "Create tagged inside"),
    ("cached()", f"cached() uses model.stream: {STREAM}", "Create model inside"),
    ("numbers", "numbers: cannot pickle 'generator' object", "Make the generator inside the cell"),
    ("sock", "sock: cannot pickle 'socket' object", "Connect inside the cell"),
    ("slotted", f"slotted.b: {STREAM}", "Create slotted inside"),
    ("stateful", f"stateful.__getstate__()['inner'][0]: {STREAM}", "Create it inside"),
    ("reduced", f"reduced.__reduce__()[0]: {STREAM}", "Create it inside"),
    ("raises", "raises: cannot pickle 'Raises' object (ZeroDivisionError: no way)", "Create raises"),
    ("part", f"part.args[0]['streams'][2]: {STREAM}", "Create part inside"),
    ("method", f"method.__self__.stream: {STREAM}", "Create method inside"),
    ("ordered", f"ordered['a'][1]: {STREAM}", "Create ordered inside"),
    ("jobs", f"jobs.queue[0]: {STREAM}", "Create jobs inside"),
    ("Holder", f"Holder.stream: {STREAM}", "Create Holder inside"),
    ("User", f"User.ready() uses model.stream: {STREAM}", "Create model inside"),
    ("User()", f"User.ready() uses model.stream: {STREAM}", "Create model inside"),
    ("shell_lambda", "shell_lambda() uses sock: cannot pickle 'socket' object", "Connect inside"),
    ("deep", "deep: nested too deeply to be pickled", "Keep deep in a flat list or dict"),
]


class TestRefusal:
    @pytest.fixture
    def filled(self, notebook: Notebook, recwarn: pytest.WarningsRecorder) -> Any:
        notebook.cell(UNPICKLABLE)
        yield notebook
        notebook.names["sock"].close()
        notebook.names["query"]().close()
        notebook.names["closure"] = notebook.names["query"] = None
        while notebook.names["deep"]:  # freed step by step, not by recursion
            notebook.names["deep"] = notebook.names["deep"].pop()

    @pytest.mark.parametrize(("source", "path", "cure"), PATHS)
    def test_names_the_path_and_a_cure(self, filled: Notebook, source: str, path: str, cure: str) -> None:
        first, second, *rest = filled.error(source).split("\n")
        assert first == path
        assert second.strip().startswith(cure)
        assert rest == ["Nothing was started."]

    def test_names_an_instance_whose_class_is_to_blame(self, filled: Notebook) -> None:
        filled.cell("user = User()")
        assert filled.error("user").startswith(f"user's class User.ready() uses model.stream: {STREAM}")

    def test_finds_what_lies_deep(self, filled: Notebook) -> None:
        filled.cell("nest = [zlib.compressobj()]\nfor _ in range(250): nest = [nest]")
        assert filled.error("nest").startswith(f"nest{'[0]' * 251}: {STREAM}")

    def test_names_open_files(self, filled: Notebook) -> None:
        (filled.folder / "data").write_text("x")
        with open(filled.folder / "data") as text, open(filled.folder / "data", "rb") as binary:
            filled.names.update(text=text, binary=binary)
            assert filled.error("text").startswith("text: cannot pickle the open file '")
            message = filled.error("binary")
        assert message.startswith("binary: cannot pickle '")
        assert "BufferedReader" in message
        assert "\n    Open the file" in message

    @pytest.mark.needs("torch")
    def test_names_data_loader_iterators(self, filled: Notebook) -> None:
        filled.cell("import torch.utils.data\nbatches = iter(torch.utils.data.DataLoader([1, 2]))")
        first, second, _ = filled.error("batches").split("\n")
        assert first == "batches: cannot pickle '_SingleProcessDataLoaderIter' object"
        assert "call iter() on it" in second

    def test_names_all_at_once_in_the_order_of_the_cell(self, filled: Notebook) -> None:
        message = filled.error("good, sock, train(), numbers, model")
        assert [line for line in message.split("\n") if not line.startswith(" ")] == [
            "sock: cannot pickle 'socket' object",
            "numbers: cannot pickle 'generator' object",
            f"model.stream: {STREAM}",
            "Nothing was started.",
        ]

    def test_names_five_at_most(self, filled: Notebook) -> None:
        message = filled.error("config, numbers, sock, slotted, jobs, Holder, ordered")
        assert message.count(": cannot pickle") == 5
        assert message.endswith("\nand 2 more\nNothing was started.")

    def test_of_an_argument(self, filled: Notebook) -> None:
        names = filled.names
        with pytest.raises(CaptureError) as caught:
            capture_call(
                names["outer"],
                (1, names["config"]),
                {"n": names["numbers"]},
                label="outer",
                directory=filled.folder,
            )
        lines = str(caught.value).split("\n")
        assert lines[0] == f"outer() uses train() uses model.stream: {STREAM}"
        assert lines[2] == f"args[1]['streams'][2]: {STREAM}"
        assert lines[4] == "kwargs['n']: cannot pickle 'generator' object"


class TestSize:
    def test_counts_what_will_be_written(self, notebook: Notebook) -> None:
        notebook.cell("import numpy as np\nX = np.ones(100_000)\ntext = 'x' * 50_000")
        captured = notebook.capture("X, text")
        captured.write(notebook.folder / "p.pkl")
        written = sum((notebook.folder / name).stat().st_size for name in ("p.pkl", "p.buffers"))
        assert captured.nbytes == pytest.approx(written, rel=0.01)
        assert captured.notes == ()

    def test_above_100_mb_names_the_biggest(self, notebook: Notebook) -> None:
        notebook.cell(
            """
            import numpy as np
            X = np.zeros(20_000_000)
            Y = X
            W = np.zeros(5_000_000, "u1")
            def train(): return X, Z
            Z = np.zeros(50_000_000, "u1")
            small = 1
            """
        )
        (note,) = notebook.capture("train(), Y, W, small").notes
        assert note == "jupyter-dist sends 215 MB with the cell: Y 160 MB, Z 50 MB, W 5 MB"

    @pytest.mark.parametrize(
        ("size", "shown"), [(0, "0 bytes"), (999, "999 bytes"), (1234, "1.23 kB"), (1.2e9, "1.2 GB")]
    )
    def test_is_shown_with_a_unit(self, size: float, shown: str) -> None:
        assert payload_size._bytes(size) == shown

    def test_notes_cuda_tensors(self, notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
        notebook.cell("x = 1")
        real = payload.dump
        for count, note in ((1, "1 CUDA tensor travels"), (3, "3 CUDA tensors travel")):
            monkeypatch.setattr(
                payload_builder, "dump", lambda *a, n=count, **k: real(*a, **k)._replace(cuda_tensors=n)
            )
            assert notebook.capture("x").notes == (f"{note} through CPU memory",)


class TestModules:
    @pytest.fixture
    def beside(self, notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> Any:
        """A notebook with modules beside it; what it imports is forgotten afterwards."""
        files = {
            "jd_tools.py": "import jd_lower, json\ndef double(x): return jd_lower.twice(x)\n",
            "jd_lower.py": "def twice(x): return 2 * x\n",
            "jd_unused.py": "",
            "jd_pack/__init__.py": "from .part import value\n",
            "jd_pack/part.py": "value = 5\n",
            "jd_pack/lazy/late.py": "late = 6\n",
            "jd_pack/words.txt": "seven",
            "jd_pack/.hidden/x.py": "",
            "jd_pack/__pycache__/part.pyc": "",
            "jd_pack/node_modules/y.py": "",
            ".venv/pyvenv.cfg": "",
            ".venv/lib/jd_installed.py": "def f(): return 8\n",
            "env/pyvenv.cfg": "",
            "env/jd_env.py": "def f(): return 9\n",
            "lib/site-packages/jd_site.py": "def f(): return 10\n",
        }
        for name, text in files.items():
            path = notebook.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for folder in ("", ".venv/lib", "env", "lib/site-packages"):
            monkeypatch.syspath_prepend(str(notebook.folder / folder))
        yield notebook
        for name in [name for name in sys.modules if name.startswith("jd_")]:
            del sys.modules[name]

    def shipped(self, captured: Payload) -> list[str]:
        return sorted(shipped.path for shipped in captured.modules)

    def away(self, notebook: Notebook) -> None:
        """Take the modules' folder away: what runs now runs with what was shipped."""
        for path in notebook.folder.iterdir():
            if path.name.startswith("jd_"):
                path.rename(path.with_name(f"gone_{path.name}"))

    def test_that_the_cell_uses_go_along_with_what_they_import(self, beside: Notebook) -> None:
        beside.cell("import jd_tools")
        captured = beside.capture("result = jd_tools.double(4)")
        assert self.shipped(captured) == ["jd_lower.py", "jd_tools.py"]
        self.away(beside)
        assert beside.run_payload(captured) == 8

    def test_that_only_a_captured_function_uses_go_along(self, beside: Notebook) -> None:
        beside.cell("from jd_tools import double\ndef f():\n    import jd_lower\n    return double(1)")
        captured = beside.capture("result = f()")
        self.away(beside)
        assert beside.run_payload(captured) == 2

    def test_that_the_cell_imports_itself_go_along(self, beside: Notebook) -> None:
        captured = beside.capture("from jd_pack.part import value\nresult = value")
        assert self.shipped(captured) == [
            "jd_pack/__init__.py",
            "jd_pack/lazy/late.py",
            "jd_pack/part.py",
            "jd_pack/words.txt",
        ]
        self.away(beside)
        assert beside.run_payload(captured) == 5

    @pytest.mark.parametrize("name", ["jd_installed", "jd_env", "jd_site", "json", "pytest"])
    def test_that_are_installed_stay(self, beside: Notebook, name: str) -> None:
        assert self.shipped(beside.capture(f"import {name}")) == []

    def test_elsewhere_stay(self, beside: Notebook) -> None:
        (beside.folder / "sub").mkdir()
        captured = beside.capture("import jd_lower", directory=beside.folder / "sub")
        assert self.shipped(captured) == []

    def test_none_are_sent_when_told_so(self, beside: Notebook) -> None:
        captured = beside.capture("import jd_lower\nresult = jd_lower.twice(2)", ship_modules="none")
        assert self.shipped(captured) == []
        assert beside.run_payload(captured) == 4  # found where they are

    def test_can_be_named(self, beside: Notebook) -> None:
        captured = beside.capture("1", ship_modules="jd_unused, jd_site,jd_pack.part")
        assert self.shipped(captured) == [
            "jd_pack/__init__.py",
            "jd_pack/lazy/late.py",
            "jd_pack/part.py",
            "jd_pack/words.txt",
            "jd_site.py",
            "jd_unused.py",
        ]

    def test_that_do_not_exist_are_refused(self, beside: Notebook) -> None:
        message = beside.error("1", ship_modules="jd_tool")
        assert "no module 'jd_tool'. Did you mean 'jd_tools'" in message

    def test_above_20_mb_are_refused(self, beside: Notebook) -> None:
        (beside.folder / "jd_lower.py").write_text("#" * 20_000_001)
        message = beside.error("import jd_tools")
        assert "20 MB, more than 20 MB; the biggest file is 'jd_lower.py'" in message
        assert "--ship-modules" in message

    def test_leave_large_data_behind_with_a_note(self, beside: Notebook) -> None:
        (beside.folder / "jd_pack/words.txt").write_bytes(bytes(6_000_000))
        captured = beside.capture("import jd_pack")
        assert "jd_pack/words.txt" not in self.shipped(captured)
        assert captured.notes[0].startswith("1 data files of the package 'jd_pack' (6 MB) stay behind")

    def test_with_a_syntax_error_fail_on_the_rank(self, beside: Notebook) -> None:
        (beside.folder / "jd_lower.py").write_text("def")
        captured = beside.capture("import jd_lower")
        assert self.shipped(captured) == ["jd_lower.py"]
        assert "SyntaxError" in beside.start(captured).stderr


class TestImports:
    def test_are_the_installed_modules_that_are_used(self, notebook: Notebook) -> None:
        notebook.cell(
            """
            import numpy as np, xml.etree.ElementTree as tree
            from json.decoder import JSONDecoder
            def f():
                import sqlite3
                return np.linalg, JSONDecoder, sqlite3
            """
        )
        captured = notebook.capture("import wave, not_there\nf(), tree")
        expected = {"json", "json.decoder", "numpy", "sqlite3", "wave", "xml", "xml.etree"}
        assert expected <= set(captured.imports)
        assert "not_there" not in captured.imports
        assert not [name for name in captured.imports if name.startswith("_") or "._" in name]
        assert not {"jupyter_dist", "cloudpickle", "builtins"} & set(captured.imports)

    def test_are_never_the_notebooks_own(self, notebook: Notebook, monkeypatch: Any) -> None:
        (notebook.folder / "jd_mine.py").write_text("")
        monkeypatch.syspath_prepend(str(notebook.folder))
        assert notebook.capture("import jd_mine").imports == ()


KERAS = [
    ("import keras\nMultiWorkerMirroredStrategy", True),
    ("tf.keras.Sequential(); tf.distribute.MultiWorkerMirroredStrategy()", True),
    ("from tensorflow.keras import layers\ntf.distribute.experimental.ParameterServerStrategy", True),
    ("from tensorflow import keras as k\nfrom tf.distribute import MultiWorkerMirroredStrategy as S", True),
    ("import tf_keras\nx = MultiWorkerMirroredStrategy", True),
    ("def f():\n  import keras\n  return ParameterServerStrategy", True),
    ("build()", True),
    ("import jd_model\njd_model.build()", True),
    ("tf.keras.Sequential(); tf.distribute.MirroredStrategy()", False),
    ("tf.distribute.MultiWorkerMirroredStrategy()", False),
    ("'keras MultiWorkerMirroredStrategy'", False),
    ("import torch", False),
]


HOROVOD = [
    (source, "Horovod's Keras API")
    for source in (
        "import horovod.tensorflow.keras as hvd",
        "import horovod.keras as hvd\nhvd.init()",
        "from horovod.tensorflow import keras as hvd",
        "from horovod.tensorflow.keras.callbacks import MetricAverageCallback",
        "fit()",
        "import jd_hvd_model\njd_hvd_model.fit()",
    )
]
HOROVOD += [("import horovod.torch as hvd", ""), ("import horovod.tensorflow as hvd\nimport keras", "")]


DIST = "import keras, jupyter_dist as dist\n"
STRATEGY = [
    (DIST + "dist.strategy()", True),
    (DIST + "s = dist.strategy( kind = 'ParameterServerStrategy', a=1)", True),
    (DIST + "dist.strategy(KIND)", True),
    ("import keras\nfrom jupyter_dist import strategy\nstrategy()", True),
    ("import jd_model\njd_model.build()", True),
    (DIST + "dist.strategy('mirrored')", False),
    (DIST + "dist.strategy(kind='OneDeviceStrategy')", False),
    (DIST + "dist.rank()  # not dist.strategy()", False),
    (DIST + "strategy = 1\ndist.rank()", False),
    ("import jupyter_dist as dist\ndist.strategy()", False),
    ("import keras\nx.strategy()", False),
]


class TestLegacyKeras:
    @pytest.mark.parametrize(("source", "expected"), STRATEGY)
    def test_may_be_needed_by_a_strategy_of_ours(
        self, notebook: Notebook, monkeypatch: Any, source: str, expected: bool
    ) -> None:
        text = "import keras\nimport jupyter_dist as dist\ndef build(): return dist.strategy()"
        (notebook.folder / "jd_model.py").write_text(text)
        monkeypatch.syspath_prepend(str(notebook.folder))
        header = notebook.capture(source).header
        assert bool(header["legacy_keras_if_several"]) is expected
        assert header["spanning_strategy"] is (
            expected or source == "import jupyter_dist as dist\ndist.strategy()"
        )
        assert not header["legacy_keras"]

    @pytest.mark.parametrize(("source", "expected"), KERAS)
    def test_is_needed_by_keras_on_several_workers(
        self, notebook: Notebook, monkeypatch: Any, source: str, expected: bool
    ) -> None:
        text = "def build(): return tf.keras.Model, tf.distribute.MultiWorkerMirroredStrategy"
        (notebook.folder / "jd_model.py").write_text(text)
        monkeypatch.syspath_prepend(str(notebook.folder))
        notebook.cell(text)
        assert bool(notebook.capture(source).header["legacy_keras"]) is expected

    @pytest.mark.parametrize(("source", "expected"), HOROVOD)
    def test_is_needed_by_horovods_keras(
        self, notebook: Notebook, monkeypatch: Any, source: str, expected: str
    ) -> None:
        text = "def fit(): from horovod.tensorflow.keras import callbacks"
        (notebook.folder / "jd_hvd_model.py").write_text(text)
        monkeypatch.syspath_prepend(str(notebook.folder))
        notebook.cell("def fit(): import horovod.keras as hvd; hvd.init()")
        assert notebook.capture(source).header["legacy_keras"] == expected


class TestCall:
    def call(self, notebook: Notebook, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        captured = capture_call(fn, args, kwargs, label="call", directory=notebook.folder)
        assert captured.header["kind"] == "call"
        return notebook.run_payload(captured)

    def test_takes_any_callable(self, notebook: Notebook) -> None:
        notebook.cell(DEFINITIONS)
        names = notebook.names
        assert self.call(notebook, names["decorated"], 4) == 4.5
        assert self.call(notebook, lambda x, *, y: x + y, 1, y=2) == 3
        assert self.call(notebook, names["add"], 2) == 3.5
        assert self.call(notebook, names["method"]) == 2.0
        assert self.call(notebook, names["Config"], x=4) == names["Config"](4)
        assert self.call(notebook, max, [1, 5], key=names["even"]) == 1
        assert self.call(notebook, textwrap.dedent, "  x") == "x"

    def test_from_a_script(self, tmp_path: Path) -> None:
        script = tmp_path / "train.py"
        script.write_text(
            textwrap.dedent(
                """
                import sys
                from pathlib import Path
                import jd_helper
                from jupyter_dist.capture.payload_builder import capture_call

                RATE = 3

                def train(n):
                    if n < 0:
                        raise ValueError("negative")  # here
                    return jd_helper.twice(n) * RATE

                if __name__ == "__main__":
                    RATE = 4
                    captured = capture_call(
                        train, (int(sys.argv[1]),), {}, label="train", directory=Path(__file__).parent
                    )
                    captured.write(Path("payload.pkl"))
                    print([shipped.path for shipped in captured.modules])
                """
            )
        )
        (tmp_path / "jd_helper.py").write_text("def twice(x): return 2 * x")

        def python(*args: str) -> subprocess.CompletedProcess[str]:
            env = {**os.environ, "PYTHONPATH": str(ROOT)}
            return subprocess.run(
                [sys.executable, *args], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
            )

        done = python(str(script), "5")
        assert (done.stdout, done.stderr) == ("['jd_helper.py']\n", "")
        assert python("-c", RANK, str(tmp_path)).stderr == ""
        assert payload.load(tmp_path / "result.pkl") == 40
        python(str(script), "-1")
        script.unlink()
        assert 'raise ValueError("negative")  # here' in python("-c", RANK, str(tmp_path)).stderr


class TestRealKernel:
    def test_captures_what_a_notebook_has(self, kernel: Any, notebook: Notebook) -> None:
        kernel.run("from jupyter_dist.capture.payload_builder import capture_cell\nfrom pathlib import Path")
        kernel.run("RATE = 2\ndef rate():\n    with open('/dev/null') as f: return RATE, f.name")
        kernel.run(
            "def shell():\n    try: return get_ipython()\n    except NameError: return 'no shell'\n"
            "import sys\ndef say(text, out=sys.stdout): return out is sys.stdout"
        )
        kernel.run("Out, _, In, 5")
        cell = r"result = [rate(), shell(), say('x')]; open, exit, display, _, In, Out, __name__"
        shown = kernel.run(
            f"""
            shell_ = get_ipython()
            labels = {{f: f"In[{{n}}]" for f, n in shell_.compile._filename_map.items()}}
            captured = capture_cell({cell!r}, shell_.user_ns, label="In[9]", labels=labels,
                                    directory=Path.cwd(), flags=shell_.compile.flags)
            captured.write(Path("payload.pkl"))
            print(captured.header["names"], sorted(captured.header["labels"].values()), captured.imports)
            """
        ).stdout
        assert shown.startswith("['rate', 'shell', 'say'] ['In[2]', 'In[3]', 'In[9]'] ")
        assert "IPython" not in shown
        (notebook.folder / "run").mkdir(0o700)
        os.rename(notebook.folder / "payload.pkl", notebook.folder / "run/payload.pkl")
        source = cell.partition(";")[0]
        done = subprocess.run(
            [sys.executable, "-c", RANK.replace('header["source"]', repr(source)), notebook.folder / "run"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""
        result = payload.load(notebook.folder / "run/result.pkl")
        assert result == [(2, "/dev/null"), "no shell", True]


def test_a_note_names_an_object_of_an_earlier_class(notebook: Notebook) -> None:
    notebook.cell("class Net: pass\nclass Wide(Net): pass\nnet = Net()")
    notebook.cell("class Net: pass\nfresh = Net()")
    notes = notebook.capture("result = isinstance(net, Net)").notes
    assert notes == (
        "net is an object of an earlier definition of Net, so that isinstance(net, Net) is false. "
        "Run the cell that makes net again. To hide this note: --no-hint old-class",
    )
    for innocent in ("result = net", "result = Net()", "result = isinstance(fresh, Net)"):
        assert notebook.capture(innocent).notes == ()


READ_BY_RANKS = {
    *("argv", "assigns", "filename", "flags", "format", "kind", "labels", "legacy_keras"),
    *("legacy_keras_if_several", "logical_cpus", "names", "origins", "settings", "source", "sources"),
    *("spanning_strategy", "submodules", "sys_path", "unnamed", "writes"),
}


def test_ranks_know_the_header_of_a_cell_by_the_number_of_its_format(tmp_path: Path) -> None:
    header = capture_cell("1", {}, label="In[1]", directory=tmp_path).header
    assert (header["format"], {*header}) == (2, READ_BY_RANKS), (
        "raise payload.CELL_FORMAT if ranks need a key that an earlier kernel does not write"
    )
