"""The hints `own-model` and `same-data` on `fit` of Keras with TensorFlow, and `own-model` with torch."""

from __future__ import annotations

import hashlib
import inspect
import math
import numbers
import sys
from collections.abc import Callable, Mapping
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
    signature = inspect.signature(original)

    def fit(self: Any, *args: Any, **options: Any) -> Any:
        if world_size() > 1 and (wanted("own-model") or wanted("same-data")):
            try:
                given = signature.bind(self, *args, **options).arguments
            except TypeError:  # Keras raises a better error message
                given = {}
            _look(self, given)
        return original(self, *args, **options)

    return fit


@safely("own-model")
def _look(model: Any, given: Mapping[str, Any]) -> None:
    strategy = getattr(model, "distribute_strategy", None)
    backend = "tensorflow" if strategy is not None else sys.modules["keras"].config.backend()
    if getattr(strategy, "cluster_resolver", None) is not None or _is_elsewhere():
        return  # the strategy, or JAX, may span the ranks
    horovod: Any = sys.modules.get("horovod.tensorflow")
    is_horovods = horovod is not None and horovod.is_initialized()
    if is_horovods and (given.get("shuffle", True) is not False or horovod.size() != world_size()):
        return
    if not wanted("same-data" if is_horovods else "own-model"):
        return
    digest = hashlib.blake2b(digest_size=8)
    data = [given.get(name) for name in ("x", "y", "sample_weight")]
    known = [_add(digest, values) for values in data if values is not None]
    if not known or not all(known):
        return  # a dataset or a generator may have other data on each rank
    if is_horovods:
        report("same-data", batches=[digest.hexdigest()])
        return
    plain = (numbers.Number, str)  # such as the batch size
    settings = sorted((name, repr(value)) for name, value in given.items() if isinstance(value, plain))
    digest.update(repr([settings, given.get("class_weight"), _settings(model)]).encode())
    report("own-model", meant=not mentions_ranks(), step=0, same=digest.hexdigest(), keras=backend)


def _settings(model: Any) -> list[str]:
    """Return the settings in which the trials of a search differ, such as a learning rate or a dropout."""
    optimizer = getattr(model, "optimizer", None)
    found = [type(optimizer).__name__]
    if model.built:  # tf_keras raises an error otherwise
        found.append(repr([tuple(weight.shape) for weight in model.weights]))
    for part in (optimizer, *model.layers):
        try:
            found.append(repr(part.get_config()))
        except Exception:  # a layer of the user may have no config
            found.append(type(part).__name__)
    return found


def _add(digest: Any, values: Any) -> bool:
    """Add values to a digest, of large arrays in part. Returns whether they are an array of numbers.

    The array is not copied, and a file that is mapped into memory is not read.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(values, numpy.ndarray) or isinstance(values, numpy.memmap):
        return False
    if values.dtype.hasobject:
        return False
    digest.update(repr([values.dtype.str, values.shape]).encode())
    step = max(1, values.size // _HASHED)
    while math.gcd(step, values.size) > 1 and step > 1:
        step += 1  # else all samples might be of one column
    digest.update(values.flat[::step].tobytes())
    return True


def _is_elsewhere() -> bool:
    """Return whether other code can connect the ranks."""
    torch = sys.modules.get("torch.distributed")
    spans = torch is not None and torch.is_available() and torch.is_initialized()
    return spans or any(name in sys.modules for name in _OTHERS)
