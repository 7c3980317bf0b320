"""The driver log of code for HorovodRunner: `log_to_driver`, and a callback of Keras that uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    LogCallback: type[Any]

__all__ = ["log_to_driver"]

_LONGEST = 4000
_made: dict[Any, type[Any]] = {}


def log_to_driver(message: str) -> None:
    """Print a line into this rank's log, which the notebook shows. It is cut after 4,000 characters."""
    print(str(message)[:_LONGEST], flush=True)


def __getattr__(name: str) -> Any:
    if name != "LogCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Keras is imported when a rank first uses the class. By then the version of Keras is decided.
    from tensorflow import keras

    if keras.callbacks.Callback not in _made:
        _made[keras.callbacks.Callback] = _log_callback(keras.callbacks.Callback)
    return _made[keras.callbacks.Callback]


def _log_callback(base: Any) -> type[Any]:
    class LogCallback(base):  # type: ignore[misc]
        """A callback that logs every epoch, and every batch with `per_batch_log`."""

        def __init__(self, per_batch_log: bool = False) -> None:
            super().__init__()
            self.per_batch_log = per_batch_log
            self._epoch = 0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._epoch = epoch
            log_to_driver(f"epoch {epoch} begins")

        def on_batch_end(self, batch: int, logs: Any = None) -> None:
            if self.per_batch_log:
                log_to_driver(f"epoch {self._epoch}, batch {batch}: {_told(logs)}")

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            log_to_driver(f"epoch {epoch} ends: {_told(logs)}")

    return LogCallback


def _told(logs: Any) -> str:
    return ", ".join(f"{name} {float(value):.4g}" for name, value in (logs or {}).items())
