"""Hooks that do nothing unless Keras 3 computes with TensorFlow."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["loaded", "shim"]


def loaded() -> bool:
    """Return whether Keras 3 is imported in this process and computes with TensorFlow."""
    return "keras.src.backend.tensorflow.core" in sys.modules


def shim(patch: Callable[[Any], None]) -> Callable[[ModuleType], None]:
    """Return a hook that patches nothing without Keras 3.

    A shim looks up every name before it changes anything, because a partial patch would silently train
    wrongly. An exception of the shim refuses the import, or the strategy (`worker/autolog`).
    """

    @functools.wraps(patch)
    def call(module: ModuleType) -> None:
        if loaded():
            patch(module)

    return call
