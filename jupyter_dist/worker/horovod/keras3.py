"""Horovod's `horovod.tensorflow` with Keras 3: variables, the tape, broadcasts, elastic states.

Horovod 0.28.1 calls `ref()` of variables and `optimizer.variables()`. It passes both to functions that
TensorFlow compiles, which treat Keras 3's variables as tensors. Upstream has no fix:
https://github.com/horovod/horovod/pull/4317
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from ..keras import shim

__all__ = ["came_reduced", "patch"]

_OWN = ("seed_generator_state", "gradient_accumulator")
"""Variables that are separate on each rank, and that Keras 2 did not have.

They are the state of Dropout's random numbers, and gradients that are not shared yet.
"""

_reduced: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


class _Callable(list[Any]):
    """`optimizer.variables`, which may also be called as in Keras 2."""

    def __call__(self) -> list[Any]:
        return self


def _callable(get: Callable[[Any], Any]) -> property:
    return property(lambda self: _Callable(get(self)))


def came_reduced(gradient: Any) -> bool:
    """Return whether a gradient is from a DistributedGradientTape, and must not be reduced again."""
    return _reduced.get(id(gradient)) is gradient and gradient is not None


@shim
def patch(hvd: Any) -> None:
    """Patch `horovod.tensorflow`. Repeatable."""
    import tensorflow as tf
    from horovod.tensorflow import elastic, functions
    from keras.src.backend.tensorflow.core import Variable
    from keras.src.optimizers.base_optimizer import BaseOptimizer
    from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

    if hasattr(Variable, "ref"):
        return
    broadcast, make_reduce = hvd.broadcast_variables, hvd._make_allreduce_grads_fn
    send_model, distribute_tape = elastic._broadcast_model, hvd.DistributedGradientTape
    listed = {kind: kind.__dict__["variables"].fget for kind in (BaseOptimizer, LossScaleOptimizer)}
    sync = _sync_batch_normalization(hvd, tf)

    def ref(self: Any) -> Any:
        return self.value.ref()

    def native(variables: Iterable[Any]) -> list[Any]:
        return [v.value if isinstance(v, Variable) else v for v in variables]

    def broadcast_variables(variables: Iterable[Any], root_rank: int, *args: Any, **kwargs: Any) -> Any:
        shared = [v for v in variables if not (isinstance(v, Variable) and v.name.endswith(_OWN))]
        return broadcast(native(shared), root_rank, *args, **kwargs)

    def make_allreduce_grads_fn(*args: Any, **kwargs: Any) -> Any:
        reduce = make_reduce(*args, **kwargs)

        def allreduce(grads: Any, variables: Any = None, *rest: Any) -> Any:
            return reduce(grads, None if variables is None else native(variables), *rest)

        return allreduce

    def broadcast_model(model: Any, optimizer: Any, backend: Any) -> None:
        # A rank that joins has not trained yet. Without its slots it would wait for fewer variables than the
        # others send.
        if isinstance(optimizer, BaseOptimizer) and not optimizer.built:
            optimizer.build(model.trainable_variables)
        send_model(model, optimizer, backend)

    def distributed_tape(*args: Any, **kwargs: Any) -> Any:
        tape = distribute_tape(*args, **kwargs)
        gradient = tape.gradient

        def remember(*args: Any, **kwargs: Any) -> Any:
            found = gradient(*args, **kwargs)
            _reduced.update((id(g), g) for g in found if g is not None)
            return found

        tape.gradient = remember
        return tape

    for kind, variables in listed.items():
        kind.variables = _callable(variables)
    if not hasattr(BaseOptimizer, "lr"):
        BaseOptimizer.lr = property(
            lambda self: self.learning_rate, lambda self, rate: setattr(self, "learning_rate", rate)
        )
    hvd._make_allreduce_grads_fn = make_allreduce_grads_fn
    hvd.DistributedGradientTape = distributed_tape
    for module in (hvd, functions, elastic):
        module.broadcast_variables = broadcast_variables
    elastic._broadcast_model = broadcast_model
    hvd.SyncBatchNormalization = sync
    Variable.ref = ref


def _sync_batch_normalization(hvd: Any, tf: Any) -> Any:
    import keras

    if not issubclass(hvd.SyncBatchNormalization, keras.layers.BatchNormalization):
        return hvd.SyncBatchNormalization  # a layer of tf_keras, which works unchanged
    keras.layers.BatchNormalization._moments  # noqa: B018 - a Keras without it is not ours to patch

    class SyncBatchNormalization(keras.layers.BatchNormalization):  # type: ignore[misc]
        """Batch normalization over the batches of all ranks. Horovod's own version is written for Keras 2."""

        def __init__(self, fused: bool = False, **kwargs: Any) -> None:
            if fused in (True, None):
                raise ValueError("SyncBatchNormalization does not support fused=True.")
            super().__init__(**kwargs)

        def _moments(self, inputs: Any, mask: Any) -> tuple[Any, Any]:
            mean, variance = super()._moments(inputs, mask)
            both = hvd.allreduce(tf.stack([mean, variance + tf.square(mean)]), op=hvd.Average)
            return both[0], both[1] - tf.square(both[0])

    return SyncBatchNormalization
