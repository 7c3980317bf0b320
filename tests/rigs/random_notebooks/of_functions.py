"""Kinds of functions: where they find their names, what wraps them, what they keep."""

from __future__ import annotations

from .pieces import Kind

__all__ = ["FUNCTIONS"]

# Its count in the kernel begins anew on a rank, as docs/capture.md says; there it must count as well.
_COUNTED = """
import functools

calls = 0
seen = []

def counted(function):
    @functools.wraps(function)
    def counting(*args):
        global calls
        calls += 1
        seen.append(function.__name__)
        return function(*args)
    return counting

def how_many():
    return calls
"""

FUNCTIONS = [
    Kind(
        "function",
        """
def f_N(x):
    return x + INT_A
""",
        ("f_N(2)", "f_N.__name__", "f_N.__module__"),
        function="f_N",
    ),
    Kind(
        "function of another",
        """
def f_N(x):
    return FUNCTION(x), INT_A
""",
        ("f_N(3)",),
        function="f_N",
    ),
    Kind("lambda", "f_N = lambda x, y=INT_A: (x, y)", ("f_N(1)", "f_N.__defaults__"), function="f_N"),
    Kind(
        "global of an earlier cell",
        """
k_N = INT_A
---
def f_N(x):
    return x * k_N
---
k_N = INT_B
""",
        ("f_N(2)", "k_N", "f_N.__globals__ is globals()"),
        function="f_N",
    ),
    Kind(
        "global statement",
        """
n_N = INT_A
---
def f_N(x=1):
    global n_N
    n_N += x
    return n_N
---
f_N()
""",
        ("f_N(2)", "n_N", "(f_N(), n_N)"),
        function="f_N",
    ),
    Kind(
        "global that another cell's function sets",
        """
def set_N(x):
    global n_N
    n_N = x
---
def get_N():
    return n_N
---
set_N(INT_A)
""",
        ("get_N()", "(set_N(7), get_N(), n_N)"),
    ),
    Kind(
        "closure",
        """
def make_N(k):
    def add(x):
        return x + k
    return add
---
f_N = make_N(INT_A)
""",
        ("f_N(2)", "f_N.__qualname__", "make_N(5)(1)"),
        function="f_N",
    ),
    Kind(
        "closure with a state",
        """
def make_N():
    count = INT_A
    def add():
        nonlocal count
        count += 1
        return count
    def get():
        return count
    return add, get
---
add_N, get_N = make_N()
---
add_N()
""",
        ("get_N()", "(add_N(), add_N(), get_N())"),
    ),
    Kind(
        "closure over a thing",
        """
def make_N(thing):
    return lambda: thing
---
f_N = make_N(THING)
""",
        ("f_N() is THING", "LOOK<f_N()>"),
    ),
    Kind(
        "functions that call each other",
        """
def even_N(n):
    return True if n == 0 else odd_N(n - 1)
---
def odd_N(n):
    return False if n == 0 else even_N(n - 1)
""",
        ("even_N(INT_A)", "odd_N(4)", "[even_N(i) for i in range(3)]"),
        function="even_N",
    ),
    Kind(
        "recursion within a closure",
        """
def f_N(x):
    def down(n):
        return [n] + (down(n - 1) if n else [])
    return down(x % 5)
""",
        ("f_N(INT_A)",),
        function="f_N",
    ),
    Kind(
        "mutable default",
        """
def f_N(x, seen=[]):
    seen.append(x)
    return list(seen)
---
f_N(INT_A)
""",
        ("f_N(1)", "f_N(2)", "f_N.__defaults__"),
        function="f_N",
    ),
    Kind(
        "default that is a thing",
        """
def f_N(*, thing=THING):
    return thing
""",
        ("f_N() is THING", "LOOK<f_N()>"),
    ),
    Kind(
        "default made by a function",
        """
def f_N(x, y=FUNCTION(INT_A), *, z=INT_B):
    return x, y, z
""",
        ("f_N(0)", "f_N.__kwdefaults__"),
        function="f_N",
    ),
    Kind(
        "attributes of a function",
        """
def f_N(x):
    f_N.calls += 1
    return x, f_N.calls

f_N.calls = INT_A
---
f_N(0)
""",
        ("f_N.calls", "f_N(3)", "f_N.calls"),
        function="f_N",
    ),
    Kind(
        "annotations",
        """
def f_N(x: int, y: 'CLASS | None' = None) -> list[CLASS]:
    z: int = x
    return z
""",
        (
            "f_N(2)",
            "__import__('typing').get_type_hints(f_N)['return'].__args__[0] is CLASS",
            "f_N.__annotations__['y']",
        ),
        function="f_N",
        since=(3, 10),
    ),
    Kind(
        "annotations that stay text",
        """
from __future__ import annotations

def f_N(x: NoSuch) -> int:
    return x
---
import typing
""",
        ("f_N(2)", "f_N.__annotations__"),
        function="f_N",
        alone=True,
    ),
    Kind(
        "generator function",
        """
def f_N(x):
    for i in range(x % 4):
        yield i, INT_A
""",
        ("list(f_N(3))", "next(f_N(1))"),
    ),
    Kind(
        "coroutine function",
        """
async def f_N(x):
    return FUNCTION(x), INT_A

def drive_N(coroutine):
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
""",
        ("drive_N(f_N(2))", "f_N.__code__.co_flags"),
    ),
    Kind(
        "comprehension scopes",
        """
k_N = INT_A
rows_N = [[k_N + i * j for j in range(3)] for i in range(2)]
---
def f_N(x):
    return {i: [k_N, x, len(rows_N)] for i in range(2) if any(k_N == k_N for _ in rows_N)}
""",
        ("f_N(2)", "rows_N", "[k_N for _ in rows_N]"),
        function="f_N",
    ),
    Kind(
        "functions in a table",
        """
table_N = {}
---
for i_N in range(3):
    table_N[i_N] = lambda x, i=i_N: (x, i, i_N)
""",
        ("[table_N[i](2) for i in table_N]", "i_N"),
    ),
    Kind(
        "registry filled by a decorator",
        """
rules_N = {}

def rule_N(function):
    rules_N[function.__name__] = function
    return function
---
@rule_N
def f_N(x):
    return sorted(rules_N), x
""",
        ("f_N(1)", "rules_N['f_N'] is f_N", "rules_N['f_N'](2)"),
        function="f_N",
    ),
    Kind(
        "decorator of the notebook's own",
        """
import functools

def twice_N(function):
    @functools.wraps(function)
    def wrapper(x):
        return function(x), function(x)
    return wrapper
---
@twice_N
def f_N(x):
    "Says it."
    return x + INT_A
""",
        ("f_N(2)", "f_N.__doc__", "f_N.__name__", "f_N.__wrapped__(1)"),
        function="f_N",
    ),
    Kind(
        "decorator from a module beside the notebook",
        """
import counted_N
---
@counted_N.counted
def f_N(x):
    return x + INT_A
""",
        (
            "f_N(2)",
            "counted_N.how_many() == counted_N.calls > 0",
            "counted_N.seen",
            "f_N.__globals__ is vars(counted_N)",
        ),
        {"counted_N.py": _COUNTED},
        function="f_N",
    ),
    Kind(
        "decorator imported by its name",
        """
from counted_N import counted as counted_it_N, how_many as many_N
---
@counted_it_N
def f_N(x):
    return FUNCTION(x)
""",
        ("f_N(2)", "many_N() > 0", "f_N.__globals__ is many_N.__globals__"),
        {"counted_N.py": _COUNTED},
        function="f_N",
    ),
    Kind(
        "decorator from a package beside the notebook",
        """
from tools_N.wrapping import counted as counted_it_N
import tools_N.wrapping
---
@counted_it_N
def f_N(x):
    return x, INT_A
---
old_N = f_N
""",
        ("f_N(2)", "tools_N.wrapping.calls > 0", "old_N is f_N", "f_N.__globals__ is vars(tools_N.wrapping)"),
        {"tools_N/__init__.py": "", "tools_N/wrapping.py": _COUNTED},
        function="f_N",
    ),
    Kind(
        "decorated method",
        """
import counted_N
---
class C_N:
    def __init__(self, x):
        self.x = x
    @counted_N.counted
    def get(self):
        return self.x, INT_A
""",
        ("C_N(2).get()", "counted_N.calls > 0", "C_N.get.__globals__ is vars(counted_N)"),
        {"counted_N.py": _COUNTED},
        cls="C_N",
    ),
    Kind(
        "contextmanager",
        """
import contextlib

@contextlib.contextmanager
def open_N(x):
    yield x, INT_A

def f_N(x):
    with open_N(x) as found:
        return found
""",
        ("f_N(2)", "open_N.__globals__ is vars(contextlib)"),
        function="f_N",
    ),
    Kind(
        "partial",
        """
import functools
---
def g_N(k, x):
    return k, FUNCTION(x)
---
f_N = functools.partial(g_N, INT_A)
""",
        ("f_N(2)", "f_N.func is g_N", "f_N.args"),
        function="f_N",
    ),
    Kind(
        "singledispatch",
        """
import functools

@functools.singledispatch
def f_N(x):
    return "any", str(x)
---
@f_N.register
def _(x: int):
    return "int", x + INT_A
---
@f_N.register(list)
def _(x):
    return "list", len(x)
""",
        ("f_N(2)", "f_N([1])", "f_N('s')", "sorted(kind.__name__ for kind in f_N.registry)"),
        function="f_N",
    ),
    Kind(
        "singledispatch over a class of the notebook",
        """
import functools

@functools.singledispatch
def f_N(x):
    return "any", x
---
f_N.register(CLASS, lambda x: ("ours", x.get()))
""",
        ("f_N(2)", "f_N(CLASS(INT_A))"),
        function="f_N",
    ),
    Kind(
        "lru_cache",
        """
import functools
---
@functools.lru_cache(maxsize=INT_A + 1)
def f_N(x):
    return FUNCTION(x)
""",
        ("f_N(2)", "f_N.cache_parameters()", "f_N(2) == f_N.__wrapped__(2)"),
        function="f_N",
    ),
    Kind(
        "cache under a decorator",
        """
import counted_N, functools
---
@counted_N.counted
@functools.cache
def f_N(x):
    return x + INT_A
""",
        ("f_N(2)", "f_N(2)", "counted_N.calls > 1", "f_N.__wrapped__.cache_info().hits"),
        {"counted_N.py": _COUNTED},
        function="f_N",
    ),
    Kind(
        "bound method",
        """
thing_N = CLASS(INT_A)
---
get_N = thing_N.get
""",
        ("get_N()", "get_N.__self__ is thing_N"),
    ),
    Kind(
        "methods of builtins",
        """
list_N = [INT_A]
add_N = list_N.append
upper_N = 'ab'.upper
""",
        ("(add_N(2), list_N)", "upper_N()", "add_N.__self__ is list_N"),
    ),
    Kind(
        "two names for one function",
        """
def f_N(x):
    return x - INT_A
---
g_N = f_N
both_N = (f_N, g_N)
""",
        ("f_N is g_N", "both_N[0] is f_N", "g_N(1)"),
        function="g_N",
    ),
    Kind(
        "redefined function",
        """
def f_N(x):
    return 'old', x
---
old_N = f_N
---
def f_N(x):
    return 'new', old_N(x)
""",
        ("f_N(INT_A)", "old_N(1)"),
        function="f_N",
    ),
    Kind(
        "exec and eval",
        """
space_N = {}
exec('def g(x): return x + INT_A', space_N)
f_N = space_N['g']
""",
        ("f_N(2)",),
        function="f_N",
        one_python=True,
    ),
    Kind(
        "nested functions that read globals",
        """
k_N = INT_A
---
def f_N(x):
    class Inner:
        y = k_N
        def get(self):
            def deeper():
                return [k_N + self.y for _ in range(2)]
            return deeper()
    return Inner().get(), x
""",
        ("f_N(1)",),
        function="f_N",
    ),
]
