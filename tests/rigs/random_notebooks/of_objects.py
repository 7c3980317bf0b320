"""Kinds of plain objects, of objects of the standard library, and of names and what they share."""

from __future__ import annotations

import sys

from .pieces import Kind

__all__ = ["NAMES", "OBJECTS"]

_FRESH = r"fresh|anew|new one"
"""What a note says of an object that a rank has made again, without what the kernel's one held."""

OBJECTS = [
    Kind(
        "numbers and texts",
        """
a_N, b_N, c_N = INT_A, 'é\\n"', 2.5j
d_N = [float('inf'), None, ..., b'x']
""",
        ("a_N", "b_N", "c_N", "d_N", "d_N[2] is ..."),
    ),
    Kind(
        "containers",
        """
import collections
---
d_N = collections.defaultdict(list, a=[INT_A])
o_N = collections.OrderedDict(b=1, a=2)
c_N = collections.Counter('abca')
q_N = collections.deque([1, 2, 3], maxlen=INT_B + 1)
m_N = collections.ChainMap({'x': 1}, d_N)
s_N = frozenset({1, 2})
""",
        (
            "(d_N['new'], d_N)",
            "list(o_N)",
            "c_N.most_common(1)",
            "(q_N, q_N.maxlen)",
            "m_N['a'] is d_N['a']",
            "sorted(s_N)",
        ),
        thing="d_N",
        look="IT['a']",
    ),
    Kind(
        "views and proxies",
        """
import types
---
base_N = {'a': INT_A}
keys_N, proxy_N = base_N.keys(), types.MappingProxyType(base_N)
space_N = types.SimpleNamespace(a=1, base=base_N)
""",
        (
            "list(keys_N)",
            "proxy_N['a']",
            "space_N.base is base_N",
            "[base_N.update(b=2), 'b' in proxy_N, 'b' in keys_N]",
        ),
        noted=r"proxy_N|keys_N|view",
    ),
    Kind(
        "iterators",
        """
import itertools
---
count_N = itertools.count(INT_A)
next(count_N)
it_N = iter([1, 2, 3])
next(it_N)
zip_N = zip('ab', [1, 2])
""",
        ("next(count_N)", "list(it_N)", "list(zip_N)"),
        refused=sys.version_info >= (3, 14),  # which pickles nothing of itertools any more
    ),
    Kind(
        "generator",
        """
def walk_N():
    yield INT_A
    yield 2
---
gen_N = walk_N()
""",
        ("next(gen_N)",),
        refused=True,
        thing="gen_N",
        look="type(IT).__name__",
    ),
    Kind("open file", "file_N = open('/dev/null')", ("file_N.name",), refused=True),
    Kind(
        "files in memory",
        """
import io
---
text_N, bytes_N = io.StringIO('ab\\ncd'), io.BytesIO(b'xyz')
text_N.readline()
""",
        ("text_N.read()", "bytes_N.read(INT_A)"),
    ),
    Kind(
        "things of the standard library",
        """
import datetime, decimal, fractions, pathlib, re, uuid
---
made_N = [datetime.date(2020, 1, 2), decimal.Decimal('1.10'), fractions.Fraction(1, 3)]
made_N += [pathlib.Path('a') / 'b', re.compile('a+', re.I), uuid.UUID(int=INT_A)]
""",
        ("made_N", "made_N[4].findall('Aab')"),
        thing="made_N[1]",
        look="repr(IT)",
    ),
    Kind(
        "random generators of their own",
        """
import random
---
dice_N = random.Random(INT_A)
dice_N.random()
""",
        ("dice_N.random()", "dice_N.randint(1, 100)"),
        thing="dice_N",
        look="IT.random()",
    ),
    Kind(
        "functions of the module random",
        """
import random as random_N
from random import shuffle as shuffle_N, random as draw_N
---
def f_N(x):
    return shuffle_N.__self__ is random_N._inst
""",
        (
            "shuffle_N.__self__ is random_N._inst",
            "draw_N.__self__ is random_N._inst",
            "f_N(1)",
            "[random_N.seed(INT_A), draw_N()]",
        ),
    ),
    Kind(
        "operators",
        """
import operator
---
get_N = operator.itemgetter(1)
call_N = operator.methodcaller('get', 'a', INT_A)
""",
        ("get_N('abc')", "call_N({})"),
    ),
    Kind(
        "types and aliases",
        """
import typing
---
list_N = list[int]
T_N = typing.TypeVar('T_N')
maybe_N = typing.Optional[CLASS]
None_N = type(None)
Id_N = typing.NewType('Id_N', int)
""",
        (
            "str(list_N)",
            "maybe_N.__args__[0] is CLASS",
            "None_N is type(None)",
            "T_N.__name__",
            "Id_N(3)",
            "list_N.__origin__ is list",
        ),
    ),
    Kind(
        "lock",
        """
import threading
---
lock_N = threading.Lock()
---
def f_N(x):
    with lock_N:
        return x, lock_N.locked()
""",
        ("f_N(INT_A)", "lock_N.locked()", "f_N.__globals__['lock_N'] is lock_N"),
        function="f_N",
        thing="lock_N",
        look="IT.locked()",
    ),
    Kind(
        "locks in an object",
        """
import threading
---
class C_N:
    def __init__(self, x):
        self.x, self.lock = x, threading.RLock()
    def get(self):
        with self.lock:
            return self.x
---
c_N = C_N(INT_A)
same_N = c_N.lock
""",
        ("c_N.get()", "c_N.lock is same_N", "C_N(2).get()"),
        cls="C_N",
        thing="c_N",
        look="IT.get()",
    ),
    Kind(
        "lock that is held",
        """
import threading
---
lock_N = threading.Lock()
---
lock_N.acquire()
""",
        ("lock_N.locked()",),
        refused=True,
        noted=_FRESH,
    ),
    Kind(
        "synchronizers",
        """
import threading
---
event_N, gate_N = threading.Event(), threading.Condition()
room_N = threading.Semaphore(INT_A + 1)
bounded_N = threading.BoundedSemaphore(2)
barrier_N = threading.Barrier(2)
""",
        (
            "event_N.is_set()",
            "gate_N.acquire()",
            "room_N.acquire()",
            "bounded_N.acquire()",
            "barrier_N.parties",
        ),
        thing="event_N",
        look="IT.is_set()",
    ),
    Kind(
        "condition on a lock of one's own",
        """
import threading
---
lock_N = threading.Lock()
gate_N = threading.Condition(lock_N)
other_N = threading.Condition(lock_N)
""",
        ("(gate_N.acquire(), lock_N.locked(), gate_N.release())", "gate_N._lock is other_N._lock"),
    ),
    Kind(
        "event that is set",
        """
import threading
---
event_N = threading.Event()
---
event_N.set()
""",
        ("event_N.is_set()",),
        refused=True,
        noted=_FRESH,
    ),
    Kind(
        "thread-local",
        """
import threading
---
local_N = threading.local()
local_N.x = INT_A
""",
        ("getattr(local_N, 'x', None)",),
        refused=True,
        noted=_FRESH,
    ),
    Kind(
        "thread that has not run",
        """
import threading
---
thread_N = threading.Thread(target=print)
""",
        ("thread_N.is_alive()",),
        refused=True,
    ),
    Kind(
        "queues",
        """
import queue
---
q_N, p_N, s_N = queue.Queue(INT_A), queue.PriorityQueue(), queue.SimpleQueue()
---
def f_N(x):
    q_N.put(x)
    return q_N.get()
""",
        ("f_N(2)", "q_N.maxsize", "p_N.empty()", "s_N.empty()", "type(p_N).__name__"),
        thing="q_N",
        look="(IT.qsize(), IT.maxsize)",
    ),
    Kind(
        "queue with something in it",
        """
import queue
---
q_N = queue.Queue()
---
q_N.put(INT_A)
""",
        ("q_N.qsize()",),
        refused=True,
        noted=_FRESH,
    ),
    Kind(
        "things of asyncio",
        """
import asyncio
---
lock_N, event_N, queue_N = asyncio.Lock(), asyncio.Event(), asyncio.Queue(INT_A)
""",
        ("lock_N.locked()", "event_N.is_set()", "queue_N.maxsize"),
    ),
    Kind(
        "context variable",
        """
import contextvars
---
var_N = contextvars.ContextVar('var_N', default=INT_A)
---
def f_N(x):
    token = var_N.set(x)
    try:
        return var_N.get()
    finally:
        var_N.reset(token)
""",
        ("f_N(7)", "var_N.get()", "var_N.name"),
        function="f_N",
        thing="var_N",
        look="IT.get()",
    ),
    Kind(
        "context variable that was set",
        """
import contextvars
---
var_N = contextvars.ContextVar('var_N')
---
var_N.set(INT_A)
""",
        ("var_N.get('unset')",),
        refused=True,
        noted=_FRESH,
    ),
    Kind(
        "logger",
        """
import logging
---
log_N = logging.getLogger('own_N')
log_N.addHandler(logging.StreamHandler())
log_N.setLevel(logging.WARNING)
""",
        (
            "log_N is logging.getLogger('own_N')",
            "log_N.level",
            "[type(handler).__name__ for handler in log_N.handlers]",
        ),
        thing="log_N",
        look="IT.name",
    ),
    Kind(
        "handler of a logger",
        """
import logging, sys
---
handler_N = logging.StreamHandler(sys.stdout)
handler_N.setFormatter(logging.Formatter('%(message)s'))
log_N = logging.getLogger('own_N')
log_N.addHandler(handler_N)
""",
        ("handler_N in log_N.handlers", "handler_N.formatter._fmt", "handler_N.stream is sys.stdout"),
    ),
    Kind(
        "pool that has not run",
        """
from concurrent.futures import ThreadPoolExecutor
---
pool_N = ThreadPoolExecutor(2)
---
def f_N(x):
    return sum(pool_N.map(abs, [x, INT_A]))
""",
        ("f_N(-2)", "pool_N._max_workers"),
    ),
    Kind(
        "pool that has run",
        """
from concurrent.futures import ThreadPoolExecutor
---
pool_N = ThreadPoolExecutor(1)
---
pool_N.submit(abs, INT_A).result()
""",
        ("pool_N.submit(abs, -2).result()",),
        refused=True,
        noted=_FRESH,
    ),
    Kind(
        "environment",
        """
import os
from os import environ as environ_N
---
env_N = os.environ
""",
        ("env_N is os.environ", "environ_N is os.environ", "env_N.get('HOME')"),
    ),
    Kind(
        "streams",
        """
import sys
---
out_N = sys.stdout
---
def f_N(x, file=sys.stderr):
    return file is sys.stderr, out_N is sys.stdout
""",
        ("f_N(1)", "out_N is sys.stdout"),
        function="f_N",
    ),
    Kind(
        "socket",
        """
import socket
---
socket_N = socket.socket()
""",
        ("socket_N.fileno() > 0",),
        refused=True,
    ),
    Kind(
        "progress bar",
        """
from tqdm import tqdm
---
bar_N = tqdm(total=INT_A, disable=True)
""",
        ("bar_N.total",),
        needs=("tqdm",),
        noted=_FRESH,
    ),
    Kind(
        "memory",
        """
raw_N = bytearray(b'abc')
view_N = memoryview(raw_N)
""",
        ("bytes(view_N)", "[raw_N.__setitem__(0, 90), bytes(view_N)]"),
        refused=True,
        noted="view_N",
    ),
]

