"""What has come from the notebook of Keras: it moves into the strategy that the cell makes.

A model must be made in the scope of the strategy that is to train it. One of an earlier cell is made before
there is a strategy, and would be trained by each rank alone, in silence. So it is given over to the first
strategy whose scope is entered: its variables are made anew there, with the same values.
"""

from __future__ import annotations

import weakref
from typing import Any

__all__ = ["add", "key", "patch"]

_waiting: list[weakref.ref[Any]] = []


def add(obj: Any) -> None:
    """Remember a variable, an optimizer or a model, if it is one."""
    values = vars(obj)
    if "_value" in values or "_distribute_strategy" in values or hasattr(obj, "_var_key"):
        _waiting.append(weakref.ref(obj))


def key(optimizer: Any) -> None:
    """Let an optimizer know its variables again: its table of them is keyed by what TensorFlow made."""
    import tensorflow as tf

    values = vars(optimizer)
    values.setdefault("_distribution_strategy", tf.distribute.get_strategy())
    values["_trainable_variables_indices"] = {
        optimizer._var_key(variable): i for i, variable in enumerate(values.get("_trainable_variables", ()))
    }


def patch(distribute_lib: Any) -> None:
    """Patch `tensorflow.python.distribute.distribute_lib`. Repeatable."""
    scope = distribute_lib.StrategyBase.scope
    if getattr(scope, "_jupyter_dist", False):
        return

    def entered(self: Any) -> Any:
        if _waiting:
            found = [obj for obj in (reference() for reference in _waiting) if obj is not None]
            _waiting.clear()  # making variables enters the scope again
            _move(found, self, scope)
        return scope(self)

    entered._jupyter_dist = True  # type: ignore[attr-defined]
    distribute_lib.StrategyBase.scope = entered


def _move(found: list[Any], strategy: Any, scope: Any) -> None:
    import tensorflow as tf

    spans = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    with tf.init_scope(), scope(strategy):
        for variable in (obj for obj in found if vars(obj).get("_value") is not None):
            value = variable._value.numpy()
            if spans and variable.name.startswith("moving_"):
                variable._aggregation = "mean"
            if variable.synchronization == "on_read":
                variable._initialize(tf.zeros_like(value))
                variable.assign(value)  # divided among the replicas, where it is summed up when it is read
            else:
                variable._initialize(value)
    for obj in found:
        values = vars(obj)
        if "_distribute_strategy" in values:
            values["_distribute_strategy"] = strategy
        if hasattr(obj, "_var_key"):
            values["_distribution_strategy"] = strategy
            key(obj)
