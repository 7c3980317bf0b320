"""Locks, queues, thread-local and context variables: each rank gets its own.

Events, conditions, semaphores, barriers and queues are ordinary objects around locks. They are sent with
their contents. An acquired lock, or one that a thread waits for, is refused, because on a rank nobody would
release it.
"""

from __future__ import annotations

import contextlib
import contextvars
import gc
import queue
import threading
import types
from collections.abc import Callable, Iterable
from typing import Any

from . import Note, Refused

__all__ = ["NOTE", "are_held", "reduce"]

NOTE = (
    "every rank makes locks, events and queues of the notebook anew: no rank shares them "
    "with another rank or with the notebook"
)


def are_held(values: Iterable[Any], is_library: Callable[[str], bool]) -> bool:
    """Return whether one of the values is a lock or the like, or holds one.

    What an object of a library holds does not count: its user may not know of it. After 1,000 objects the
    answer is yes.
    """
    wait = list(values)
    seen: set[int] = set()
    while wait and len(seen) < _MOST:
        value = wait.pop()
        kind = type(value)
        if isinstance(value, _SHARED):
            return True
        if id(value) in seen:
            continue
        seen.add(id(value))
        if kind is dict:
            wait += value.values()
        elif kind in (list, tuple, set, frozenset):
            wait += value
        elif kind is types.FunctionType:
            wait += [cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType()]
        elif not is_library(kind.__module__):
            wait += getattr(value, "__dict__", {}).values()
    return bool(wait)


_MOST = 1000


def reduce(obj: Any, note: Note) -> Any:
    if isinstance(obj, contextvars.ContextVar):
        return _reduce_context_variable(obj)
    if isinstance(obj, threading.local):
        return _reduce_local(obj)
    if isinstance(obj, threading.Condition):
        return _reduce_condition(obj)
    note(NOTE)
    if isinstance(obj, queue.SimpleQueue):
        if not obj.empty():
            raise Refused(
                f"a SimpleQueue with {obj.qsize()} items, which nobody can read without removing them",
                "Use queue.Queue(), which is sent with its items.",
            )
        return queue.SimpleQueue, ()
    if _is_held(obj):
        raise Refused(
            "a locked lock, which nobody would release on a rank",
            "Release it first, or create it inside the cell.",
        )
    return (threading.RLock if isinstance(obj, _RLOCKS) else threading.Lock), ()


_RLOCKS: tuple[Any, ...] = (type(threading.RLock()), threading._RLock)
_SHARED = (
    *(type(threading.Lock()), *_RLOCKS, threading.Condition, threading.Event, threading.Semaphore),
    *(threading.Barrier, queue.Queue, queue.SimpleQueue),
)


def _is_held(lock: Any) -> bool:
    if isinstance(lock, _RLOCKS):
        # The owner of an RLock can acquire it again, so an attempt only detects other threads.
        if lock._is_owned():
            return True
        if not lock.acquire(blocking=False):
            return True
        lock.release()
        return False
    return bool(lock.locked())


def _reduce_condition(condition: Any) -> Any:
    if condition._waiters:
        raise Refused(
            "a thread of the notebook waits for it, and threads cannot be sent",
            "Create it inside the cell, with the thread that waits for it.",
        )
    return NotImplemented


def _reduce_local(local: Any) -> Any:
    """Copy the values of this thread, usually the notebook's main one, to the rank's main thread."""
    cls = type(local)
    if cls.__init__ is object.__init__:
        return cls, (), dict(vars(local)), None, None, _fill_local
    made_with = _arguments_of_local(local)
    if made_with is None:
        raise Refused(
            f"a {cls.__name__} made with arguments of its own in every thread",
            "Create it inside the cell.",
        )
    return _local, (cls, *made_with), dict(vars(local)), None, None, _fill_local


def _arguments_of_local(local: Any) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return the arguments with which every other thread that uses the object calls its `__init__`.

    Python tells them only to the garbage collector: after the class come the positional arguments, and then
    the keywords if there are any.
    """
    held = gc.get_referents(local)
    after = held[held.index(type(local)) + 1 :] if type(local) in held else []
    if not after or type(after[0]) is not tuple:
        return None
    keywords = after[1] if len(after) > 1 and type(after[1]) is dict else {}
    return after[0], keywords if all(type(name) is str for name in keywords) else {}


def _reduce_context_variable(variable: contextvars.ContextVar[Any]) -> Any:
    defaults: dict[str, Any] = {}
    with contextlib.suppress(LookupError):
        defaults["default"] = contextvars.Context().run(variable.get)  # in a new context no value is set
    context = contextvars.copy_context()
    state = [context[variable]] if variable in context else []
    return _context_variable, (variable.name, defaults), state, None, None, _set_context_variable


# A pickle calls these functions when it is loaded. Their names are part of the format.


def _local(cls: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    return cls.__new__(cls, *args, **keywords)


def _fill_local(local: Any, values: dict[str, Any]) -> None:
    vars(local).update(values)


def _context_variable(name: str, defaults: dict[str, Any]) -> contextvars.ContextVar[Any]:
    return contextvars.ContextVar(name, **defaults)


def _set_context_variable(variable: contextvars.ContextVar[Any], values: list[Any]) -> None:
    for value in values:
        variable.set(value)
