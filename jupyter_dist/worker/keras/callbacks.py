"""Keras 3's callbacks that write files, under MultiWorkerMirroredStrategy.

All workers have the same path, and Keras 3 lets all of them write to it: they find the file locked, or remove
it while another worker reads it. As in Keras 2, only the chief writes to that path. Another worker writes to
a temporary folder, because it has to take part: reading some variables is a collective. With Orbax it writes
nothing, because Orbax has opened its folder before.

Workers wait for each other in some callbacks. So `fit` first compares how many of them each worker has.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import contextvars
import functools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

from ..patching import wrap
from .when_loaded import shim

__all__ = ["fitting", "patch"]

_WRITERS = {
    "BackupAndRestore": ("backup_dir", ("on_train_batch_end", "on_epoch_end", "on_train_end")),
    "CSVLogger": ("filename", ("on_train_begin",)),
    "ModelCheckpoint": ("filepath", ("on_train_batch_end", "on_epoch_end")),
    "TensorBoard": ("log_dir", ("set_model",)),
}
"""Callback → the attribute with its path, and the methods that write there or open a file there."""
_MEETINGS = {"BackupAndRestore": ("on_train_begin", "on_train_end"), "ModelCheckpoint": ("on_train_end",)}
"""Callback → the methods before which all workers wait for each other.

A worker reads the backup only when the chief has ended its last training. After `fit`, all files are whole.
"""
_ORBAX = "OrbaxCheckpoint"
"""Not in every Keras 3."""
_fit_begins: contextvars.ContextVar[bool] = contextvars.ContextVar("fit_begins", default=False)
"""Whether `fit` is about to begin its training. A loop of the user may have callbacks on one rank only."""


@shim
def patch(callbacks: ModuleType) -> None:
    """Patch `keras.src.callbacks`. Repeatable."""
    for name, (place, methods) in _WRITERS.items():
        kind = getattr(callbacks, name)
        for method in methods:
            wrap(kind, method, functools.partial(_written_by_chief, place=place))
    wrap(callbacks.BackupAndRestore, "on_train_begin", _restored_from_a_copy)
    orbax = getattr(callbacks, _ORBAX, None)
    if orbax is not None:
        for method in ("on_train_batch_end", "on_epoch_end"):
            wrap(orbax, method, _saved_by_chief)
        wrap(orbax, "on_train_end", _before_all_workers)
        core = sys.modules["keras.src.backend.tensorflow.core"]
        wrap(core.Variable, "__int__", _of_any_replica)
    for name, methods in _MEETINGS.items():
        for method in methods:
            wrap(getattr(callbacks, name), method, _after_all_workers)
    wrap(callbacks.CallbackList, "on_train_begin", _compared)


def fitting(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `fit` of a trainer, which all workers call."""

    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        token = _fit_begins.set(True)
        try:
            return original(self, *args, **kwargs)
        finally:
            _fit_begins.reset(token)

    return fit


def _written_by_chief(original: Callable[..., Any], place: str) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        model = self.model if self.model is not None else next(iter((*args, *kwargs.values())), None)
        strategy = _strategy(model)
        if strategy is None or strategy.extended.should_checkpoint:
            return original(self, *args, **kwargs)
        with _elsewhere(self, str(getattr(self, place))):
            return original(self, *args, **kwargs)

    return call


