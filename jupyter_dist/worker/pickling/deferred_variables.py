"""Deferred creation of Keras variables from the notebook, within the cell's own strategy.

The variables are made late, because the first variable starts TensorFlow. Before that, a cell may still
choose devices, or make a MultiWorkerMirroredStrategy. The variables are made in the strategy, because a model
belongs to the scope in which it is made. Otherwise each rank would silently train the model alone. So objects
of the notebook move, with the same values, to the first strategy whose scope is entered.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any

from .. import foreign_names, pickling
from ..patching import wrap
from ..tf_config import task

__all__ = ["add", "expect_strategy", "key", "patch", "patch_collective", "start_tensorflow", "wait"]

_waiting: list[Callable[[], Any]] = []
_values: dict[int, tuple[Any, Any]] = {}
"""`id` of a variable → the variable and its value, until TensorFlow's variable is made."""
_expected = False
_cpus = 1
_kept: list[Any] = []


def add(obj: Any) -> None:
    """Remember an optimizer or a model; ignore other objects."""
    values = vars(obj)
    if hasattr(obj, "_var_key"):
        import tensorflow as tf

        values["_distribution_strategy"] = tf.distribute.get_strategy()
        # Keras uses the missing variables as keys. Until they exist, each index is its own key.
        values["_trainable_variables_indices"] = {i: i for i, _ in enumerate(values["_trainable_variables"])}
        if not pickling.on_rank():
            key(obj)
    if pickling.on_rank() and (hasattr(obj, "_var_key") or "_distribute_strategy" in values):
        _remember(obj)


def wait(variable: Any, value: Any) -> None:
    """Set the value of a Keras variable at its first use, or when a strategy creates it."""
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
        foreign_names.raise_kept_back("tensorflow")  # otherwise each rank would train it alone
        # Creating variables is collective, so all ranks must move the same objects. A weak reference could
        # lose some.
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
        key(obj)
    return vars(variable)["_value"]


def _settle() -> list[tuple[Any, Any]]:
    found = list(_values.values())
    _values.clear()
    return found


def _alive() -> list[Any]:
    return [obj for obj in (reference() for reference in _waiting) if obj is not None]


def key(obj: Any) -> None:
    """Set an optimizer's table of variables, whose keys depend on the process; ignore other objects."""
    if hasattr(obj, "_var_key"):
        known = {obj._var_key(variable): i for i, variable in enumerate(obj._trainable_variables)}
        vars(obj)["_trainable_variables_indices"] = known


def expect_strategy(*, spans: bool, cpus: int) -> None:
    """Record what the cell's own strategy needs, and TensorFlow accepts only at its start.

    `spans`: the strategy spans ranks. `cpus`: how many logical CPUs it uses.
    """
    global _expected, _cpus
    _expected, _cpus = spans, cpus


def start_tensorflow() -> None:
    """Connect the workers, and divide the CPU, before an object of the notebook starts TensorFlow.

    Both happen only if the cell's strategy needs them.
    TensorFlow connects the workers for the first MultiWorkerMirroredStrategy, and only at its start. A second
    connection for the cell's own strategy would wait forever, so it is skipped.
    """
    global _expected
    if _cpus > 1:
        from ..tensorflow import strategies

        with contextlib.suppress(RuntimeError):  # the cell's own call then reports it
            strategies.divide_cpu(_cpus)
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
    """Patch `tensorflow.python.distribute.distribute_lib`: deferred objects move into an entered scope.

    Repeatable.
    """

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

    Code that makes such a strategy trains with all ranks, so deferred objects move there at once.
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
                variable.assign(value)  # the value is divided among the replicas, and reading sums them up
            else:
                variable._initialize(value)
    for obj in found:
        for name in {"_distribute_strategy", "_distribution_strategy"} & vars(obj).keys():
            vars(obj)[name] = strategy
        key(obj)
