"""What has come of Keras from the notebook: its variables are made late, and in the cell's own strategy.

Late, because the first variable starts TensorFlow, and before that a cell may still choose devices, or make a
MultiWorkerMirroredStrategy. In the strategy, because a model has to be made in the scope of the strategy that
is to train it: one that was made before would be trained by each rank alone, in silence. So what came is
given over to the first strategy whose scope is entered, with the same values.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from .. import foreign_names, pickling
from ..patching import wrap
from ..tf_config import task

__all__ = ["add", "expect_strategy", "patch", "patch_collective", "start_tensorflow", "wait"]

_waiting: list[Callable[[], Any]] = []
_values: dict[int, tuple[Any, Any]] = {}
"""`id` of a variable → itself and its value, until TensorFlow's variable is made."""
_expected = False
_kept: list[Any] = []


def add(obj: Any) -> None:
    """Remember an optimizer or a model, if it is one."""
    values = vars(obj)
    if hasattr(obj, "_var_key"):
        import tensorflow as tf

        values["_distribution_strategy"] = tf.distribute.get_strategy()
        # Keyed by what is not made yet; only how many there are is known.
        values["_trainable_variables_indices"] = {i: i for i, _ in enumerate(values["_trainable_variables"])}
        if not pickling.on_rank():
            _key(obj)
    if pickling.on_rank() and (hasattr(obj, "_var_key") or "_distribute_strategy" in values):
        _remember(obj)


def wait(variable: Any, value: Any) -> None:
    """Give a Keras variable its value when that is first asked for, or when a strategy takes it."""
    if not pickling.on_rank():
        variable._initialize(value)
        return
    from keras.src.backend.tensorflow.core import Variable

    if Variable.__dict__.get("__getattr__") is None:
        Variable.__getattr__ = _first_use
    _values[id(variable)] = variable, value
    _remember(variable)


def _remember(obj: Any) -> None:
    if task().is_of_several:
        foreign_names.raise_kept_back("tensorflow")  # else each rank would train it alone
        # All ranks have to move the same, whatever garbage each has collected: to make them is collective.
        _waiting.append(lambda: obj)
    else:
        _waiting.append(weakref.ref(obj))


def _first_use(variable: Any, name: str) -> Any:
    if name != "_value" or id(variable) not in _values:
        raise AttributeError(f"{type(variable).__name__!r} object has no attribute {name!r}")
    import tensorflow as tf

    with tf.init_scope():
        for waiting, value in _settle():
            waiting._initialize(value)
    for obj in _alive():
        _key(obj)
    return vars(variable)["_value"]


def _settle() -> list[tuple[Any, Any]]:
    found = list(_values.values())
    _values.clear()
    return found


def _alive() -> list[Any]:
    return [obj for obj in (reference() for reference in _waiting) if obj is not None]


def _key(obj: Any) -> None:
    if hasattr(obj, "_var_key"):
        known = {obj._var_key(variable): i for i, variable in enumerate(obj._trainable_variables)}
        vars(obj)["_trainable_variables_indices"] = known


def expect_strategy() -> None:
    """Tell that the cell makes a strategy that spans ranks, which TensorFlow wants before all else."""
    global _expected
    _expected = True


def start_tensorflow() -> None:
    """Before something of the notebook's starts TensorFlow: connect the workers, if the cell wants that.

    TensorFlow does so for the first MultiWorkerMirroredStrategy, and only at its start. To connect them again
    for the cell's own one would wait for ever, so that is left out.
    """
    global _expected
    here = task()
    if not _expected or here.count("ps") or here.trainers < 2 or here.type == "evaluator":
        return
    _expected = False
    import tensorflow as tf
    from tensorflow.python.eager import context

    running = context.context()
    enable, connected = running.enable_collective_ops, set[Any]()

    def enable_collective_ops(server: Any) -> None:
        place = server.cluster.SerializeToString(), server.job_name, server.task_index
        if place not in connected:
            connected.add(place)
            enable(server)

    running.enable_collective_ops = enable_collective_ops
    arrived, _waiting[:] = list(_waiting), []
    _kept.append(tf.distribute.MultiWorkerMirroredStrategy())
    _waiting[:] = arrived


def patch(distribute_lib: Any) -> None:
    """Patch `tensorflow.python.distribute.distribute_lib`: what waits moves into a scope. Repeatable."""

    def moving(scope: Any) -> Any:
        def entered(self: Any) -> Any:
            if _spans_ranks(self):
                foreign_names.raise_kept_back()
            if _waiting:
                found = _alive()
                _waiting.clear()  # making variables enters the scope again
                _move(found, self, scope)
            return scope(self)

        return entered

    wrap(distribute_lib.StrategyBase, "scope", moving)


def patch_collective(strategies: Any) -> None:
    """Patch `tensorflow.python.distribute.collective_all_reduce_strategy`. Repeatable.

    Who makes such a strategy trains with all ranks, so what waits moves there at once.
    """

    def entering(init: Any) -> Any:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            init(self, *args, **kwargs)
            self.scope()

        return __init__

    wrap(strategies.CollectiveAllReduceStrategy, "__init__", entering)


def _spans_ranks(strategy: Any) -> bool:
    import tensorflow as tf

    kinds = (tf.distribute.MultiWorkerMirroredStrategy, tf.distribute.ParameterServerStrategy)
    return task().is_of_several and isinstance(strategy, kinds)


def _move(found: list[Any], strategy: Any, scope: Any) -> None:
    import tensorflow as tf

    spans = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    values = {id(variable): value for variable, value in _settle()}
    with tf.init_scope(), scope(strategy):
        for variable in (obj for obj in found if hasattr(obj, "_deferred_initialize")):
            value = values[id(variable)] if id(variable) in values else variable._value.numpy()
            if spans and variable.name.startswith("moving_"):
                variable._aggregation = "mean"
            if variable.synchronization == "on_read":
                variable._initialize(value * 0)
                variable.assign(value)  # divided among the replicas, which are summed up when it is read
            else:
                variable._initialize(value)
    for obj in found:
        for name in {"_distribute_strategy", "_distribution_strategy"} & vars(obj).keys():
            vars(obj)[name] = strategy
        _key(obj)
