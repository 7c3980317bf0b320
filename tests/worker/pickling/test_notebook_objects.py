"""What earlier cells have made works on a rank as in the notebook: modules, functions, classes, locks.

Every row of the tables is a cell and an expression; what the expression gives on a rank, in one process for a
whole table, is what it gives in the notebook.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.worker.pickling.reducers import torch_compile
from tests.rigs.notebook_cells import Notebook

FILES = {
    "jw_tools.py": """
        import collections, contextvars, functools, threading
        calls = []
        seen = collections.Counter()
        config = {"lr": 0.1}
        total = 0
        LOCK = threading.Lock()
        where = contextvars.ContextVar("where", default="nowhere")
        def counted(function):
            @functools.wraps(function)
            def wrapper(*args):
                global total
                with LOCK:
                    total += 1
                    seen[function.__name__] += 1
                    calls.append(function.__name__)
                return function(*args)
            return wrapper
        def report(): return total, list(calls)
        def adding(n):
            def add(x):
                calls.append("add")
                return x + n
            return add
        class Counter(type):
            def __call__(cls, *args):
                calls.append(cls.__name__)
                return super().__call__(*args)
        class Described:
            def __init__(self, function): functools.update_wrapper(self, function); self.function = function
            def __get__(self, instance, owner=None):
                calls.append("get")
                return self.function(instance)
        def extended(cls):
            class Extended(cls):
                def seen(self): return len(calls)
            functools.update_wrapper(Extended, cls, updated=())
            return Extended
        @functools.singledispatch
        def show(x): return "anything"
        def show_all(*xs): return [show(x) for x in xs]
        class Settings:
            lr = 0.1
        settings = Settings()
        KNOWN = {}
        def known(function): return KNOWN.setdefault(function.__name__, function)
        def rate(): return settings.lr, config["lr"]
        def place(): return where.get()
    """,
    "jw_typed.py": """
        import sys, types
        class Typed(types.ModuleType):
            @property
            def answer(self): return 42
        sys.modules[__name__].__class__ = Typed
    """,
    "jw_instance.py": """
        import sys
        class Api:
            def hello(self): return "hello"
        sys.modules[__name__] = Api()
    """,
    "jw_own_kind.py": """
        import sys, types
        class Own(types.ModuleType):
            def __init__(self):
                super().__init__("jw_own_kind")
                self.x = 3
        sys.modules[__name__] = Own()
    """,
    "jw_spread/inner/part.py": "value = 9",
    "jw_package/__init__.py": "",
    "jw_package/deep.py": "value = 3",
}

MODULES = [
    ("import xml.etree.ElementTree", "xml.etree.ElementTree.fromstring('<a/>').tag"),
    (
        "import xml.dom.minidom\ndef names(module): return [module.dom.minidom.__name__ for _ in 'a']",
        "names(xml)",
    ),
    ("import jw_package.deep", "jw_package.deep.value"),
    ("import jw_spread.inner.part as part, jw_spread", "part.value, jw_spread.__name__"),
    ("import jw_typed", "jw_typed.answer"),
    ("import jw_instance", "jw_instance.hello()"),
    ("import jw_own_kind", "jw_own_kind.x"),
    ("import os.path as paths", "paths.__name__, paths.join('a', 'b')"),
    (
        "import types\nmade = types.ModuleType('jw_made')\n"
        "exec('n = 0\\ndef bump():\\n  global n\\n  n += 1\\n  return n', vars(made))",
        "made.bump(), made.bump(), made.n",
    ),
    (
        "import sys\nput = sys.modules['jw_put'] = types.ModuleType('jw_put')\n"
        "exec('n = 0\\nclass A: pass\\ndef up():\\n  global n\\n  n += 1\\n  return n', vars(put))\n"
        "from jw_put import A, up\ndef later():\n  import jw_put\n  return jw_put.n",
        "up(), put.n, isinstance(put.A(), A), later()",
    ),
    ("import os\nenviron = os.environ", "environ is os.environ"),
    (
        "from random import randint, seed\nimport random\none = random._inst",
        "randint is random.randint, one is random._inst",
    ),
    ("from numpy.random import rand\nimport numpy as np", "rand is np.random.rand"),
    ("from multiprocessing import Pool\nimport multiprocessing", "Pool == multiprocessing.Pool"),
    ("import dataclasses\nfrom dataclasses import MISSING", "MISSING is dataclasses.MISSING"),
]

FUNCTIONS = [
    ("import jw_tools\n@jw_tools.counted\ndef one(x, y=[2]): return x, y", "one(1), jw_tools.report()"),
    (
        "class HasMethod:\n  @jw_tools.counted\n  def go(self): return 1",
        "HasMethod().go(), jw_tools.report()",
    ),
    ("plus_two = jw_tools.adding(2)", "plus_two(3), jw_tools.report()"),
    ("import functools\npartial = functools.partial(one, 5)", "partial(), jw_tools.report()"),
    ("class Counted(metaclass=jw_tools.Counter): pass", "type(Counted()).__name__, jw_tools.report()"),
    (
        "class HasProperty:\n  @jw_tools.Described\n  def go(self): return 4",
        "HasProperty().go, jw_tools.report()",
    ),
    (
        "@jw_tools.extended\nclass Extended: pass",
        "Extended().seen() == len(jw_tools.calls), Extended.__name__",
    ),
    ("class K: pass\n@jw_tools.show.register\ndef _(x: K): return 'K'", "jw_tools.show_all(K(), 1)"),
    (
        "@functools.singledispatch\ndef generic(x): return 'o'\n@generic.register\n"
        "def _(x: int): return 'i'\n"
        "def extend():\n  generic.register(str, lambda x: 's')\n  return len(generic.registry), "
        "generic.__name__",
        "generic(1), generic('a'), extend(), generic('a')",
    ),
    (
        "from jw_tools import settings, config, rate\nsettings.lr = config['lr'] = 3",
        "rate(), settings is jw_tools.settings, config is jw_tools.config",
    ),
    (
        "from jw_tools import seen, calls as made\nseen['before'] = 2\ndef of(): return seen",
        "seen, of() is seen, seen is jw_tools.seen, made is jw_tools.calls",
    ),
    (
        "@jw_tools.known\ndef registered(): return 5",
        "jw_tools.KNOWN['registered'] is registered, [f() for f in jw_tools.KNOWN.values()]",
    ),
    ("from jw_tools import where, place", "where is jw_tools.where, place()"),
    (
        "import contextlib\n@contextlib.contextmanager\ndef managed(): yield 3\n@managed()\n"
        "def inside(): return 4",
        "inside(), inside()",
    ),
    (
        "def counter():\n  n = 0\n  def up():\n    nonlocal n\n    n += 1\n    return n\n"
        "  def down():\n    nonlocal n\n    n -= 1\n    return n, up\n  return up, down\nup, "
        "down = counter()\nup()",
        "up(), down()[0], up(), down()[1] is up",
    ),
    ("space = {}\nexec('def made(x): return x + 2', space)\nmade = space['made']", "made(2)"),
    (
        "class Meta(type):\n  known = []\n  def __new__(meta, name, bases, space, tag='none'):\n"
        "    cls = super().__new__(meta, name, bases, space)\n    cls.tag = tag\n"
        "    meta.known.append(name)\n"
        "    return cls\n  def __init__(cls, name, bases, space, tag='none'): pass\n"
        "class Tagged(metaclass=Meta, tag='own'): pass",
        "Meta.known, Tagged.tag, type(Meta('Late', (Tagged,), {})) is Meta, Meta.known",
    ),
    (
        "class Root:\n  known = []\n  def __init_subclass__(cls, *, key): Root.known.append(key)\n"
        "class Leaf(Root, key=1):\n  class Part: pass",
        "Root.known, Root.__subclasses__() == [Leaf], Leaf.Part.__qualname__,"
        " type('Late', (Root,), {}, key=2) and Root.known",
    ),
    (
        "import types, struct\ntable = {'a': 2}\nkeys, proxy = table.keys(), types.MappingProxyType(table)\n"
        "raw = bytearray(b'abc')\nshown = memoryview(raw)\nhead = struct.Struct('<hI')",
        "table.update(b=3), list(keys), proxy['b'], raw.__setitem__(0, 90), bytes(shown), head.pack(1, 2)",
    ),
    (
        "import dataclasses, enum\nclass E(enum.Enum):\n  A = (1, 'x')\n  B = (2, 'y')\n  ALSO = (1, 'x')\n"
        "  def __init__(self, n, text): self.text = text",
        "E['ALSO'] is E.A, E.B.text, list(E), E((1, 'x')).text",
    ),
    (
        "class N(enum.IntEnum):\n  A = (1, 'x')\n  def __new__(cls, n, text):\n"
        "    self = int.__new__(cls, n)\n    self._value_, self.text = n, text\n    return self",
        "N.A + 1, N(1).text",
    ),
    ("class Perm(enum.Flag):\n  R = 1\n  W = 2\n  RW = 3", "Perm['RW'] is Perm.R | Perm.W, list(Perm)"),
    (
        "@dataclasses.dataclass(slots=True)\nclass Slotted:\n  a: int\n"
        "  b: list = dataclasses.field(default_factory=list)",
        "Slotted(1), hasattr(Slotted(1), '__dict__'), dataclasses.replace(Slotted(1), a=2)",
    ),
    (
        "@dataclasses.dataclass\nclass Base:\n  a: int\n"
        "def derive():\n  @dataclasses.dataclass\n  class Derived(Base):\n    b: int = 2\n"
        "  return dataclasses.fields(Derived)[0].default is dataclasses.MISSING, Derived(1).b",
        "derive()",
    ),
    (
        "import typing\nP = typing.ParamSpec('P')\nR = typing.TypeVar('R')\n"
        "UserId = typing.NewType('UserId', int)\n"
        "def logged(f: typing.Callable[P, R]) -> typing.Callable[P, R]:\n"
        "  def inner(*args: P.args, **kwargs: P.kwargs) -> R: return f(*args, **kwargs)\n  return inner\n"
        "@logged\ndef typed(x: UserId): return x",
        "typed(1), str(P), UserId(3), UserId.__name__",
    ),
    (
        "import numpy as np\nwhole = np.arange(1000.0).reshape(10, 100)\npart = whole[2:8:3, ::-2]\n"
        "turned = whole.T",
        "np.shares_memory(whole, part), whole.fill(7) or part.tolist(), "
        "part.fill(3) or whole.sum(), turned[5, 2]",
    ),
    ("view = memoryview(b'abc')", "type(view).__name__, bytes(view), view.readonly"),
]

OBJECTS = [
    (
        "class Around:\n  def __init__(self, inner): self.inner, self.own = inner, 1\n"
        "  def __getattr__(self, name): return getattr(self.inner, name)\n"
        "class Slots:\n  __slots__ = 'inner',\n  def __init__(self, inner): self.inner = inner\n"
        "  __getattr__ = Around.__getattr__\n"
        "class Listed(list):\n  def __getattr__(self, name): return self.known[name]\n"
        "around = Around(Slots(Around('text')))\nlisted = Listed([1])\nlisted.known = {'a': 5}",
        "around.upper(), around.own, around.inner.inner.inner, listed, listed.a",
    ),
    (
        "import threading\nlock = threading.Lock()\nalso = [lock]\ndef locked():\n"
        "  with lock: return lock.locked()",
        "locked(), lock.locked(), also[0] is lock",
    ),
    ("again = threading.RLock()", "again.acquire(), again.acquire(), again.release(), again.release()"),
    ("event = threading.Event()\nevent.set()\nunset = threading.Event()", "event.is_set(), unset.is_set()"),
    ("some = threading.Semaphore(3)\nsome.acquire()", "some._value, some.acquire(blocking=False)"),
    (
        "bounded = threading.BoundedSemaphore(1)",
        "bounded.acquire(blocking=False), bounded.acquire(blocking=False)",
    ),
    (
        "condition = threading.Condition(lock)",
        "condition._lock is lock, condition.acquire(), condition.release()",
    ),
    ("barrier = threading.Barrier(1)", "barrier.parties, barrier.wait(1)"),
    (
        "class Model:\n  def __init__(self): self.lock = threading.Lock()\nmodel = Model()",
        "model.lock.locked()",
    ),
    (
        "import queue\nfull = queue.Queue(3)\nfull.put(1)\nfull.put([2])",
        "full.get(), full.get(), full.maxsize, full.empty()",
    ),
    (
        "last = queue.LifoQueue()\nlast.put(1)\nlast.put(2)\nempty = queue.SimpleQueue()",
        "last.get(), empty.empty()",
    ),
    (
        "import contextvars\nplain = contextvars.ContextVar('plain', default=3)\n"
        "none = contextvars.ContextVar('none')\n"
        "deep = contextvars.ContextVar('deep')\ndeep.set([1])\ndef see(): return plain.get(), "
        "deep.get(), none.get(0)\n"
        "def change():\n  plain.set(5)\n  deep.get().append(2)",
        "see(), change(), see()",
    ),
    ("local = threading.local()\nlocal.x = 4", "local.x, list(vars(local))"),
    ("class Local(threading.local):\n  n = 0\nown = Local()\nown.n = 4", "own.n"),
    (
        "class Made(threading.local):\n  def __init__(self, *x, **y): self.x, self.y = x, y\n"
        "made, bare = Made(1, [2], y=lock), Made()\nmade.x = 3\n"
        "def elsewhere(look):\n  with ThreadPoolExecutor(1) as pool: return pool.submit(look).result()",
        "made.x, made.y['y'] is lock, elsewhere(lambda: made.x), elsewhere(lambda: made.y['y'] is lock), "
        "bare.x, elsewhere(lambda: bare.y)",
    ),
    (
        "import numpy as np\nnp.savez('arrays.npz', a=np.arange(3), b=np.array([{1}], dtype=object))\n"
        "arrays, picky = np.load('arrays.npz', allow_pickle=True), np.load('arrays.npz')\n"
        "shut = np.load('arrays.npz')\nshut.close()",
        "arrays['a'].tolist(), arrays['b'][0], picky['a'].sum(), sorted(picky.files), shut.zip",
    ),
    (
        "import io\nfrom rich.console import Console\nconsole = Console(file=io.StringIO())",
        "console.print('[bold]3[/bold]'), console.file.getvalue()",
    ),
    (
        "import weakref\nclass A:\n  def go(self): return 3\na = A()\nref = weakref.ref(a)\n"
        "held = A()\nlone = weakref.ref(held)",
        "ref() is a, lone() is not None",
    ),
    (
        "a.me = weakref.ref(a)\nmethod = weakref.WeakMethod(a.go)\nproxy = weakref.proxy(a)",
        "a.me() is a, method()(), proxy.go()",
    ),
    ("dead = weakref.ref(A())", "dead()"),
    (
        "those = weakref.WeakSet([a, held])\nkeyed = weakref.WeakKeyDictionary({held: 1})",
        "len(those), list(keyed.values())",
    ),
    (
        "from concurrent.futures import ThreadPoolExecutor, ProcessPoolExecutor, Future\n"
        "pool = ThreadPoolExecutor(2, 'mine')\nprocesses = ProcessPoolExecutor(3)",
        "pool.submit(len, 'abc').result(), pool._thread_name_prefix, processes._max_workers",
    ),
    (
        "idle = ThreadPoolExecutor(1)\nidle.submit(len, '').result()\nidle.shutdown()\nidle = [idle]",
        "idle[0]._shutdown",
    ),
    ("result = Future()\nresult.set_result(5)", "result.result()"),
    (
        "thread = threading.Thread(target=full.put, args=(7,), name='mine')",
        "thread.start(), thread.join(), full.get(timeout=5)",
    ),
    (
        "import logging\nlog = logging.getLogger('jw.log')\nlog.addHandler(logging.NullHandler())",
        "log is logging.getLogger('jw.log')",
    ),
    (
        "from tqdm import tqdm\nbar = tqdm(total=5, desc='d', leave=False)\nbar.update(2)\n"
        "over = tqdm([1, 2])",
        "[bar.update(1)] and bar.n, bar.total, bar.desc, list(over)",
    ),
]

TORCH = [
    (
        "import torch, torch.backends.cudnn as cudnn\nfrom torch.backends import mkldnn\nops = torch.ops\n"
        "backends = torch.backends\naten = torch.ops.aten\nadd = torch.ops.aten.add\nover = add.Tensor",
        "cudnn is torch.backends.cudnn, mkldnn is torch.backends.mkldnn, ops is torch.ops, "
        "aten is torch.ops.aten,"
        "backends is torch.backends, add is torch.ops.aten.add, over is torch.ops.aten.add.Tensor",
    ),
    (
        "from torch._dynamo import utils\nscale = 3\n@torch.compile(backend='eager', "
        "fullgraph=True, dynamic=False)\n"
        "def scaled(x): return x * scale",
        "scaled(torch.ones(2)).tolist(), scaled.__name__, utils.counters['stats']['unique_graphs'] > 0",
    ),
    (
        "runs = []\ndef mine(graph, inputs):\n  runs.append(len(inputs))\n  return graph.forward\n"
        "@torch.compile(backend=mine)\ndef own(x): return x + 1\ndef around(x): return own(x) * 2\n"
        "import functools\nwrapped = functools.wraps(own)(around)",
        "own(torch.ones(2)).tolist(), len(runs), wrapped(torch.ones(1)).item(), wrapped.__name__",
    ),
    (
        "net = torch.compile(torch.nn.Linear(2, 1), backend='eager')\n"
        "net.register_forward_hook(lambda module, x, y: y * 0)\n"
        "class Net(torch.nn.Module):\n  def __init__(self):\n    super().__init__()\n"
        "    self.inner = torch.compile(torch.nn.Linear(2, 2), backend='eager')\n"
        "  def forward(self, x): return self.inner(x)\nouter = Net()\n"
        "outer.compile(backend='eager')\nx = torch.ones(2)",
        "type(net).__name__, net(x).tolist(), outer(x).tolist(), outer._compiled_call_impl is not None",
    ),
    ("@torch.compiler.disable\ndef plain(x): return x", "plain(3), plain._torchdynamo_disable"),
    (
        "drawn = torch.Generator().manual_seed(5)\ndefault = torch.default_generator",
        "torch.rand(1, generator=drawn).item(), default is torch.default_generator",
    ),
    (
        "class Sharp(torch.optim.Optimizer):\n"
        "  def __init__(self, params, rho):\n"
        "    super().__init__(params, {'lr': 0.1})\n    self.rho, self.count = rho, 0\n"
        "    self.base = torch.optim.SGD(self.param_groups, lr=0.1)\n"
        "    self.param_groups = self.base.param_groups\n"
        "  def step(self, closure=None):\n    self.count += 1\n    self.base.step()\n"
        "steps = []\nsharp = Sharp(torch.nn.Linear(2, 1).parameters(), 0.05)\n"
        "sharp.register_step_post_hook(lambda *_: steps.append('after'))\n"
        "adam = torch.optim.Adam(torch.nn.Linear(2, 1).parameters())\n"
        "adam.register_step_pre_hook(lambda *_: steps.append('before'))",
        "sharp.step(), sharp.rho, sharp.count, sharp.base.param_groups is sharp.param_groups, adam.step(),"
        "steps",
    ),
    (
        "import warnings\nscheduled = torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1)\n"
        "schedule = torch.optim.lr_scheduler.StepLR(scheduled, 1, 0.5)\n"
        "class Half(torch.optim.lr_scheduler.LRScheduler):\n"
        "  def get_lr(self): return [lr * 0.5 for lr in self.base_lrs]\n"
        "early = Half(torch.optim.AdamW(torch.nn.Linear(2, 1).parameters()))\n"
        "def scheduling():\n"
        "  with warnings.catch_warnings(record=True) as warned:\n"
        "    warnings.simplefilter('always')\n"
        "    scheduled.step(), schedule.step(), early.step()\n"
        "  return [str(warning.message)[:40] for warning in warned], schedule.get_last_lr(), scheduled",
        "scheduling()",
    ),
    (
        "ran = []\nhooked = torch.nn.Linear(2, 1)\n"
        "hooked.weight.register_hook(lambda slope: (ran.append('slope'), slope * 0)[1])\n"
        "hooked.bias.register_post_accumulate_grad_hook(lambda bias: ran.append('after'))\n"
        "leaf = torch.ones(2, requires_grad=True)\nhandle = leaf.register_hook(lambda slope: slope * 3)\n"
        "def tripled():\n  leaf.grad = None\n  leaf.sum().backward()\n  return leaf.grad.tolist()\n"
        "def hooks_run():\n  hooked(torch.ones(1, 2)).sum().backward()\n"
        "  return sorted(ran), hooked.weight.grad.tolist()",
        "hooks_run(), tripled(), handle.remove(), tripled()",
    ),
    (
        "from torch.nn.utils import parametrizations, parametrize\n"
        "class Symmetric(torch.nn.Module):\n  def forward(self, x): return x.triu() + x.triu(1).T\n"
        "class Own(torch.nn.Linear):\n  scale = 2\n"
        "  def forward(self, x): return super().forward(x) * self.scale\n"
        "normed = parametrizations.spectral_norm(Own(2, 2)).eval()\n"
        "pair = torch.nn.Sequential(normed, parametrizations.weight_norm(torch.nn.Linear(2, 2)))\n"
        "symmetric = torch.nn.Linear(2, 2)\n"
        "parametrize.register_parametrization(symmetric, 'weight', Symmetric())",
        "pair(torch.ones(1, 2)).tolist(), type(normed).__name__, isinstance(normed, Own), pair[0] is normed,"
        "bool(symmetric.weight[0, 1] == symmetric.weight[1, 0]),"
        "[name for name, _ in pair.named_parameters()],"
        "type(parametrize.remove_parametrizations(symmetric, 'weight')).__name__",
    ),
    (
        "rows = torch.utils.data.DataLoader(range(6), 2, num_workers=1, persistent_workers=True,\n"
        "  multiprocessing_context='fork')\nnext(iter(rows))",
        "[row.tolist() for row in rows], rows.num_workers, rows.persistent_workers",
    ),
]

TENSORFLOW = [
    (
        "import tensorflow as tf\nfrom tensorflow import keras\n"
        "from tensorflow.keras import layers\nscale = 3\n"
        "@tf.function(reduce_retracing=True)\ndef scaled(x): return x * scale",
        "scaled(tf.ones(2)).numpy().tolist(), scaled._reduce_retracing, keras.layers.Dense is layers.Dense",
    ),
    (
        "@tf.custom_gradient\ndef own(x): return x * 2, lambda up: up * 5\n"
        "def slope():\n  x = tf.constant(1.0)\n  with tf.GradientTape() as tape:\n"
        "    tape.watch(x)\n    y = own(x)\n"
        "  return float(tape.gradient(y, x))",
        "slope()",
    ),
]

ASKED = """
results = []
for expression in expressions:
    try:
        results.append(repr(eval(expression)))
    except Exception as error:
        results.append(f"{type(error).__name__}: {error}")
