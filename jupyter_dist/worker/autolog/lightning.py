"""Metrics and progress of Lightning's Trainer, for `lightning.pytorch` and `pytorch_lightning`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..output.progress_meter import Meter
from ..patching import wrap
from . import guarded, quiet, record

__all__ = ["patch"]


def patch(lightning: ModuleType) -> None:
    """Record the values that Lightning passes to a logger, even if the Trainer has no logger.

    Names, steps and `log_every_n_steps` are then Lightning's own. Values that a module logs in a hook after
    all callbacks are included.
    """
    connector = importlib.import_module(
        f"{lightning.__name__}.trainer.connectors.logger_connector.logger_connector"
    )
    wrap(connector._LoggerConnector, "log_metrics", _log_metrics)
    callback = _callback_class(lightning)
    wrap(lightning.Trainer, "__init__", lambda original: _init(original, callback))


def _log_metrics(original: Callable[..., Any]) -> Callable[..., Any]:
    def log_metrics(self: Any, *args: Any, **kwargs: Any) -> Any:
        _record(self, *args, **kwargs)
        with quiet():
            return original(self, *args, **kwargs)

    return log_metrics


@guarded("Lightning")
def _record(connector: Any, metrics: Any, step: int | None = None) -> None:
    if not metrics:
        return
    values = dict(metrics)
    if step is None:
        # As in Lightning, a metric called "step" is the step.
        step = values.pop("step", None)
        step = connector.trainer.fit_loop.epoch_loop._batches_that_stepped if step is None else int(step)
    record(values, step)


def _init(original: Callable[..., Any], callback: type) -> Callable[..., Any]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        _add(self, callback)

    return __init__


@guarded("Lightning")
def _add(trainer: Any, callback: type) -> None:
    if not any(isinstance(found, callback) for found in trainer.callbacks):
        # Lightning calls checkpoint callbacks last, so that they see the effects of the others.
        trainer.callbacks.insert(0, callback())


def _callback_class(lightning: ModuleType) -> type:
    base: Any = lightning.Callback
    report = guarded("Lightning")

    class JupyterDistProgress(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self._meter: Meter | None = None

        @report
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self._meter = Meter(_total(trainer), "")

        @report
        def on_train_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
            if self._meter is not None:
                epochs = trainer.max_epochs
                self._meter.desc = f"epoch {trainer.current_epoch + 1}" + (
                    f"/{epochs}" if epochs is not None and epochs > 0 else ""
                )
                self._meter.update(self._meter.n + 1)

        @report
        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self._close()

        @report
        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            self._close()

        def _close(self) -> None:
            if self._meter is not None:
                self._meter.close()
                self._meter = None

    return JupyterDistProgress


def _total(trainer: Any) -> int | None:
    """Return the number of batches in this fit; None if it is unknown."""
    batches, epochs = trainer.num_training_batches, trainer.max_epochs
    left = None
    if isinstance(batches, int) and epochs is not None and epochs >= 0:
        left = batches * max(0, epochs - trainer.current_epoch)
    if trainer.max_steps >= 0:
        steps = (trainer.max_steps - trainer.global_step) * trainer.accumulate_grad_batches
        left = steps if left is None else min(left, steps)
    return left
