"""Optimizers and DataLoaders of torch, with the attributes that their own pickles lack or refuse.

The pickle of an optimizer has its parameters and their state only. It lacks the attributes of a user's class,
the hooks of the optimizer, and the mark of its scheduler on `step`. A scheduler warns if the mark is missing.

With `persistent_workers=True`, a DataLoader refers to its iterator after the first loop. The iterator has
processes, which cannot be pickled. A loader without an iterator makes one at its next loop.
"""

from __future__ import annotations

import copyreg
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from . import Note

__all__ = ["reduce"]

_ITERATOR = "_iterator"
_MARKS = ("_wrapped_by_lr_sched", "_with_counter")
"""Attributes of a `step` that a scheduler has wrapped. PyTorch before 2.4 sets the second one."""


def reduce(obj: Any, note: Note) -> Any:
    for base in type(obj).__mro__:
        if base.__module__ == "torch.optim.optimizer":
            return _reduce_optimizer(obj, base)
    if getattr(obj, _ITERATOR, None) is None:
        return NotImplemented
    return _with_state(obj, lambda state: {**state, _ITERATOR: None})


def _reduce_optimizer(obj: Any, base: Any) -> Any:
    if type(obj).__getstate__ is not base.__getstate__:
        return NotImplemented
    state = dict(vars(obj))
    step = state.get("step")
    marks = [mark for mark in _MARKS if hasattr(step, mark)]
    if not marks:
        return _with_state(obj, lambda _: state)
    del state["step"]
    parts = _with_state(obj, lambda _: (marks, state))
    return parts if parts is NotImplemented else (*parts, None, None, _set_optimizer)


def _with_state(obj: Any, change: Callable[[dict[str, Any]], Any]) -> Any:
    """Return the usual parts of a pickle with another state. NotImplemented if a class has parts of its own."""
    make, args, state, *rest = obj.__reduce_ex__(4)
    if make is not copyreg.__newobj__ or not isinstance(state, dict) or any(rest):  # type: ignore[attr-defined]
        return NotImplemented
    return make, args, change(state)


# A pickle calls this function when it is loaded. Its name is part of the format.


def _set_optimizer(optimizer: Any, state: tuple[Sequence[str], dict[str, Any]]) -> None:
    marks, attributes = state
    optimizer.__setstate__(attributes)
    _mark_step(optimizer, marks)


def _mark_step(optimizer: Any, marks: Sequence[str]) -> None:
    """Wrap the optimizer's `step`, as the constructor of a scheduler does."""
    function, of = optimizer.step.__func__, weakref.ref(optimizer)

    @functools.wraps(function)
    def step(*args: Any, **kwargs: Any) -> Any:
        it = of()
        if "_with_counter" in marks:
            it._step_count += 1
        else:
            it._opt_called = True
        return function(it, *args, **kwargs)

    for mark in marks:
        setattr(step, mark, True)
    optimizer.step = step