result = results
"""


@pytest.fixture
def beside(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    """A notebook with modules beside it, in its folder; what it imports is forgotten afterwards."""
    for name, text in FILES.items():
        path = notebook.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(notebook.folder))
    monkeypatch.chdir(notebook.folder)
    yield notebook
    for name in [name for name in sys.modules if name.startswith("jw_")]:
        del sys.modules[name]


def compare(notebook: Notebook, rows: list[tuple[str, str]]) -> None:
    """Run the cells, capture all that the expressions use, and have a rank and the notebook evaluate them."""
    for cell, _ in rows:
        notebook.cell(cell)
    expressions = [expression for _, expression in rows]
    names = ", ".join(f"lambda: ({expression})" for expression in expressions)
    captured = notebook.capture(f"{names}\nexpressions = {expressions!r}\n{ASKED}")
    for path in notebook.folder.glob("jw_*"):
        path.rename(path.with_name(f"gone_{path.name}"))  # a rank has what was shipped
    on_rank = notebook.run_payload(captured)
    notebook.names["expressions"] = expressions
    exec(ASKED, notebook.names)
    assert on_rank == notebook.names["results"]
    assert not [line for line in on_rank if "Error" in line]


class TestAsInTheNotebook:
    def test_modules(self, beside: Notebook) -> None:
        compare(beside, MODULES)

    def test_functions_and_classes(self, beside: Notebook) -> None:
        compare(beside, FUNCTIONS)

    @pytest.mark.needs("rich", "tqdm")
    def test_locks_queues_and_the_like(self, beside: Notebook) -> None:
        compare(beside, OBJECTS)

    @pytest.mark.needs("torch")
    @pytest.mark.filterwarnings("ignore")
    def test_torch(self, beside: Notebook) -> None:
        compare(beside, TORCH)

    @pytest.mark.needs("tensorflow")
    @pytest.mark.filterwarnings("ignore")
    def test_tensorflow(self, beside: Notebook) -> None:
        compare(beside, TENSORFLOW)


class TestModulesThatARankLacks:
    def test_are_copied_where_they_are_not_sent(self, beside: Notebook) -> None:
        """A rank on another machine has no such module: what the decorator needs of it goes along."""
        beside.cell("import jw_tools\n@jw_tools.counted\ndef one(): return 1\nadd = jw_tools.adding(1)")
        captured = beside.capture("result = one(), add(1)", ship_modules="none")
        assert captured.modules == ()
        away = beside.folder / "jw_tools.py"
        away.rename(away.with_name("gone.py"))
        assert beside.run_payload(captured) == (1, 2)

    def test_are_used_where_they_are_found(self, beside: Notebook) -> None:
        beside.cell("import jw_tools\n@jw_tools.counted\ndef one(): return 1")
        captured = beside.capture("result = one(), jw_tools.report()", ship_modules="none")
        assert beside.run_payload(captured) == (1, (1, ["one"]))

    def test_whose_names_cannot_travel_have_to_be_there(self, beside: Notebook) -> None:
        beside.cell("import jw_tools, zlib\njw_tools.calls = zlib.compressobj()\nadd = jw_tools.adding(1)")
        captured = beside.capture("result = add(1)", ship_modules="none")
        assert beside.run_payload(captured) == 2


REFUSED = [
    ("held", "held: a locked lock", "Release it first"),
    ("owned", "owned: a locked lock", "Release it first"),
    ("box", "box['lock']: a locked lock", "Release it first"),
    ("simple", "simple: a SimpleQueue with 1 items", "Use queue.Queue()"),
    (
        "awaited",
        "awaited.not_empty: a thread of the notebook waits for it",
        "Create it inside the cell, with",
    ),
    ("busy", "busy: a ThreadPoolExecutor with work under way", "Wait for its results first"),
    ("future", "future: a Future whose result is not there yet", "Wait for its result"),
    ("running", "running: the thread 'mine', which runs in the notebook", "Start it inside the cell"),
    ("process", "process: a process of the notebook (pid ", "Start it inside the cell"),
]


class TestUnderWay:
    @pytest.fixture
    def filled(self, notebook: Notebook) -> Iterator[Notebook]:
        notebook.cell(
            """
            import queue, subprocess, sys, threading
            from concurrent.futures import Future, ThreadPoolExecutor
            held, owned, go_on = threading.Lock(), threading.RLock(), threading.Event()
            held.acquire(), owned.acquire()
            box = {"lock": held}
            simple, awaited, future = queue.SimpleQueue(), queue.Queue(), Future()
            simple.put(1)
            running = threading.Thread(target=awaited.get, name="mine")
            running.start()
            busy = ThreadPoolExecutor(1)
            busy.submit(go_on.wait)
            process = subprocess.Popen([sys.executable, "-c", ""])
            """
        )
        yield notebook
        names = notebook.names
        names["awaited"].put(1)
        names["go_on"].set()
        names["busy"].shutdown()
        names["running"].join()
        names["process"].wait()

    @pytest.mark.parametrize(("source", "path", "cure"), REFUSED)
    def test_is_refused_with_a_cure(
        self, filled: Notebook, wait_for: Callable[..., Any], source: str, path: str, cure: str
    ) -> None:
        wait_for(lambda: filled.names["awaited"].not_empty._waiters, what="the thread that waits")
        first, second, *_ = filled.error(source).split("\n")
        assert first.startswith(path)
        assert second.strip().startswith(cure)


class TestNotes:
    def test_are_few_however_many_objects(self, notebook: Notebook) -> None:
        notebook.cell(
            "import queue, threading\nfrom concurrent.futures import ThreadPoolExecutor\n"
            "locks = [threading.Lock() for _ in range(9)]\njobs, done = queue.Queue(), threading.Event()\n"
            "pool, other = ThreadPoolExecutor(), ThreadPoolExecutor()"
        )
        assert len(notebook.capture("locks, jobs, done, pool, other").notes) == 2

    def test_are_none_where_nothing_differs(self, notebook: Notebook) -> None:
        notebook.cell(
            "import contextvars, logging, threading, weakref\nvariable = contextvars.ContextVar('v')\n"
            "log = logging.getLogger('jw')\nclass A: pass\na = A()\nref = weakref.ref(a)\n"
            "own = threading.local()"
        )
        assert notebook.capture("variable, log, ref, own").notes == ()

    @pytest.mark.needs("rich")
    def test_are_none_for_locks_inside_a_librarys_object(self, notebook: Notebook) -> None:
        notebook.cell(
            "import threading\nfrom rich.console import Console\nconsole, lock = Console(), threading.Lock()"
        )
        notebook.cell(
            "class Holds:\n  def __init__(self): self.all = {'a': [threading.Event()]}\nholds = Holds()"
        )
        notebook.cell("def closed(inner):\n  def f(): return inner\n  return f\nf = closed(threading.Lock())")
        assert notebook.capture("console.width").notes == ()
        for uses in ("lock", "console, lock", "holds", "f()", "lambda: holds"):
            (note,) = notebook.capture(uses).notes
            assert note.startswith("every rank makes locks"), uses

    @pytest.mark.needs("torch")
    def test_say_when_how_torch_compiled_is_not_found(
        self,
        notebook: Notebook,
    ) -> None:
        notebook.cell("import torch\n@torch.compile(backend='eager')\ndef f(x): return x")
        del torch_compile._free(notebook.names["f"])["self"].fullgraph
        (note,) = notebook.capture("f").notes
        assert note.startswith(
            "ranks compile f with torch.compile's defaults: its own options were not found"
        )


IMAGENET = """
import queue, sys, threading, xml.etree.ElementTree
import torch, torch.backends.cudnn as cudnn, transformers, horovod.torch as hvd
import jw_tools
cudnn.benchmark = True
model = torch.nn.Linear(2, 1)

