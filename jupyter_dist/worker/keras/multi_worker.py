"""Keras 3's `fit`, `evaluate` and `predict` under MultiWorkerMirroredStrategy.

Without the patches Keras fails in four ways:
- It averages a batch of data over the workers to learn its shapes, which TensorFlow refuses.
- It averages a step's scalars along an axis that they do not have.
- It puts the collectives of several steps in one execution into a tf.cond, in which they fail.
- Each worker silently keeps moving statistics of its own for BatchNormalization.
https://github.com/keras-team/keras/issues/20585
"""

from __future__ import annotations

from typing import Any

from ..patching import wrap
from . import callbacks
from .when_loaded import shim

__all__ = ["patch", "patch_normalization"]


@shim
def patch(trainer: Any) -> None:
    """Patch `keras.src.backend.tensorflow.trainer`. Repeatable."""
    kind, spans = trainer.TensorFlowTrainer, trainer._collective_all_reduce_multi_worker
    build, make, reduce = kind._maybe_symbolic_build, kind._make_function, trainer.reduce_per_replica
    if getattr(reduce, "_jupyter_dist", False):
        return
    import tensorflow as tf

    def _maybe_symbolic_build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        strategy = self._distribute_strategy
        if iterator is None or not spans(strategy):
            build(self, iterator, data_batch)
            return
        # Keras only needs shapes and types, and this worker's own batch has them.
        for _, _, batches in iterator:
            data_batch = tf.nest.map_structure(
                lambda value: strategy.experimental_local_results(value)[0], next(batches)
            )
            break
        build(self, None, data_batch)

    def reduce_per_replica(values: Any, strategy: Any, reduction: str) -> Any:
        # Metrics are summed over the workers when they are read, so all workers have the same values.
        if reduction == "auto" and spans(strategy):
            reduction = "first"
        return reduce(values, strategy, reduction)

    def _make_function(self: Any, step_function: Any) -> Any:
        steps = self.steps_per_execution
        if steps == 1 or not spans(self._distribute_strategy):
            return make(self, step_function)

        def function(iterator: Any) -> Any:
            outputs = None
            # The compiled step reads the attribute while it is traced.
            self.steps_per_execution = 1
            try:
                for _ in range(steps):
                    outputs = single(iterator)
            except (StopIteration, tf.errors.OutOfRangeError):
                if outputs is None:
                    raise
            finally:
                self.steps_per_execution = steps
            return outputs

        single = make(self, step_function)
        return function

    reduce_per_replica._jupyter_dist = True  # type: ignore[attr-defined]
    kind._maybe_symbolic_build = _maybe_symbolic_build
    kind._make_function = _make_function
    trainer.reduce_per_replica = reduce_per_replica
    wrap(kind, "fit", callbacks.fitting)


@shim
def patch_normalization(module: Any) -> None:
    """Patch `keras.src.layers.normalization.batch_normalization`: one moving mean for all workers.

    Repeatable.
    """
    import tensorflow as tf

    def with_mean(add: Any) -> Any:
        def add_weight(self: Any, *args: Any, **kwargs: Any) -> Any:
            spans = isinstance(tf.distribute.get_strategy(), tf.distribute.MultiWorkerMirroredStrategy)
            if spans and str(kwargs.get("name")).startswith("moving_"):
                kwargs.setdefault("aggregation", "mean")
            return add(self, *args, **kwargs)

        return add_weight

    wrap(module.BatchNormalization, "add_weight", with_mean)
