"""Metrics written for TensorBoard by `SummaryWriter` of torch or tensorboardX, or by `tf.summary.scalar`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from ..patching import wrap
from . import guarded, record

__all__ = ["patch", "patch_tensorflow", "renew"]

_steps: dict[str, int] = {}


def renew() -> None:
    """Count the steps of writers from the start, because another run begins in this process."""
    _steps.clear()


def patch(writer: ModuleType) -> None:
    """Record the scalars of every SummaryWriter. `writer` is the module that defines it."""
    wrap(writer.SummaryWriter, "add_scalar", _add_scalar)
    wrap(writer.SummaryWriter, "add_scalars", _add_scalars)


def _add_scalar(original: Callable[..., Any]) -> Callable[..., Any]:
    def add_scalar(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        _record_scalar(*args, **kwargs)
        return result

    return add_scalar


@guarded("SummaryWriter")
def _record_scalar(tag: str, scalar_value: Any, global_step: Any = None, *_: Any, **__: Any) -> None:
    _record(tag, {tag: scalar_value}, global_step)


def _add_scalars(original: Callable[..., Any]) -> Callable[..., Any]:
    def add_scalars(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        _record_scalars(*args, **kwargs)
        return result

    return add_scalars


@guarded("SummaryWriter")
def _record_scalars(main_tag: str, tag_scalar_dict: Any, global_step: Any = None, *_: Any, **__: Any) -> None:
    _record(main_tag, {f"{main_tag}/{tag}": v for tag, v in tag_scalar_dict.items()}, global_step)


def _record(tag: str, values: Mapping[str, Any], step: Any) -> None:
    if tag == "hp_metric" and values[tag] == -1:
        # Lightning writes this placeholder so that TensorBoard lists the hyperparameters.
        return
    if step is None:
        step = _steps[tag] = _steps.get(tag, -1) + 1
    record(values, int(step))  # as the writer does: a step can be `epoch + batch / batches`


def patch_tensorflow(summary: ModuleType) -> None:
    """Record the values that `tf.summary.scalar` writes. `summary` is the module that it calls."""
    wrap(summary, "scalar", _scalar)


def _scalar(original: Callable[..., Any]) -> Callable[..., Any]:
    def scalar(*args: Any, **kwargs: Any) -> Any:
        written = original(*args, **kwargs)
        _record_tensorflow(written, *args, **kwargs)
        return written

    return scalar


@guarded("tf.summary")
def _record_tensorflow(written: Any, name: str, data: Any, step: Any = None, *_: Any, **__: Any) -> None:
    tf = sys.modules["tensorflow"]
    # In a tf.function the values are not computed yet, and without a writer nothing is written.
    if not tf.executing_eagerly() or not written:
        return
    scope = tf.get_current_name_scope()
    step = tf.summary.experimental.get_step() if step is None else step
    record({f"{scope}/{name}" if scope else name: data}, step)
