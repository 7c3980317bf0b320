"""Metrics and progress of Hugging Face's Trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from ..output.progress_meter import Meter
from ..patching import wrap
from . import guarded, quietly, record

__all__ = ["patch_tensorboard", "patch_trainer"]


def patch_trainer(trainer: ModuleType) -> None:
    """Add our callback to every Trainer. `trainer` is transformers.trainer."""
    callback = _callback_class(trainer)
    wrap(trainer.Trainer, "__init__", lambda original: _init(original, callback))


def patch_tensorboard(integrations: ModuleType) -> None:
    """Prevent the SummaryWriter from recording the values of `on_log` a second time as `train/…`."""
    wrap(integrations.TensorBoardCallback, "on_log", quietly)


def _init(original: Callable[..., Any], callback: type) -> Callable[..., Any]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        _add(self, callback)

    return __init__


@guarded("transformers.Trainer")
def _add(trainer: Any, callback: type) -> None:
    if not any(isinstance(found, callback) for found in trainer.callback_handler.callbacks):
        trainer.add_callback(callback())


def _callback_class(trainer: ModuleType) -> type:
    base: Any = trainer.TrainerCallback
    report = guarded("transformers.Trainer")

    class JupyterDistCallback(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self._meter: Meter | None = None

        @report
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            # A Trainer that raised has not called on_train_end.
            self._close()
            total = state.max_steps if state.max_steps > 0 else None
            self._meter = Meter(total, "")

        @report
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if self._meter is not None:
                self._meter.update(state.global_step)

        @report
        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._close()

        @report
        def on_log(
            self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **kwargs: Any
        ) -> None:
            # The epoch is the time of a measurement, not a measured value.
            record(
                {name: value for name, value in (logs or {}).items() if name != "epoch"}, state.global_step
            )

        def _close(self) -> None:
            if self._meter is not None:
                self._meter.close()
                self._meter = None

    return JupyterDistCallback
