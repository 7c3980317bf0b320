"""Metrics and progress of `Model.fit`, for Keras 3 and tf_keras."""

from __future__ import annotations

import inspect
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from .. import steps as step_times
from ..output.progress_meter import Meter
from ..output.scalars import loose
from ..patching import wrap
from . import guarded, keras_bars, quietly, record

__all__ = ["patch"]

_EVERY_S = 0.1


def patch(keras: ModuleType) -> None:
    """Add our callback to every `fit` of `keras`, and ignore the values that Keras passes to TensorBoard.

    `keras` is keras or tf_keras.
    """
    callback = _callback_class(keras)
    wrap(keras.Model, "fit", lambda original: _fit(original, keras, callback))
    keras_bars.patch(keras)
    for name in ("on_epoch_end", "on_train_batch_end", "on_test_end"):
        wrap(keras.callbacks.TensorBoard, name, quietly)


def _fit(original: Callable[..., Any], keras: ModuleType, callback: type) -> Callable[..., Any]:
    signature = inspect.signature(original)
    if "callbacks" not in signature.parameters:
        raise TypeError("Model.fit has no parameter `callbacks`")

    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError:
            # Keras raises a better error message.
            return original(self, *args, **kwargs)
        ours = callback()
        ours.batch_size = _batch_size(self, bound.arguments)
        given = bound.arguments.get("callbacks")
        if isinstance(given, keras.callbacks.CallbackList):
            # The user keeps this list, so the callback is removed again afterwards.
            given.callbacks.append(ours)
            ours.set_model(self)
            ours.set_params(getattr(given, "params", None) or {})
            try:
                with keras_bars.fitting():
                    return original(*bound.args, **bound.kwargs)
            finally:
                ours.close()
                given.callbacks.remove(ours)
        if given is None:
            given = []
        elif not isinstance(given, (list, tuple)):
            given = [given]
        # Our callback is last, because the user's callbacks may add to the logs.
        bound.arguments["callbacks"] = [*given, ours]
        try:
            with keras_bars.fitting():
                return original(*bound.args, **bound.kwargs)
        finally:
            ours.close()

    return fit


def _batch_size(model: Any, arguments: Mapping[str, Any]) -> int:
    """Return the size of this rank's batches, or 0 if it is unknown, as for a dataset."""
    strategy = getattr(model, "distribute_strategy", None)
    if getattr(arguments.get("x"), "shape", None) is None or getattr(strategy, "num_replicas_in_sync", 1) > 1:
        return 0
    return int(arguments.get("batch_size") or 32)


def _summed_replicas(model: Any) -> int:
    """Return over how many replicas tf_keras sums the values for callbacks at the end of a batch."""
    strategy = model.distribute_strategy
    reduction = model.distribute_reduction_method
    if reduction == "auto" and not type(strategy).__name__.startswith("TPUStrategy"):
        reduction = "sum"
    return int(strategy.num_replicas_in_sync) if reduction == "sum" else 1


def _callback_class(keras: ModuleType) -> type:
    base: Any = keras.callbacks.Callback
    # Steps continue to count when a model is fitted again.
    steps: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
    report = guarded(keras.__name__)
    legacy = keras.__name__ == "tf_keras"

    # tf_keras measures the time of callbacks with unknown class names, and warns about slow ones.
    class Callback(base):  # type: ignore[misc]
        # Keras 3 then continues to dispatch the callbacks of a batch in a thread.
        async_safe = True

        def __init__(self) -> None:
            super().__init__()
            # The callback then gets what the step returned, not numbers, so no step waits for it. It is then
            # also allowed beside a ParameterServerStrategy, whose steps return values that are not computed
            # yet.
            self._supports_tf_logs = True
            self._lock = threading.Lock()
            self._meter: Meter | None = None
            self._before = 0
            self._batches = 0
            self._done = 0
            self._next = 0.0
            self._last: dict[str, Any] = {}
            self.batch_size = 0

        @report
        def on_train_begin(self, logs: Any = None) -> None:
            self._before = steps.get(self.model, 0)
            self._meter = Meter(self._total(self.params.get("steps")), "")

        @report
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._batches = 0
            if self._meter is not None:
                self._meter.desc = f"epoch {epoch + 1}/{self.params.get('epochs', '?')}"

        @report
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            # Keras may call this method from several threads at once.
            with self._lock:
                if (more := batch + 1 - self._batches) > 0:
                    self._batches = batch + 1
                    step_times.mark(step_times.Source.BATCH, more, more * self.batch_size or None)
                now = time.monotonic()
                # The last batch of an epoch is skipped, because the epoch's own values follow.
                if now < self._next or batch + 1 == self.params.get("steps"):
                    return
                self._next = now + _EVERY_S
                if self._meter is not None:
                    self._meter.update(self._done + batch + 1)
                # Under a ParameterServerStrategy the values of a step are not computed yet.
                known = logs if isinstance(logs, Mapping) else {}
                record(self._of_one_replica(known), self._before + self._done + batch + 1)

        @report
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            with self._lock:
                # tf_keras omits batch calls if the user's own CallbackList does not need them.
                self._done += self._batches or self._uncounted()
                steps[self.model] = step = self._before + self._done
                if self._meter is not None:
                    if self._meter.total is None:
                        self._meter.total = self._total(self._batches)
                    self._meter.update(self._done)
                record(logs or {}, step)

        @report
        def close(self) -> None:
            """Close the meter at the end of `fit`, also after an exception."""
            if self._meter is not None:
                self._meter.close()

        def _uncounted(self) -> int:
            iterations = int(getattr(self.model.optimizer, "iterations", 0))
            return max(1, iterations - self._before - self._done)

        def _of_one_replica(self, logs: Mapping[str, Any]) -> Mapping[str, Any]:
            # Keras 3 averages over the replicas of a strategy. tf_keras also averages at the end of an epoch.
            # At the end of a batch, tf_keras sums, which can make an accuracy of 2.
            replicas = _summed_replicas(self.model) if legacy else 1
            if replicas == 1:
                return logs
            return {name: value / replicas for name, value in loose(logs).items()}

        def _total(self, steps_in_epoch: int | None) -> int | None:
            epochs = self.params.get("epochs")
            return steps_in_epoch * epochs if steps_in_epoch and epochs else None

    return Callback
