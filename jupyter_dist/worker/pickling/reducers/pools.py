"""Pools, futures, threads and processes: idle pools are rebuilt, and work in progress is refused.

A proxy of `multiprocessing.Manager()` connects to the manager's process again, on this machine.
"""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import socket
import subprocess
import sys
import threading
from typing import Any

from . import Note, Refused

__all__ = ["reduce"]

NOTE = "every rank makes pools of the notebook anew, with workers of its own"


def reduce(obj: Any, note: Note) -> Any:
    if isinstance(obj, concurrent.futures.Future):
        return _reduce_future(obj)
    if isinstance(obj, threading.Thread):
        return _reduce_thread(obj)
    if isinstance(obj, subprocess.Popen):
        raise Refused(
            f"a process of the notebook (pid {obj.pid}), which is not a child of a rank",
            "Start it inside the cell.",
        )
    managers = sys.modules.get("multiprocessing.managers")
    if managers is not None and isinstance(obj, managers.BaseProxy):
        return _reduce_proxy(obj)
    if managers is not None and isinstance(obj, managers.BaseManager):
        raise Refused(
            f"a {type(obj).__name__}, whose process belongs to the notebook",
            "Use the dicts, lists and queues that it has made, or create it inside the cell.",
        )
    own = vars(obj)
    if type(obj) is concurrent.futures.ThreadPoolExecutor:
        made_of = [own["_max_workers"], own["_thread_name_prefix"], *_initializer(own)]
        over = own["_shutdown"]
        working = not own["_work_queue"].empty() or own["_idle_semaphore"]._value < len(own["_threads"])
        busy = any(thread.is_alive() for thread in own["_threads"]) if over else working
    elif type(obj) is concurrent.futures.ProcessPoolExecutor:
        made_of = [own["_max_workers"], own["_mp_context"], own["_initializer"], own["_initargs"]]
        over, busy = own["_shutdown_thread"], bool(own["_pending_work_items"])
    else:
        return NotImplemented
    if busy:
        raise Refused(
            f"a {type(obj).__name__} with work under way",
            "Wait for its results first, or create it inside the cell.",
        )
    note(NOTE)
    further = {"max_tasks_per_child": own["_max_tasks_per_child"]} if own.get("_max_tasks_per_child") else {}
    return _pool, (type(obj), made_of, further, over)


def _initializer(pool: dict[str, Any]) -> tuple[Any, Any]:
    """Return the function that the workers of a thread pool call first, and its arguments."""
    if "_initializer" in pool:
        return pool["_initializer"], pool["_initargs"]
    context = pool["_create_worker_context"]()  # Python 3.14: the context of one worker
    return context.initializer, context.initargs


def _reduce_future(future: Any) -> Any:
    if not future.done():
        raise Refused(
            "a Future whose result is not there yet", "Wait for its result, and use that in the cell instead."
        )
    return NotImplemented


def _reduce_thread(thread: threading.Thread) -> Any:
    if thread.is_alive():
        raise Refused(f"the thread {thread.name!r}, which runs in the notebook", "Start it inside the cell.")
    if thread.ident is not None:
        raise Refused(f"the thread {thread.name!r}, which has ended", "Leave it out of the cell.")
    made_of = (thread._target, thread.name, thread._args, thread._kwargs)  # type: ignore[attr-defined]
    if type(thread) is not threading.Thread:
        return NotImplemented
    return _thread, (*made_of, thread.daemon)


def _reduce_proxy(proxy: Any) -> Any:
    rebuild, made_of = proxy.__reduce__()
    address = made_of[1].address
    if not isinstance(address, str):
        raise Refused(
            f"a proxy of a manager at {address}, whose key jupyter-dist does not send over a network",
            "Connect to the manager inside the cell.",
        )
    # Without the key the manager's process refuses the rank. Only processes of this user can use it.
    return _proxy, (bytes(multiprocessing.current_process().authkey), rebuild, made_of)


# A pickle calls these functions when it is loaded. Their names are part of the format.


def _pool(cls: Any, made_of: list[Any], further: dict[str, Any], over: bool) -> Any:
    pool = cls(*made_of, **further)
    if over:
        pool.shutdown()
    return pool


def _thread(target: Any, name: str, args: Any, kwargs: Any, daemon: bool) -> threading.Thread:
    return threading.Thread(None, target, name, args, kwargs, daemon=daemon)


def _proxy(key: bytes, rebuild: Any, made_of: tuple[Any, ...]) -> Any:
    multiprocessing.current_process().authkey = key  # the proxies inside of a list or a dict need it, too
    try:
        return rebuild(*made_of)
    except (OSError, EOFError, multiprocessing.AuthenticationError) as error:
        host = socket.gethostname()
        raise ConnectionError(
            f"this rank on {host} cannot connect to the notebook's multiprocessing.Manager(): "
            f"{type(error).__name__}: {error}. The manager accepts processes of its own machine for as long "
            "as it runs. Create the manager inside the cell, or return the values from the cell."
        ) from error
