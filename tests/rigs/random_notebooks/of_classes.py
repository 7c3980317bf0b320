"""Kinds of classes, with their instances."""

from __future__ import annotations

from .pieces import Kind

__all__ = ["CLASSES"]

_WITH_GET = """
    def __init__(self, x):
        self.x = x
    def get(self):
        return self.x, INT_A
"""

_MODELS = """
class Base:
    made = 0
    def __init__(self, x):
        type(self).made += 1
        self.x = x
    def get(self):
        return "base", self.x

def registered(cls):
    KNOWN[cls.__name__] = cls
    return cls

KNOWN = {}

class Meta(type):
    def __new__(meta, name, bases, space):
        cls = super().__new__(meta, name, bases, space)
        cls.tag = name.lower()
        return cls
"""

CLASSES = [
    Kind(
        "class",
        f"""
class C_N:{_WITH_GET}---
c_N = C_N(INT_B)
""",
        ("c_N.get()", "type(c_N) is C_N", "C_N.__module__", "C_N.__qualname__"),
        cls="C_N",
        thing="c_N",
        look="IT.get()",
    ),
    Kind(
        "subclass",
        """
class C_N(CLASS):
    def get(self):
        return 'sub', super().get()
---
c_N = C_N(INT_A)
""",
        ("c_N.get()", "isinstance(c_N, CLASS)", "C_N.__mro__[1] is CLASS"),
        cls="C_N",
        thing="c_N",
        look="IT.get()",
    ),
    Kind(
        "class of a module beside the notebook",
        """
from models_N import Base as B_N
---
class C_N(B_N):
    pass
---
c_N = C_N(INT_A)
""",
        # What its module has counted before begins anew on a rank; there it must count as well.
        ("c_N.get()", "(lambda before: C_N(1).made - before)(C_N.made)", "isinstance(c_N, B_N)"),
        {"models_N.py": _MODELS},
        cls="B_N",
    ),
    Kind(
        "metaclass of a module beside the notebook",
        f"""
import models_N
---
class C_N(metaclass=models_N.Meta):{_WITH_GET}
""",
        ("C_N.tag", "type(C_N) is models_N.Meta", "C_N(2).get()"),
        {"models_N.py": _MODELS},
        cls="C_N",
    ),
    Kind(
        "metaclass",
        f"""
class Meta_N(type):
    known = []
    def __new__(meta, name, bases, space, tag="none"):
        cls = super().__new__(meta, name, bases, space)
        cls.tag = tag
        meta.known.append(name)
        return cls
    def __init__(cls, name, bases, space, tag="none"):
        super().__init__(name, bases, space)
    def __len__(cls):
        return INT_B
---
class C_N(metaclass=Meta_N, tag="own"):{_WITH_GET}
""",
        ("C_N.tag", "len(C_N)", "type(C_N) is Meta_N", "Meta_N.known", "C_N(1).get()"),
        cls="C_N",
    ),
    Kind(
        "class that knows its subclasses",
        """
class Base_N:
    known = []
    def __init_subclass__(cls, **more):
        super().__init_subclass__(**more)
        Base_N.known.append(cls.__name__)
---
class C_N(Base_N):
    def __init__(self, x):
        self.x = x
    def get(self):
        return self.x, self.known
""",
        ("Base_N.known", "C_N(INT_A).get()", "[cls.__name__ for cls in Base_N.__subclasses__()]"),
        cls="C_N",
    ),
    Kind(
        "dataclass",
        """
import dataclasses

@dataclasses.dataclass(order=True)
class C_N:
    x: int
    more: list = dataclasses.field(default_factory=list)
    y: int = INT_A
    def get(self):
        return self.x, self.y, self.more
---
c_N = C_N(INT_B, [1])
""",
        (
            "c_N",
            "c_N == C_N(INT_B, [1])",
            "c_N < C_N(99)",
            "dataclasses.asdict(c_N)",
            "C_N(1).more is not C_N(1).more",
        ),
        cls="C_N",
        thing="c_N",
        look="(IT.get(), IT == c_N)",
    ),
    Kind(
        "frozen dataclass with slots",
        """
from dataclasses import dataclass, replace as replace_N, FrozenInstanceError as frozen_N

@dataclass(frozen=True, slots=True)
class C_N:
    x: int
    y: "CLASS | None" = None
    def get(self):
        return self.x
---
c_N = C_N(INT_A, CLASS(1))
---
def try_N():
    try:
        c_N.x = 1
    except frozen_N:
        return "frozen"
""",
        ("c_N.get()", "replace_N(c_N, x=2).get()", "try_N()", "c_N.y.get()", "hash(C_N(1)) == hash(C_N(1))"),
        cls="C_N",
        thing="c_N",
        look="IT.get()",
        since=(3, 10),
    ),
    Kind(
        "slots",
        """
class C_N:
    __slots__ = ('x', 'y', '__weakref__')
    def __init__(self, x):
        self.x = x
    def get(self):
        return self.x, hasattr(self, 'y'), hasattr(self, '__dict__')
---
c_N = C_N(INT_A)
""",
        ("c_N.get()", "C_N.__slots__"),
        cls="C_N",
        thing="c_N",
        look="IT.get()",
    ),
    Kind(
        "protocol",
        """
import typing

@typing.runtime_checkable
class P_N(typing.Protocol):
    def get(self) -> int: ...
---
class C_N:
    def __init__(self, x):
        self.x = x
    def get(self):
        return self.x + INT_A
""",
        ("isinstance(C_N(1), P_N)", "isinstance(1, P_N)", "issubclass(C_N, P_N)", "C_N(2).get()"),
        cls="C_N",
    ),
    Kind(
        "protocol as a base",
        """
import typing
---
class P_N(typing.Protocol):
    def get(self):
        return 'default', self.x
---
class C_N(P_N):
    def __init__(self, x):
        self.x = x
""",
        (
            "C_N(INT_A).get()",
            "P_N in C_N.__mro__",
            "getattr(P_N, '_is_protocol', None)",
            "getattr(C_N, '_is_protocol', None)",
        ),
        cls="C_N",
    ),
    Kind(
        "generic class",
        f"""
from typing import Generic, TypeVar

T_N = TypeVar('T_N')
---
class C_N(Generic[T_N]):{_WITH_GET}---
alias_N = C_N[int]
""",
        ("alias_N(INT_B).get()", "alias_N.__origin__ is C_N", "C_N.__parameters__[0] is T_N"),
        cls="C_N",
    ),
    Kind(
        "enum",
        """
import enum

class E_N(enum.Enum):
    A = INT_A
    B = 'b'
    def say(self):
        return self.name, k_N
---
k_N = INT_B
chosen_N = E_N.A
""",
        ("chosen_N is E_N.A", "E_N('b') is E_N.B", "E_N.A.say()", "[member.name for member in E_N]"),
        thing="E_N.B",
        look="(IT is E_N.B, IT.value)",
    ),
    Kind(
        "flags",
        """
import enum

class F_N(enum.IntFlag):
    A = enum.auto()
    B = enum.auto()
---
both_N = F_N.A | F_N.B
""",
        ("both_N == F_N(3)", "F_N.A in both_N", "int(both_N)", "both_N & F_N.B is F_N.B"),
        thing="both_N",
        look="(int(IT), IT is (F_N.A | F_N.B))",
    ),
    Kind(
        "abstract class",
        """
import abc

class A_N(abc.ABC):
    @property
    @abc.abstractmethod
    def value(self): ...
    def get(self):
        return self.value
---
class C_N(A_N):
    def __init__(self, x):
        self.x = x
    @property
    def value(self):
        return self.x, INT_A
---
A_N.register(complex)
---
def try_N():
    try:
        A_N()
    except TypeError:
        return "abstract"
""",
        ("C_N(1).get()", "try_N()", "isinstance(1j, A_N)", "isinstance(C_N(1), A_N)"),
        cls="C_N",
    ),
    Kind(
        "descriptor",
        """
class Checked_N:
    def __set_name__(self, owner, name):
        self.place = "_" + name
        self.owner = owner
    def __get__(self, obj, kind=None):
        return self if obj is None else getattr(obj, self.place)
    def __set__(self, obj, value):
        setattr(obj, self.place, (value, INT_A))
---
class C_N:
    x = Checked_N()
    def __init__(self, x):
        self.x = x
    def get(self):
        return self.x
""",
        ("C_N(2).get()", "C_N.x.owner is C_N", "C_N.x.place", "type(C_N.x) is Checked_N"),
        cls="C_N",
    ),
    Kind(
        "kinds of methods",
        """
import functools

class C_N:
    count = INT_A
    def __init__(self, x):
        self.x = x
    @classmethod
    def make(cls):
        return cls(cls.count)
    @staticmethod
    def plain(x):
        return FUNCTION(x)
    @functools.cached_property
    def slow(self):
        return [self.x]
    @functools.partialmethod
    def half(self, y):
        return self.x, y
    @functools.singledispatchmethod
    def of(self, x):
        return "any"
    @of.register
    def _(self, x: int):
        return "int", x
    def get(self):
        return self.slow, self.of(1), self.of("")
---
c_N = C_N.make()
---
c_N.slow
""",
        (
            "c_N.get()",
            "C_N.plain(2)",
            "C_N.make().x",
            "c_N.slow is c_N.slow",
            "'slow' in vars(c_N)",
            "'slow' in vars(C_N(1))",
        ),
        cls="C_N",
        thing="c_N",
        look="IT.get()",
    ),
    Kind(
        "class body that reads globals",
        """
k_N = INT_A
---
class C_N:
    size = k_N * 2
    table = {i: k_N for i in range(2)}
    def __init__(self, x):
        self.x = x
    def get(self):
        return self.size, self.table, k_N, self.x
---
k_N = INT_B
""",
        ("C_N(1).get()", "k_N"),
        cls="C_N",
    ),
    Kind(
        "older class with an instance alive",
        """
class C_N:
    version = 1
    def get(self):
        return 'old', self.version
---
old_N = C_N()
---
class C_N:
    version = 2
    def __init__(self, x=0):
        self.x = x
    def get(self):
        return 'new', self.version, self.x
---
new_N = C_N(INT_A)
""",
        (
            "old_N.get()",
            "new_N.get()",
            "isinstance(old_N, C_N)",
            "isinstance(new_N, C_N)",
            "type(old_N).__name__",
        ),
        cls="C_N",
        thing="old_N",
        look="IT.get()",
    ),
    Kind(
        "class decorator",
        """
def tagged_N(cls):
    cls.tag = INT_A
    cls.old_get = cls.get
    cls.get = lambda self: ("tagged", self.tag, self.old_get())
    return cls
---
@tagged_N
class C_N(CLASS):
    pass
""",
        ("C_N(2).get()", "C_N.tag"),
        cls="C_N",
    ),
    Kind(
        "class decorator of a module beside the notebook",
        f"""
import models_N
---
@models_N.registered
class C_N:{_WITH_GET}
""",
        ("C_N(2).get()",),
        {"models_N.py": _MODELS},
        cls="C_N",
    ),
    Kind(
        "total_ordering",
        """
import functools

@functools.total_ordering
class C_N:
    def __init__(self, x):
        self.x = x
    def __eq__(self, other):
        return self.x == other.x
    def __lt__(self, other):
        return self.x < other.x
    def __hash__(self):
        return hash(self.x)
    def get(self):
        return self.x
---
c_N = C_N(INT_A)
table_N = {c_N: 1, C_N(99): 2}
""",
        ("c_N >= C_N(1)", "table_N[C_N(99)]", "max([c_N, C_N(5)]).get()", "c_N in table_N"),
        cls="C_N",
        thing="c_N",
        look="(IT.get(), IT == c_N)",
    ),
    Kind(
        "named tuple",
        """
import collections, typing

P_N = collections.namedtuple('P_N', 'a b', defaults=[INT_A])
---
class Q_N(typing.NamedTuple):
    a: int
    b: object = FUNCTION
    def get(self):
        return self.b(self.a)
---
p_N, q_N = P_N(1), Q_N(2)
""",
        ("p_N", "q_N.get()", "p_N._replace(a=3)", "P_N._fields", "type(q_N) is Q_N"),
        thing="p_N",
        look="(IT.b, IT == p_N)",
    ),
    Kind(
        "exception class",
        """
class Error_N(ValueError):
    def __init__(self, code, *, why=''):
        super().__init__(code)
        self.why = why
---
def f_N(x):
    try:
        raise Error_N(x, why='because')
    except Error_N as error:
        return error.args, error.why
---
e_N = Error_N(INT_A, why='kept')
""",
        ("f_N(2)", "isinstance(e_N, Error_N)", "(e_N.args, e_N.why)"),
        function="f_N",
        thing="e_N",
        look="(IT.args, IT.why)",
    ),
    Kind(
        "exception that was caught",
        """
try:
    1 / 0
except ZeroDivisionError as caught:
    e_N = caught
""",
        ("type(e_N).__name__", "e_N.args"),
    ),
    Kind(
        "own pickling",
        """
class C_N:
    def __init__(self, x):
        self.x = x
        self.made = "made"
    def __getstate__(self):
        return {"x": self.x}
    def __setstate__(self, state):
        self.__init__(state["x"])
    def get(self):
        return self.x, self.made, INT_A
---
c_N = C_N(INT_B)
""",
        ("c_N.get()",),
        cls="C_N",
        thing="c_N",
        look="IT.get()",
    ),
    Kind(
        "class with a getattr",
        """
class C_N:
    def __init__(self, x):
        self.x = x
    def __getattr__(self, name):
        if name.startswith('__'):
            raise AttributeError(name)
        return name, vars(self).get('x')
---
c_N = C_N(INT_A)
""",
        ("c_N.anything", "c_N.x"),
        thing="c_N",
        look="(IT.any, IT.x)",
    ),
    Kind(
        "class made by type()",
        """
body_N = {'get': lambda self: ('made', self.x), 'x': INT_A, '__init__': lambda self, x: None}
C_N = type('Other', (CLASS,), body_N)
""",
        ("C_N(1).get()", "C_N.__name__"),
        cls="C_N",
    ),
    Kind(
        "class in a class",
        """
class C_N:
    class Part:
        def __init__(self, x):
            self.x = x
    def __init__(self, x):
        self.part = self.Part(x)
    def get(self):
        return self.part.x, type(self.part).__qualname__
---
c_N = C_N(INT_A)
""",
        ("c_N.get()", "type(c_N.part) is C_N.Part"),
        cls="C_N",
        thing="c_N",
        look="IT.get()",
    ),
    Kind(
        "classes that know each other",
        """
class Node_N:
    def __init__(self, x):
        self.x, self.tree = x, None
---
class Tree_N:
    root = Node_N
    def __init__(self, x):
        self.node = self.root(x)
        self.node.tree = self
    def get(self):
        return self.node.x, self.node.tree is self

Node_N.home = Tree_N
---
t_N = Tree_N(INT_A)
""",
        ("t_N.get()", "Node_N.home is Tree_N", "Tree_N.root is Node_N", "type(t_N.node) is Node_N"),
        cls="Tree_N",
        thing="t_N",
        look="IT.get()",
    ),
    Kind(
        "changed after it was made",
        f"""
class C_N:{_WITH_GET}---
c_N = C_N(INT_B)
---
def new_get_N(self):
    return 'patched', self.x, FUNCTION(1)
---
C_N.get = new_get_N
""",
        ("c_N.get()", "C_N.get is new_get_N"),
        cls="C_N",
        thing="c_N",
        look="IT.get()",
    ),
    Kind(
        "weak references",
        f"""
import weakref

class C_N:{_WITH_GET}---
c_N = C_N(INT_B)
ref_N = weakref.ref(c_N)
set_N = weakref.WeakSet([c_N])
by_name_N = weakref.WeakValueDictionary(c=c_N)
""",
        ("ref_N() is c_N", "len(set_N)", "by_name_N['c'] is c_N", "c_N in set_N"),
    ),
]
