"""Progress bars of Keras on a rank.

They are reported as progress; the log gets their last line, with the metrics. `fit` has a meter of its own
(keras.py), which counts over all epochs. `evaluate`, `predict` and bars of users
(https://keras.io/api/utils/python_utils/#progbar-class) use the meters of this module.
"""

from __future__ import annotations

import contextlib
import math
import threading
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from ..output.progress_meter import Meter
from ..patching import wrap
from . import guarded

__all__ = ["fitting", "patch"]

_now = threading.local()


def patch(keras: ModuleType) -> None:
    """Make every `Progbar` of keras or tf_keras draw only its final state."""
    bar = keras.utils.Progbar
    wrap(bar, "__init__", _init)
    wrap(bar, "update", _update)


@contextlib.contextmanager
def fitting() -> Iterator[None]:
    """Mark this thread as fitting a model, whose progress is already reported."""
    before = getattr(_now, "fits", False)
    _now.fits = True
    try:
        yield
    finally:
        _now.fits = before


def _init(original: Callable[..., Any]) -> Callable[..., Any]:
    def __init__(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        if getattr(self, "verbose", 0) == 1:
            self.interval = math.inf  # seconds between two drawings; the last one is always drawn

    return __init__


def _update(original: Callable[..., Any]) -> Callable[..., Any]:
    def update(self: Any, *args: Any, **options: Any) -> Any:
        result = original(self, *args, **options)
        if getattr(self, "verbose", 0) == 1 and not getattr(_now, "fits", False):
            _report(self, *args, **options)
        return result

    return update


@guarded("Keras' bars")
def _report(bar: Any, current: Any, values: Any = None, finalize: Any = None, **_: Any) -> None:
    total = None if bar.target is None else int(bar.target)
    meter: Meter | None = vars(bar).get("_jupyter_dist_meter")
    if meter is None:
        meter = vars(bar)["_jupyter_dist_meter"] = Meter(total, "")
        weakref.finalize(bar, meter.close)  # closes the meter of a bar that was abandoned
    meter.total = total
    meter.update(int(current))
    if finalize or (finalize is None and total is not None and current >= total):
        meter.close()
