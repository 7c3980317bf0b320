"""Record of the functions of TensorFlow in which all workers take part, such as a batch of Keras.

Their collectives are in a graph, which Python does not see. MultiWorkerMirroredStrategy builds such a graph:
the function calls `strategy.run` while TensorFlow traces it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..hints import world_size
from ..patching import wrap
from ..rank import calls, collectives
from ..tf_config import task

__all__ = ["patch"]

_KERAS = ("keras.", "tf_keras.")
"""Modules of the functions that run a batch. Their names say nothing to a user."""
_ENDS = ("OutOfRangeError", "StopIteration")
"""Errors at the end of a dataset of unknown length. The call waits for nobody."""
_MARK = "_jupyter_dist_spans"
"""The attribute of a function in which all workers take part."""
_strategies: weakref.WeakSet[Any] = weakref.WeakSet()
"""The strategies of this rank that span all ranks."""


class _Outer(threading.local):
    """The function that this thread calls, and the record of this call if all workers take part."""

    function: Any = None
    call: calls.Call | None = None


_outer = _Outer()


def patch(module: ModuleType) -> None:
    """Begin to record when the rank makes a strategy that spans all ranks.

    `module`: tensorflow.python.distribute.collective_all_reduce_strategy.
    """
    wrap(module.CollectiveAllReduceStrategy, "__init__", _made)


def _made(original: Callable[..., Any]) -> Callable[..., Any]:
    def __init__(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        if task().trainers == world_size() > 1:
            from tensorflow.python.distribute import distribute_lib
            from tensorflow.python.eager.polymorphic_function import polymorphic_function

            _strategies.add(self)
            wrap(polymorphic_function.Function, "__call__", _called)
            wrap(distribute_lib.StrategyBase, "run", _ran)
            collectives.begin()

    return __init__


def _called(original: Callable[..., Any]) -> Callable[..., Any]:
    def __call__(self: Any, *args: Any, **options: Any) -> Any:
        if _outer.function is not None:
            return original(self, *args, **options)
        _outer.function = self
        if getattr(self, _MARK, False):
            _outer.call = _begin(self)
        try:
            result = original(self, *args, **options)
            if _outer.call is not None:
                _outer.call.done = True
            return result
        except Exception as error:
            if _outer.call is not None and type(error).__name__ in _ENDS:
                _outer.call.done = True
            raise
        finally:
            _outer.function = _outer.call = None

    return __call__


def _ran(original: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, *args: Any, **options: Any) -> Any:
        if _outer.function is not None and _outer.call is None and self in _strategies:
            setattr(_outer.function, _MARK, True)
            _outer.call = _begin(_outer.function)
        return original(self, *args, **options)

    return run


def _begin(function: Any) -> calls.Call:
    code = function.python_function
    if str(getattr(code, "__module__", "")).startswith(_KERAS):
        call = calls.begin(f"{calls.TENSORFLOW}Keras", "")
        call.operation = f"batch {call.number} of Keras"
    else:
        name = getattr(code, "__name__", "a function")
        call = calls.begin(f"{calls.TENSORFLOW}{name}", "")
        call.operation = f"call {call.number} of {name}()"
    return call
