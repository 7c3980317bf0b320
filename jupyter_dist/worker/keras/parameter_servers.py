"""Keras 3 on parameter servers: `fit`, `evaluate` and `predict`, and the metrics of CentralStorageStrategy.

Keras 3 has no ClusterCoordinator. Here `fit` sends its steps to the workers through a coordinator. Each
worker has a dataset of its own, and `fit` waits for the workers at the end of an epoch. It needs
`steps_per_epoch` and a dataset that repeats, as tf_keras did. `predict` runs on the coordinator, with the
weights of the parameter servers.

Keras 3 adds to a variable by reading it and writing the sum. If several workers do so at once, all additions
but one are lost. In a test, a third of the steps was missing in metrics and in `optimizer.iterations`. So the
parameter server does the addition here.

CentralStorageStrategy has such variables too. It adds the sums that its replicas write, so that each replica
counts what all had counted before, and `fit` reports a wrong loss.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from ..patching import wrap
from .when_loaded import shim

__all__ = ["patch", "patch_variable"]

_NO_STEPS = (
    "ParameterServerStrategy needs {name}=, because each worker reads batches at its own pace. "
    "Set it, and use a dataset that repeats, such as data.repeat().batch(32)"
)


@shim
def patch(trainer: Any) -> None:
    """Patch `keras.src.backend.tensorflow.trainer`. Repeatable."""
    kind, epochs = trainer.TensorFlowTrainer, trainer.TFEpochIterator
    init, build, make = epochs.__init__, kind._maybe_symbolic_build, kind._make_function
    result, predict, reduce = kind._get_metrics_result_or_logs, kind.predict, trainer.reduce_per_replica
    if getattr(init, "_jupyter_dist", False):
        return
    import tensorflow as tf

    def coordinator(strategy: Any) -> Any:
        """Return the coordinator of a strategy with parameter servers (one per strategy), otherwise None."""
        if isinstance(strategy, tf.distribute.ParameterServerStrategy):
            return tf.distribute.coordinator.ClusterCoordinator(strategy)
        return None

    def __init__(self: Any, distribute_strategy: Any = None, *args: Any, **kwargs: Any) -> None:
        workers = coordinator(distribute_strategy)
        if workers and kwargs.get("steps_per_epoch") is None:
            evaluates = kwargs.get("shuffle") is False
            raise ValueError(
                _NO_STEPS.format(name="steps (or validation_steps)" if evaluates else "steps_per_epoch")
            )
        init(self, distribute_strategy, *args, **kwargs)
        if workers:
            self._jupyter_dist_spec = self.data_adapter.get_tf_dataset().element_spec
            self._distributed_dataset = workers.create_per_worker_dataset(self._distributed_dataset)

    def _maybe_symbolic_build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        if iterator is not None and coordinator(self._distribute_strategy):
            iterator, data_batch = (
                None,
                iterator._jupyter_dist_spec,
            )  # this rank has no batch
        build(self, iterator, data_batch)

    def _make_function(self: Any, step_function: Any) -> Any:
        strategy = self._distribute_strategy
        workers = coordinator(strategy)
        if not workers:
            made = make(self, step_function)
            return _adding_to(self, made) if _is_central(strategy) else made

        def steps(iterator: Any) -> Any:
            with _adding(self.metrics):
                for _ in range(self.steps_per_execution):
                    outputs = strategy.run(step_function, args=(next(iterator),))
            return reduce(outputs, strategy, "auto")

        compiled = tf.function(steps, reduce_retracing=True)

        def function(iterator: Any) -> dict[str, Any]:
            workers.schedule(compiled, args=(iterator,))
            return {}  # the values exist when the workers have finished, at the end of the epoch

        return function

    def _get_metrics_result_or_logs(self: Any, logs: Any) -> Any:
        workers = coordinator(self._distribute_strategy)
        if not workers:
            return result(self, logs)
        workers.join()
        return self.get_metrics_result()

    def predict_here(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = self._distribute_strategy
        if not coordinator(strategy):
            return predict(self, *args, **kwargs)
        self._distribute_strategy = None
        try:
            return predict(self, *args, **kwargs)
        finally:
            self._distribute_strategy = strategy

    __init__._jupyter_dist = True  # type: ignore[attr-defined]
    epochs.__init__ = __init__
    kind._maybe_symbolic_build = _maybe_symbolic_build
    kind._make_function = _make_function
    kind._get_metrics_result_or_logs = _get_metrics_result_or_logs
    kind.predict = predict_here


@shim
def patch_variable(core: Any) -> None:
    """Patch `keras.src.backend.tensorflow.core`: the parameter server adds to its variables. Repeatable."""
    for name in ("assign_add", "assign_sub"):
        wrap(core.Variable, name, functools.partial(_by_server, name))


def _by_server(name: str, change: Callable[..., Any]) -> Callable[..., Any]:
    """Return a variable's `assign_add` or `assign_sub`.

    For variables on a parameter server it is TensorFlow's.
    """
    import tensorflow as tf
    from keras.src.backend.common.stateless_scope import in_stateless_scope

    def changed(self: Any, value: Any) -> Any:
        served = "/job:ps/" in (getattr(self._value, "device", None) or "")
        if in_stateless_scope() or not (served or _is_central(tf.distribute.get_strategy())):
            return change(self, value)
        getattr(self._value, name)(self._convert_to_tensor(value, dtype=self.dtype))
        return value

    return changed


def _is_central(strategy: Any) -> bool:
    import tensorflow as tf

    return isinstance(strategy, tf.distribute.experimental.CentralStorageStrategy)


def _adding_to(model: Any, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the same step of `fit` or `evaluate`, which is traced while metrics add their changes."""

    def function(iterator: Any) -> Any:
        with _adding(model.metrics):
            return step(iterator)

    return function


@contextlib.contextmanager
def _adding(metrics: Any) -> Iterator[None]:
    """Make metrics add their changes while a step is traced. Many metrics write, as in `v.assign(v + x)`."""
    each = [inner for metric in metrics for inner in getattr(metric, "metrics", [metric])]
    found = {id(metric): metric for metric in each}.values()
    for metric in found:
        vars(metric)["update_state"] = _differences(metric, type(metric).update_state)
    try:
        yield
    finally:
        for metric in found:
            del vars(metric)["update_state"]


def _differences(metric: Any, update: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `metric.update_state` that adds its changes."""
    import tensorflow as tf
    from keras import StatelessScope

    def update_state(*args: Any, **kwargs: Any) -> None:
        before = [(variable, tf.identity(variable.value)) for variable in metric.variables]
        with StatelessScope(state_mapping=before) as scope:
            update(metric, *args, **kwargs)
        for variable, old in before:
            new = scope.get_current_value(variable)
            if new is old:
                continue
            if old.dtype.is_bool:
                variable.assign(new)
            else:
                variable.assign_add(new - old)

    return update_state
