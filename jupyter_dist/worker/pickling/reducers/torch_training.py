"""Optimizers, DataLoaders and modules of torch, with what their own pickles lack or refuse.

The pickle of an optimizer has its parameters and their state only. It lacks the attributes of a user's class,
the hooks of the optimizer, and the mark of its scheduler on `step`. A scheduler warns if the mark is missing.

With `persistent_workers=True`, a DataLoader refers to its iterator after the first loop. The iterator has
processes, which cannot be pickled. A loader without an iterator makes one at its next loop.

A parametrization, such as `spectral_norm`, gives a module a class of its own, which refuses to be pickled. A
rank makes this class again.
https://docs.pytorch.org/tutorials/intermediate/parametrizations.html
"""

from __future__ import annotations

import copyreg
import functools
import importlib
import sys
import weakref
from collections.abc import Callable
from typing import Any

from . import Note, wrapped_by_horovod

__all__ = ["patch", "reduce", "reduce_parametrized"]

_PARAMETRIZE = "torch.nn.utils.parametrize"

_OF_RANKS = 1 << 40

_ITERATOR = "_iterator"
_SCHEDULERS = "torch.optim.lr_scheduler"


def patch(hooks: Any) -> None:
    """Number the hooks that code on a rank registers apart from those of the notebook.

    An object of the notebook has its hooks under their numbers. A rank that also counts from 0 would replace
    them.
    """
    hooks.RemovableHandle.next_id = max(hooks.RemovableHandle.next_id, _OF_RANKS)


def reduce(obj: Any, note: Note) -> Any:
    for base in type(obj).__mro__:
        if base.__module__ == "horovod.torch.optimizer":
            # Its gradients would not be averaged: Horovod has registered no hook, because it saw one rank.
            raise wrapped_by_horovod()
        if base.__module__ == "torch.optim.optimizer":
            return _reduce_optimizer(obj, base)
    if getattr(obj, _ITERATOR, None) is None:
        return NotImplemented
    return _with_state(obj, lambda state: {**state, _ITERATOR: None})


def reduce_parametrized(obj: Any) -> Any:
    """Reduce a module with parametrizations. None for any other module."""
    kind = type(obj)
    if kind.__module__ != _PARAMETRIZE or not kind.__name__.startswith("Parametrized"):
        return None
    maker = sys.modules.get(_PARAMETRIZE)
    if not (hasattr(maker, "_inject_new_class") and hasattr(maker, "_inject_property")):
        return None
    original: Any = kind.__base__
    get_state = getattr(original, "__getstate__", None)
    state = dict(vars(obj)) if get_state is None else get_state(obj)
    names = [name for name, value in vars(kind).items() if isinstance(value, property)]
    return _new, (original,), (state, names), None, None, _set_parametrized


def _reduce_optimizer(obj: Any, base: Any) -> Any:
    if type(obj).__getstate__ is not base.__getstate__:
        return NotImplemented
    state = dict(vars(obj))
    step = state.get("step")
    step = getattr(step, "__func__", step)
    if getattr(step, "__globals__", {}).get("__name__") != _SCHEDULERS:
        return _with_state(obj, lambda _: state)
    # A scheduler has wrapped the method, and marked the wrapper with an attribute.
    marks = {name: value for name, value in vars(step).items() if value is True}
    del state["step"]
    parts = _with_state(obj, lambda _: (marks, state))
    return parts if parts is NotImplemented else (*parts, None, None, _set_optimizer)


def _with_state(obj: Any, change: Callable[[dict[str, Any]], Any]) -> Any:
    """Return the usual parts of a pickle with another state. NotImplemented if a class has own parts."""
    make, args, state, *rest = obj.__reduce_ex__(4)
    if make is not copyreg.__newobj__ or not isinstance(state, dict) or any(rest):  # type: ignore[attr-defined]
        return NotImplemented
    return make, args, change(state)


# A pickle calls these functions when it is loaded. Their names are part of the format.


def _new(kind: Any) -> Any:
    return kind.__new__(kind)


def _set_parametrized(module: Any, state: tuple[Any, list[str]]) -> None:
    attributes, names = state
    module.__setstate__(attributes)
    parametrize = importlib.import_module(_PARAMETRIZE)
    parametrize._inject_new_class(module)
    for name in names:
        parametrize._inject_property(module, name)


def _set_optimizer(optimizer: Any, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    marks, attributes = state
    optimizer.__setstate__(attributes)
    _mark_step(optimizer, marks)


def _mark_step(optimizer: Any, marks: dict[str, Any]) -> None:
    """Wrap the optimizer's `step`, as the constructor of a scheduler does."""
    function, of = optimizer.step.__func__, weakref.ref(optimizer)

    @functools.wraps(function)
    def step(*args: Any, **kwargs: Any) -> Any:
        it: Any = of()
        it._opt_called = True
        return function(it, *args, **kwargs)

    vars(step).update(marks)
    optimizer.step = step
