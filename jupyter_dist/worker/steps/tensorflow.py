"""Waits for tf.data, when Python code iterates over a dataset. TensorFlow's graphs hide theirs."""

from __future__ import annotations

from types import ModuleType

from ..patching import wrap
from . import Part, timed

__all__ = ["patch"]


def patch(module: ModuleType) -> None:
    """Time the elements of datasets. `module`: tensorflow.python.data.ops.iterator_ops."""
    wrap(module.OwnedIterator, "__next__", lambda original: timed(original, Part.DATA))
