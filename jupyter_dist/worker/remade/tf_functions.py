"""A `tf.function` that has run holds graphs, which cannot travel: a rank gets one that has not run.

`_clone` is TensorFlow's own way to one (seen in 2.21). Without it a function travels only before its first
call.
"""

from __future__ import annotations

from typing import Any

from . import Note

__all__ = ["reduce"]


def reduce(obj: Any, note: Note) -> Any:
    clone = getattr(obj, "_clone", None)
    return NotImplemented if clone is None else clone(None).__reduce_ex__(5)
