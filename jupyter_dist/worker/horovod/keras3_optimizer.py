"""Horovod's `DistributedOptimizer`, `load_model` and callbacks with Keras 3.

Horovod reduces gradients in `_compute_gradients`, which Keras 3 never calls. With only the missing names
restored, `fit` runs but each rank trains a model of its own. Every update of a Keras 3 optimizer calls
`apply`, so this module reduces gradients there.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..keras import shim
from ..patching import wrap
from .keras3 import came_reduced

__all__ = ["patch", "patch_callbacks", "patch_package"]

_MARK = "_horovod"


@dataclass
class _Reduction:
    """How the gradients of one optimizer are reduced. `passes` is the number of batches in one update."""

    reduce: Any
    process_set: Any
    passes: int = 1
    average: bool = False
    scale_local: bool = True
    local: set[Any] = field(default_factory=set)

    def gradients(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        found = list(grads)
        if any(came_reduced(g) for g in found):
            return found
        shared = [i for i, v in enumerate(variables) if v.ref() not in self.local]
        if self.scale_local and self.local:
            size = self.process_set.size()
            found = [g if g is None else g / size for g in found]
        reduced = self.reduce([grads[i] for i in shared], [variables[i] for i in shared])
        for i, gradient in zip(shared, reduced):
            found[i] = gradient
        return found


def _attach(optimizer: Any, reduction: _Reduction) -> Any:
    """Make an optimizer reduce its gradients.

    Its class stays Keras' own, so it can be saved and loaded as usual.
    """
    # With accumulation, gradients are reduced once per update, not once per batch.
    late = bool(optimizer.gradient_accumulation_steps)

    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        variables = list(self._trainable_variables if trainable_variables is None else trainable_variables)
        if not late:
            grads = reduction.gradients(list(grads), variables)
        elif reduction.passes > 1 and not reduction.average:
            grads = [g if g is None else g * reduction.passes for g in grads]
        return type(self).apply(self, grads, variables)

    def apply_accumulated(self: Any, grads: Any, trainable_variables: Any) -> Any:
        variables = list(trainable_variables)

        # Each accumulated update passes here before it is clipped.
        def clip(grads: Any) -> Any:
            return type(self)._clip_gradients(self, reduction.gradients(grads, variables))

        object.__setattr__(self, "_clip_gradients", clip)
        return type(self)._backend_apply_gradients(self, grads, trainable_variables)

    methods: dict[str, Any] = {
        "apply": types.MethodType(apply, optimizer),
        "register_local_var": lambda variable: reduction.local.add(variable.ref()),
        _MARK: True if late else apply,
    }
    if late:
        methods["_backend_apply_gradients"] = types.MethodType(apply_accumulated, optimizer)
    for name, value in methods.items():
        object.__setattr__(optimizer, name, value)  # bypasses Keras, which would track the attribute
    return optimizer


def _copied(optimizer: Any, passes: int) -> Any:
    """Make a new optimizer with the settings and the state of `optimizer`, as Horovod does."""
    config = optimizer.get_config()
    if passes > 1:
        config["gradient_accumulation_steps"] = passes
    copy = type(optimizer).from_config(config)
    if optimizer.built and getattr(optimizer, "_trainable_variables", None) and passes == 1:
        copy.build(optimizer._trainable_variables)
        if len(copy.variables) != len(optimizer.variables):
            name = type(optimizer).__name__
            raise ValueError(
                f"Cannot copy the state of this {name}: {name}.from_config() makes {len(copy.variables)} "
                f"variables, and the optimizer has {len(optimizer.variables)}. Wrap it with Horovod before "
                "the first step."
            )
        for mine, given in zip(copy.variables, optimizer.variables):
            mine.assign(given)
    return copy


@shim
def patch(impl: Any) -> None:
    """Patch `horovod._keras`. Repeatable."""
    import horovod.tensorflow as hvd
    from keras.src.optimizers.base_optimizer import BaseOptimizer
    from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer
    from keras.src.trainers import trainer

    create, supports_jit = impl.create_distributed_optimizer, trainer.model_supports_jit
    if getattr(create, "_jupyter_dist", False):
        return
    scale, signature = LossScaleOptimizer.__init__, inspect.signature(create)
    for name in ("apply", "_backend_apply_gradients", "_clip_gradients"):
        getattr(BaseOptimizer, name)

    def create_distributed_optimizer(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        optimizer, passes = given["optimizer"], given["backward_passes_per_step"]
        if not isinstance(optimizer, BaseOptimizer):
            return create(*args, **kwargs)
        reduce = hvd._make_allreduce_grads_fn(
            given["name"] or f"Distributed{type(optimizer).__name__}",
            given["device_dense"],
            given["device_sparse"],
            given["compression"],
            given["sparse_as_dense"],
            given["op"],
            given["gradient_predivide_factor"],
            given["groups"],
            given["process_set"],
        )
        average, scale_local = given["average_aggregated_gradients"], given["scale_local_gradients"]
        reduction = _Reduction(reduce, given["process_set"], passes, average, scale_local)
        return _attach(_copied(optimizer, passes), reduction)

    def __init__(self: Any, inner_optimizer: Any, *args: Any, **kwargs: Any) -> None:
        # `compile` wraps an optimizer itself for mixed_float16. If gradients are reduced outside the wrapper,
        # all ranks agree on which gradients are finite.
        scale(self, inner_optimizer, *args, **kwargs)
        apply = getattr(inner_optimizer, _MARK, None)
        if callable(apply):
            object.__delattr__(inner_optimizer, "apply")
            object.__delattr__(inner_optimizer, _MARK)
            object.__setattr__(self, "apply", types.MethodType(apply, self))
            object.__setattr__(self, _MARK, apply)

    def model_supports_jit(model: Any) -> bool:
        # XLA cannot compile Horovod's operations, but `compile` chooses XLA if there is a GPU.
        return not getattr(getattr(model, "optimizer", None), _MARK, False) and supports_jit(model)

    create_distributed_optimizer._jupyter_dist = True  # type: ignore[attr-defined]
    LossScaleOptimizer.__init__ = __init__
    trainer.model_supports_jit = model_supports_jit
    impl.create_distributed_optimizer = create_distributed_optimizer


@shim
def patch_package(package: Any) -> None:
    """Patch `horovod.tensorflow.keras` or `horovod.keras`. Repeatable."""
    import horovod.tensorflow as hvd
    import tensorflow as tf

    backend = tf.keras.backend  # Keras 3's keras.backend lacks these functions
    for name in ("get_value", "set_value", "constant"):
        getattr(backend, name)

    def load_model(
        filepath: Any,
        custom_optimizers: Any = None,
        custom_objects: Any = None,
        compression: Any = hvd.Compression.none,
        legacy_opts: bool = False,
    ) -> Any:
        """Load a model whose optimizer reduces its gradients, with the state that was saved."""
        known = {kind.__name__: kind for kind in custom_optimizers or ()}
        model = tf.keras.models.load_model(filepath, custom_objects={**known, **(custom_objects or {})})
        if model.optimizer is not None:
            everyone = hvd.global_process_set
            name = f"Distributed{type(model.optimizer).__name__}"
            reduce = hvd._make_allreduce_grads_fn(
                name, "", "", compression, False, hvd.Average, 1.0, None, everyone
            )
            _attach(model.optimizer, _Reduction(reduce, everyone))
            model.jit_compile = False
        return model

    package.K = package.callbacks.K = backend
    package.load_model = load_model


@shim
def patch_callbacks(callbacks: Any) -> None:
    """Patch `horovod._keras.callbacks` for the momentum, which Keras 3 compiles in. Repeatable."""

    def adjust(self: Any, epoch: float) -> None:
        optimizer = getattr(self.model.optimizer, "inner_optimizer", self.model.optimizer)
        old, new = float(optimizer.learning_rate), self.initial_lr * self.multiplier(epoch)
        optimizer.learning_rate = new
        if self.momentum_correction and getattr(optimizer, "momentum", 0) and old:
            # Horovod scales the momentum for one batch. Scaling the velocity has the same effect on the
            # update.
            velocities: Any = getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", ())
            for velocity in velocities:
                velocity.assign(velocity * (new / old))

    wrap(callbacks.LearningRateScheduleCallbackImpl, "_adjust_learning_rate", lambda _: adjust)