def _restored_from_a_copy(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let only the chief repair a backup. With `double_checkpoint`, Keras does so while it restores."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = _strategy(self.model)
        if strategy is None or not getattr(self, "double_checkpoint", False):
            return original(self, *args, **kwargs)
        if strategy.extended.should_checkpoint:
            _meet(strategy)
            return original(self, *args, **kwargs)
        from tensorflow.io import gfile  # the backup may be in a bucket

        place = str(self.backup_dir)
        with _elsewhere(self, place):
            if gfile.exists(self.backup_dir):
                gfile.rmtree(self.backup_dir)
            gfile.makedirs(self.backup_dir)
            for name in gfile.listdir(place) if gfile.exists(place) else ():
                if not gfile.isdir(os.path.join(place, name)):  # the user's: Keras writes only files
                    gfile.copy(os.path.join(place, name), os.path.join(self.backup_dir, name))
            _meet(strategy)
            return original(self, *args, **kwargs)

    return call


def _of_any_replica(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let `int` read a variable of a strategy. OrbaxCheckpoint reads the optimizer's steps in this way."""

    def call(self: Any) -> int:
        if self.ndim == 0 and hasattr(self.value, "values"):
            return int(self.numpy())
        return int(original(self))

    return call


def _saved_by_chief(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = _strategy(self.model)
        if strategy is None or strategy.extended.should_checkpoint:
            return original(self, *args, **kwargs)
        own, self.checkpointer = self.checkpointer, _SavesNothing
        try:
            return original(self, *args, **kwargs)
        finally:
            self.checkpointer = own

    return call


class _SavesNothing:
    """Orbax's checkpointer of a worker that is not the chief.

    The first versions of Keras' callback call `save_pytree`.
    """

    @staticmethod
    def save_checkpointables(step: int, state: Any) -> None:
        pass

    @staticmethod
    def save_checkpointables_async(step: int, state: Any) -> concurrent.futures.Future[None]:
        saved: concurrent.futures.Future[None] = concurrent.futures.Future()
        saved.set_result(None)
        return saved

    save_pytree, save_pytree_async = save_checkpointables, save_checkpointables_async


def _after_all_workers(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        strategy = _strategy(self.model)
        if strategy is not None:
            _meet(strategy)
        return original(self, *args, **kwargs)

    return call


def _before_all_workers(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        strategy = _strategy(self.model)
        if strategy is not None:
            _meet(strategy)
        return result

    return call


def _compared(original: Callable[..., Any]) -> Callable[..., Any]:
    """Raise an error on all workers if some of them lack a callback in which the others wait."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        begins = _fit_begins.get()
        _fit_begins.set(False)
        strategy = _strategy(next((one.model for one in self.callbacks), None)) if begins else None
        if strategy is not None:
            names = sorted({*_MEETINGS, _ORBAX})
            own = [sum(_is_a(one, name) for one in self.callbacks) for name in names]
            for name, here, everywhere in zip(names, own, _meet(strategy, own)):
                if here * strategy.num_replicas_in_sync != everywhere:
                    raise ValueError(
                        f"fit() needs the same callbacks on every rank. This rank has {here} {name}, "
                        "and another rank has more or fewer. The ranks wait for each other in this "
                        "callback. Add it on every rank. Only the first rank writes files."
                    )
        return original(self, *args, **kwargs)

    return call


def _is_a(callback: Any, name: str) -> bool:
    """Return whether a callback is one of Keras, and not only of the same name."""
    bases = type(callback).__mro__
    return any(base.__name__ == name and base.__module__.startswith("keras.") for base in bases)


def _meet(strategy: Any, numbers: Sequence[float] = (1,)) -> list[float]:
    """Wait for all workers. Returns the sums of their numbers over all replicas."""
    import tensorflow as tf

    return [float(total) for total in _meeting(strategy)(tf.constant(numbers, tf.float32))]


@functools.lru_cache(1)  # TensorFlow warns of functions that are made again and again
def _meeting(strategy: Any) -> Callable[[Any], Any]:
    import tensorflow as tf

    def total(numbers: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(tf.identity, (numbers,)), axis=None)

    made: Callable[[Any], Any] = tf.function(total, autograph=False)
    return made


def _strategy(model: Any) -> Any:
    """Return the strategy of a model that several workers train; None for another model."""
    import tensorflow as tf

    found = getattr(model, "distribute_strategy", None)
    return found if isinstance(found, tf.distribute.MultiWorkerMirroredStrategy) else None


@contextlib.contextmanager
def _elsewhere(callback: Any, place: str) -> Iterator[None]:
    """Let a callback use a temporary folder in place of its own path, and of all paths that begin with it."""
    moved = os.path.join(_scratch(), os.path.basename(place) or "files")
    before = {
        name: value
        for name, value in vars(callback).items()
        if isinstance(value, str) and (value == place or value.startswith((f"{place}.", f"{place}/")))
    }
    vars(callback).update({name: moved + value[len(place) :] for name, value in before.items()})
    try:
        yield
    finally:
        vars(callback).update(before)


_folder: tempfile.TemporaryDirectory[str] | None = None


def _scratch() -> str:
    """Return this worker's temporary folder, which is removed at its exit."""
    global _folder
    if _folder is None:
        _folder = tempfile.TemporaryDirectory(prefix="jupyter-dist-keras-")
    return _folder.name
