"""Corners of Python and its own library that differ between versions. They are in no random notebook."""

from __future__ import annotations

from .pieces import Kind

__all__ = ["CORNERS"]

CORNERS = [
    Kind(
        "dataclass whose annotations are text",
        """
from __future__ import annotations
import dataclasses as dc, typing
@dc.dataclass
class A:
    x: int
    K: typing.ClassVar[int] = 5
    i: dc.InitVar[int] = 3
    y: list[NoSuch] = dc.field(default_factory=list)
    def __post_init__(self, i): self.got = i
""",
        (
            "A(1, 4).got",
            "A(1)",
            "A.K",
            "[f.name for f in dc.fields(A)]",
            "A.__annotations__",
            "A(1, 2, [3]).y",
        ),
    ),
    Kind(
        "enums of all kinds",
        """
import enum
class F(enum.Flag):
    A = enum.auto(); B = enum.auto(); C = A | B
class I(enum.IntEnum):
    X = 1; Y = 2
    @classmethod
    def _missing_(cls, v): return cls.X
class S(str, enum.Enum):
    P = "p"
    def __str__(self): return self.value
    @property
    def up(self): return self.value.upper()
class O(enum.Enum):
    def __new__(cls, a, b):
        o = object.__new__(cls); o._value_ = a; o.b = b; return o
    M = 1, "one"
    N = 2, "two"
""",
        (
            "F.A | F.B is F.C",
            "F.A in F.C",
            "list(F)",
            "I(9)",
            "I.Y + 1",
            "str(S.P)",
            "S.P.up",
            "O.M.b",
            "O(2).b",
            "[m.b for m in O]",
            "F(3)",
            "~F.A",
            'I["X"]',
            'S("p") is S.P',
            "len(O)",
            "F.C.value",
        ),
    ),
    Kind(
        "dataclasses of all kinds",
        """
import dataclasses as dc, typing
@dc.dataclass
class A:
    x: int
    K: typing.ClassVar[int] = 5
    i: dc.InitVar[int] = 3
    z: int = dc.field(default=1, repr=False, compare=False, metadata={"u": 1})
    _: dc.KW_ONLY = None
    k: str = "k"
    def __post_init__(self, i): self.got = i
@dc.dataclass(frozen=True, order=True)
class B:
    x: int
    @property
    def y(self): return self.x
@dc.dataclass(eq=False)
class C(A):
    w: float = 0.5
    def __repr__(self): return "mine"
@dc.dataclass(slots=True)
class D:
    a: int
    b: list = dc.field(default_factory=list)
@dc.dataclass(unsafe_hash=True)
class E:
    a: int = 1
@dc.dataclass
class G(typing.Generic[typing.TypeVar("T")]):
    v: int = 2
a=A(1, 9, k="q"); d=D(1)
old = A.__init__
def wrapped(self, *a, **k):
    old(self, *a, **k); self.more = 1
H = dc.make_dataclass("H", [("a", int), ("b", int, 4)])
""",
        (
            "a",
            "a.got",
            'A(1,2,3,k="z")',
            "A.K",
            "[f.name for f in dc.fields(A)]",
            'dc.fields(A)[1].metadata["u"]',
            "B(1) < B(2)",
            "hash(B(1))==hash(B(1))",
            "C(1)",
            "C(1)==C(1)",
            "C(1).w",
            "d",
            "d.b",
            "D(1)==D(1)",
            "dc.replace(d, a=5)",
            "dc.asdict(a)",
            "E(1)==E(1)",
            "hash(E())==hash(E())",
            "G()",
            "A.__match_args__",
            'str(__import__("inspect").signature(A))',
            'hasattr(d,"__dict__")',
            'A.__annotations__["x"]',
            "H(1)",
            "(dc.astuple(H(1, 2)))",
        ),
        since=(3, 10),
    ),
    Kind(
        "all kinds of functions and classes",
        """
import functools, contextlib, collections, abc, typing, random, re
import decimal, datetime, pathlib, types
class Base(abc.ABC):
    @abc.abstractmethod
    def f(self): ...
    def __init_subclass__(cls, **k): super().__init_subclass__(); cls.kw = k
class Impl(Base, a=1):
    def f(self): return super().__repr__()[:3], __class__.__name__
    class Inner:
        def g(self): return [lambda: (x, self) for x in range(2)]
def deco(n):
    def outer(fn):
        @functools.wraps(fn)
        def inner(*a, **k): return n, fn(*a, **k)
        return inner
    return outer
@deco(1)
@deco(2)
def f(x, /, y=2, *a, z, **k): return x, y, a, z, k
@functools.lru_cache
def fib(n): return n if n < 2 else fib(n-1) + fib(n-2)
@functools.singledispatch
def sd(x): return "any"
@sd.register
def _(x: int): return "int"
def match_it(v):
    match v:
        case {"a": [x, *rest]}: return x, rest
        case Impl(): return "impl"
        case str() as s if s: return s
        case _: return None
def counter():
    n = 0
    def inc():
        nonlocal n
        n += 1
        return n
    def get(): return n
    return inc, get
inc, get = counter(); inc()
def gen(n):
    got = yield n
    yield from (i * 2 for i in range(n))
class Desc:
    def __set_name__(self, o, n): self.n = n
    def __get__(self, i, o=None): return self.n, i is None
class Uses:
    d = Desc()
    __slots__ = ("a", "__weakref__")
    @staticmethod
    def st(): return 1
    @classmethod
    def cm(cls): return cls.__name__
    @functools.cached_property
    def cp(self): return 1
    def __eq__(self, o): return True
    __hash__ = None
class Meta(type):
    def __call__(cls, *a): o = super().__call__(*a); o.tag = "meta"; return o
class M(metaclass=Meta):
    pass
T = typing.TypeVar("T")
class G(typing.Generic[T]):
    def get(self, x: T) -> T: return x
N = collections.namedtuple("N", "a b")
n = N(1, 2)
p = pathlib.Path("a") / "b"; pp = pathlib.PurePosixPath("x")
rx = re.compile("a(b)"); td = datetime.timedelta(1); dec = decimal.Decimal("1.5")
part = functools.partial(f, 1, z=3); rnd = random.Random(3); ctr = collections.Counter("aab")
og = functools.reduce; opt = typing.Optional[int]; un = int | str
al = list[int]; cl = typing.Callable[[int], str]
ns = types.SimpleNamespace(a=1); dd = collections.defaultdict(lambda: 7); cm = collections.ChainMap({1: 2})
async def co(x): return [y async for y in ag(x)]
async def ag(x):
    for i in range(x): yield i
def drive(c):
    try: c.send(None)
    except StopIteration as e: return e.value
it = iter([3, 4]); rng = range(3); sl = slice(1, 2)
""",
        (
            "Impl().f()[1]",
            "Impl.kw",
            "[g()[0] for g in Impl.Inner().g()]",
            "f(1, z=3)",
            "f.__wrapped__.__name__",
            "fib(20)",
            '(sd(1), sd(""))',
            '(match_it({"a": [1, 2, 3]}), match_it(Impl()), match_it("s"), match_it(0))',
            "(inc(), get())",
            "list(gen(3))",
            "(Uses.d, Uses().d)",
            "(Uses.st(), Uses.cm())",
            "M().tag",
            "G[int]().get(3)",
            "(n._replace(a=3), N._make([1,2]), n)",
            "(p, pp)",
            '(rx.match("ab")[1], td, dec)',
            "part(5)",
            "rnd.random()",
            "ctr",
            "opt",
            "un",
            "al",
            "str(cl)",
            "ns",
            "(dd[3], cm)",
            "drive(co(3))",
            "(next(it), rng, sl)",
            "f.__code__.co_name",
            '__import__("inspect").getsource(match_it)[:20]',
        ),
        since=(3, 10),
    ),
    Kind(
        "functions in one line",
        """
fs = [lambda x: x, lambda x: x + 1, lambda *, a=(lambda: 3): a()]; g = lambda: [(lambda i=i: i) for i in 'ab']
""",
        (
            "([f(1) for f in fs[:2]], fs[2]())",
            "[h() for h in g()]",
        ),
    ),
    Kind(
        "functions with imports beside them",
        """
import os, json
def f(): return os.path.join("a", json.dumps(1))
def g():
    import math
    return math.pi, os.sep
""",
        ("(f(), g())",),
    ),
    Kind(
        "equal lambdas of one line",
        """
moves = {"r": lambda p: (p, 0, 1), "R": lambda p: (p, 0, 1), "d": lambda p: (p, 1, 0)}
scales = [lambda x: x*2+3, lambda x: x*2+3, lambda x: x*3+2]
sizes = [lambda: 1000000, lambda: 1000000, lambda: 2000000]
class Ways:
    up, down = staticmethod(lambda x: x*2-1), staticmethod(lambda x: x*2-1)
    left = staticmethod(lambda x: x*1-2)
""",
        (
            "[moves[key](7) for key in 'rRd']",
            "[f(10) for f in scales]",
            "[f() for f in sizes]",
            "(Ways.up(10), Ways.down(10), Ways.left(10))",
        ),
    ),
    Kind(
        "getattr as a value",
        """
import queue
get, waiting = getattr, queue.Queue()
def asked():
    try:
        return get(waiting, "nothing")
    except AttributeError as error:
        return type(error)
""",
        ("get([], 'nothing', 5)", "asked()", "waiting.qsize()"),
    ),
    Kind(
        "an import from __future__ in the middle of a cell",
        """
def early(x: int): return x + 1
from __future__ import annotations
def late(x: Missing): return x + 2
""",
        ("early(1)", "late(1)", "late.__annotations__"),
    ),
]