NAMES = [
    Kind(
        "things in a box",
        "box_N = [THING, {'x': THING}, (INT_A, FUNCTION)]",
        ("box_N[0] is THING", "box_N[1]['x'] is box_N[0]", "LOOK<box_N[1]['x']>", "box_N[2][1](INT_B)"),
        thing="box_N",
        look="(len(IT), IT[0] is IT[1]['x'])",
    ),
    Kind(
        "two names for one object",
        """
a_N = [INT_A]
---
b_N = a_N
c_N = {'a': a_N}
""",
        ("a_N is b_N", "c_N['a'] is a_N", "[b_N.append(1), a_N]"),
        thing="a_N",
        look="len(IT)",
    ),
    Kind(
        "a box in itself",
        """
box_N = [INT_A]
box_N.append(box_N)
d_N = {'box': box_N}
box_N.append(d_N)
""",
        ("box_N[1] is box_N", "box_N[2]['box'] is box_N", "len(box_N)"),
    ),
    Kind(
        "object that a function and a name share",
        """
state_N = {'n': INT_A}
---
def up_N(x, state=state_N):
    state['n'] += x
    return state_N['n']
---
hold_N = [state_N]
""",
        ("up_N(2)", "state_N['n']", "hold_N[0] is state_N"),
        function="up_N",
    ),
    Kind(
        "deleted name",
        """
gone_N = INT_A
---
del gone_N
---
def f_N(x):
    try:
        return gone_N
    except NameError:
        return 'gone', x
""",
        ("f_N(1)", "'gone_N' in globals()"),
        function="f_N",
    ),
    Kind(
        "deleted and made again",
        """
k_N = 1
---
def f_N(x):
    return k_N, x
---
del k_N
---
k_N = INT_A
""",
        ("f_N(1)", "k_N"),
        function="f_N",
    ),
    Kind(
        "names that hide builtins",
        """
def bin(x):
    return 'mine', x
filter = INT_A
---
def f_N(x):
    return bin(x), filter
""",
        ("f_N(2)", "bin(1)", "filter", "[bin(filter) for _ in 'a']"),
        function="f_N",
    ),
    Kind(
        "name that hid a builtin",
        """
ord = INT_A
---
del ord
---
def f_N(x):
    return ord('a'), x
""",
        ("f_N(2)", "ord('b')"),
        function="f_N",
    ),
    Kind(
        "function of IPython's",
        """
def f_N(x):
    try:
        return type(display).__name__ != '', x
    except NameError:
        return None
""",
        ("f_N(1)",),
        function="f_N",
    ),
    Kind(
        "bound in a branch",
        """
if INT_A > 4:
    k_N = 'large'
else:
    k_N = 'small'
---
for i_N in range(3):
    last_N = i_N
---
try:
    fast_N = __import__('no_such_N')
except ImportError:
    fast_N = None
""",
        ("k_N", "last_N", "fast_N", "i_N"),
    ),
    Kind(
        "walrus",
        """
if (n_N := INT_A + 1) > 0:
    most_N = max(m_N := i for i in [n_N, 2])
""",
        ("n_N", "most_N", "m_N"),
    ),
    Kind(
        "annotated names",
        """
k_N: int = INT_A
later_N: 'CLASS'
---
later_N = CLASS(1)
""",
        ("k_N", "later_N.get()"),
    ),
    Kind(
        "unpacked names",
        """
a_N, *b_N = range(INT_A + 2)
c_N = d_N = [INT_B]
(e_N, [f_N]) = 1, (2,)
""",
        ("a_N", "b_N", "c_N is d_N", "(e_N, f_N)"),
    ),
    Kind(
        "changed in the cell",
        """
count_N = INT_A
rows_N = []
---
count_N += 1
rows_N += [count_N]
""",
        ("count_N", "rows_N", "rows_N[0] == count_N"),
    ),
    Kind(
        "pattern matching",
        """
def f_N(x):
    match x:
        case {'k': value}:
            return value
        case [first, *_] | (first, *_):
            return first, k_N
        case int() if x > k_N:
            return 'large'
        case _:
            return 'other'
---
k_N = INT_A
""",
        ("f_N({'k': 1})", "f_N([3])", "f_N(100)", "f_N('')"),
        function="f_N",
        since=(3, 10),
    ),
]
