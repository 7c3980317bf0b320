"""Record of the tensors that this rank has submitted to Horovod, by name. Horovod matches them by name."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from ..patching import wrap_copies
from ..rank import calls, collectives

__all__ = ["patch"]

_open: dict[int, calls.Call] = {}
"""The submissions that nobody has waited for, by Horovod's handle."""


def patch(module: ModuleType) -> None:
    """Record the submissions of horovod.torch. `module`: horovod.torch.mpi_ops."""
    for name in vars(module).copy():
        function = getattr(module, name)
        if _operation(name) and not name.startswith("_") and inspect.isfunction(function):
            wrap_copies(module, name, _submitting)
    wrap_copies(module, "synchronize", _synchronizing)
    wrap_copies(module, "init", _opening)
    for name in ("barrier", "join"):
        if hasattr(module, name):
            wrap_copies(module, name, _waiting)


def _submitting(original: Callable[..., Any]) -> Callable[..., Any]:
    operation = _operation(original.__name__)
    signature = inspect.signature(original)

    def submit(*args: Any, **options: Any) -> Any:
        handle = original(*args, **options)
        with contextlib.suppress(Exception):  # the record only explains a failure
            given = signature.bind(*args, **options).arguments
            process_set = given.get("process_set")
            if process_set is None or process_set.process_set_id == 0:  # others have fewer ranks
                _record(operation, handle, given)
        return handle

    return submit


def _operation(name: str) -> str:
    """Return the operation that a function submits, such as `allreduce`. Empty for other functions."""
    *words, last = name.removesuffix("_").split("_")
    return words[-1] if words and last == "async" else ""


def _record(operation: str, handle: Any, given: Mapping[str, Any]) -> None:
    name = given.get("name")
    tensors = given.get("tensors", (given.get("tensor"),))
    shown = f'{operation} "{name}"' if name else f"{operation} without a name"
    # Horovod itself uses the handle as the name of a tensor without one.
    group = f"{calls.HOROVOD}{operation}.{name or f'noname.{handle}'}"
    call = calls.begin(group, shown, tensors, given.get("root_rank"))
    if isinstance(handle, int):
        _open[handle] = call
    else:  # a sparse tensor is submitted in parts
        call.done = True


def _synchronizing(original: Callable[..., Any]) -> Callable[..., Any]:
    def synchronize(handle: Any) -> Any:
        result = original(handle)
        call = _open.pop(handle, None) if isinstance(handle, int) else None
        if call is not None:
            call.done = True
        return result

    return synchronize


def _waiting(original: Callable[..., Any]) -> Callable[..., Any]:
    name = original.__name__

    def wait(*args: Any, **options: Any) -> Any:
        if args or options:  # of some ranks, or with a device that only Horovod can check
            return original(*args, **options)
        with calls.waiting(f"{calls.HOROVOD}{name}", f"hvd.{name}()"):
            return original()

    return wait


def _opening(original: Callable[..., Any]) -> Callable[..., Any]:
    def init(*args: Any, **options: Any) -> Any:
        calls.forget(calls.HOROVOD)  # ranks that have joined an elastic run count from here
        _open.clear()
        collectives.begin()
        return original(*args, **options)

    return init
