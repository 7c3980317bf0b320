"""Locks, queues, thread-local and context variables: each rank gets its own.

Events, conditions, semaphores, barriers and queues are ordinary objects around locks. They are sent with
their contents. An acquired lock, or one that a thread waits for, is refused, because on a rank nobody would
release it.
"""

from __future__ import annotations

import contextlib
import contextvars
import queue
import threading
from typing import Any

from . import Note, Refused

__all__ = ["reduce"]

NOTE = (
    "every rank makes locks, events and queues of the notebook anew: no rank shares them "
    "with another rank or with the notebook"
)


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
    if cls.__init__ is not object.__init__:
        raise Refused(
            f"a {cls.__name__} made with arguments of its own in every thread",
            "Create it inside the cell.",
        )
    return cls, (), dict(vars(local)), None, None, _fill_local


def _reduce_context_variable(variable: contextvars.ContextVar[Any]) -> Any:
    defaults: dict[str, Any] = {}
    with contextlib.suppress(LookupError):
        defaults["default"] = contextvars.Context().run(variable.get)  # in a new context no value is set
    context = contextvars.copy_context()
    state = [context[variable]] if variable in context else []
    return _context_variable, (variable.name, defaults), state, None, None, _set_context_variable


# A pickle calls these functions when it is loaded. Their names are part of the format.


def _fill_local(local: Any, values: dict[str, Any]) -> None:
    vars(local).update(values)


def _context_variable(name: str, defaults: dict[str, Any]) -> contextvars.ContextVar[Any]:
    return contextvars.ContextVar(name, **defaults)


def _set_context_variable(variable: contextvars.ContextVar[Any], values: list[Any]) -> None:
    for value in values:
        variable.set(value)