@hvd.elastic.run
def train(state):
    return state.batch, jw_tools.total

@torch.compile(backend="eager")
def step(x): return model(x).sum()

@jw_tools.counted
def counted(): return jw_tools.total

jobs, lock = queue.Queue(), threading.Lock()
jobs.put("job")
"""


@pytest.mark.needs("torch", "horovod")
def test_an_optimizer_that_horovod_has_wrapped_is_refused(notebook: Notebook) -> None:
    """It has seen one process, and would not average gradients on a rank."""
    notebook.cell(
        "import torch, horovod.torch as hvd\nmodel = torch.nn.Linear(2, 1)\n"
        "class Wrapped(torch.optim.SGD): pass\nWrapped.__module__ = 'horovod.torch.optimizer'\n"
        "plain, optimizer = torch.optim.SGD(model.parameters(), 0.1), Wrapped(model.parameters(), 0.1)"
    )
    error = notebook.error("optimizer.step()")
    assert error.startswith("optimizer: an optimizer that Horovod has wrapped belongs to the process")
    assert "hvd.DistributedOptimizer(optimizer)" in error
    assert notebook.capture("plain.step()").notes == ()


@pytest.mark.needs("torch", "horovod", "transformers")
def test_the_head_of_an_example_works_on_real_ranks(kernel: Any, tmp_path: Path) -> None:
    (tmp_path / "jw_tools.py").write_text(textwrap.dedent(FILES["jw_tools.py"]))
    kernel.run(f"%load_ext jupyter_dist\n{IMAGENET}")
    cell = kernel.run(
        """%%distribute -np 2 --out run
hvd.init()
state = hvd.elastic.TorchState(model=model, batch=3)
counted()
(
    train(state),
    cudnn is torch.backends.cudnn,
    transformers.__version__,
    sys.modules["transformers"] is transformers,
    step(torch.ones(2)).item(),
    counted(),
    xml.etree.ElementTree.fromstring("<a/>").tag,
    lock.acquire() and jobs.get(),
)
""",
    )
    shown = kernel.run(
        "expected = ((3, 1), True, transformers.__version__, True, step(torch.ones(2)).item(), 2, "
        "'a', 'job')\n"
        "print(run.results[0] == expected, run.results[1] == expected, run.results[0], expected)"
    )
    assert shown.stdout.startswith("True True"), shown.stdout
    assert cell.text.count("every rank makes locks, events and queues of the notebook anew") == 1, cell.text
