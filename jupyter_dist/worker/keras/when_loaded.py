"""Hooks that do nothing where Keras 3 does not compute with TensorFlow."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["loaded", "shim"]


def loaded() -> bool:
    """Whether Keras 3 is imported in this process and computes with TensorFlow."""
    return "keras.src.backend.tensorflow.core" in sys.modules


def shim(patch: Callable[[Any], None]) -> Callable[[ModuleType], None]:
    """A hook that patches nothing without Keras 3.

    A shim looks up all that it needs before it changes anything, because half of a shim trains in silence
    what it should not. What it raises refuses the import, or the strategy (`worker/autolog`).
    """

    @functools.wraps(patch)
    def call(module: ModuleType) -> None:
        if loaded():
            patch(module)

    return call
