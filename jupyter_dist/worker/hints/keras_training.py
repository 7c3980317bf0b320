"""The hints `own-model` and `same-data` on `fit` of Keras with TensorFlow."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..patching import wrap
from . import files, mentions_ranks, report, safely, wanted, world_size

__all__ = ["patch"]

_HASHED = 1 << 16
"""Numbers of an array that ranks compare."""
_OTHERS = ("mpi4py.MPI", "deepspeed", "byteps", "jax")
"""Modules that can connect ranks in ways that are not seen here."""


def patch(keras: ModuleType) -> None:
    """Observe `fit` and saved files. `keras`: keras or tf_keras."""
    files.patch_keras(keras)
    wrap(keras.Model, "fit", _fit)


def _fit(original: Callable[..., Any]) -> Callable[..., Any]:
    def fit(self: Any, *args: Any, **options: Any) -> Any:
        if world_size() > 1 and (wanted("own-model") or wanted("same-data")):
            _look(self, [*args[:2], options.get("x"), options.get("y")], options.get("shuffle", True))
        return original(self, *args, **options)

    return fit


@safely("own-model")
def _look(model: Any, data: list[Any], shuffle: Any) -> None:
    strategy = getattr(model, "distribute_strategy", None)
    if strategy is None or getattr(strategy, "cluster_resolver", None) is not None or _is_elsewhere():
        return  # another backend of Keras, or a strategy that may span the ranks
    digest = hashlib.blake2b(digest_size=8)
    known = [_add(digest, values) for values in data if values is not None]
    horovod = sys.modules.get("horovod.tensorflow")
    if horovod is not None and horovod.is_initialized():
        if horovod.size() == world_size() and shuffle is False and known and all(known):
            report("same-data", batches=[digest.hexdigest()])
        return
    optimizer = type(getattr(model, "optimizer", None)).__name__
    digest.update(repr([optimizer, [tuple(weight.shape) for weight in model.weights]]).encode())
    report("own-model", meant=not mentions_ranks(), step=0, same=digest.hexdigest())


def _add(digest: Any, values: Any) -> bool:
    """Add values to a digest, of large arrays in part. Returns whether they are an array of numbers."""
    numpy = sys.modules.get("numpy")
    is_array = numpy is not None and isinstance(values, numpy.ndarray) and not values.dtype.hasobject
    digest.update(repr([type(values).__name__, getattr(values, "shape", None)]).encode())
    if is_array:
        digest.update(values.reshape(-1)[:: max(1, values.size // _HASHED)].tobytes())
    return is_array


def _is_elsewhere() -> bool:
    """Return whether other code can connect the ranks."""
    torch = sys.modules.get("torch.distributed")
    spans = torch is not None and torch.is_available() and torch.is_initialized()
    return spans or any(name in sys.modules for name in _OTHERS)
