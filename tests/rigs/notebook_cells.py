"""A notebook whose cells are captured, and ranks that run what was captured."""

from __future__ import annotations

import linecache
import os
import shutil
import subprocess
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.capture.payload_builder import Payload, capture_cell
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
