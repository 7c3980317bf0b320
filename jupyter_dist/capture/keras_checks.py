"""Check that refuses, before anything starts, a cell whose Keras cannot train over several ranks."""

from __future__ import annotations

import sys
from collections.abc import Collection

from ..errors import CaptureError
from ..worker import keras

__all__ = ["check"]

_BACKEND = """{why} needs a Keras that computes with TensorFlow; in this notebook it computes with \
{backend}. Put this at the top of the notebook and restart the kernel:
    import os; os.environ["KERAS_BACKEND"] = "tensorflow"
Nothing was started."""
_MIXED = """TF_USE_LEGACY_KERAS is set, so {why} goes with tf_keras; but what the cell uses is of Keras 3 \
({found}). At the top of the notebook, write one of these and restart the kernel:
    import os; os.environ["TF_USE_LEGACY_KERAS"] = "1"; import tf_keras as keras
    import os; os.environ["TF_USE_LEGACY_KERAS"] = "0"; import keras
Nothing was started."""
_MOVED = """{why} does not work with the installed Keras, which has no {moved}; tf_keras would take its \
place, but what the cell uses is of Keras 3 ({found}). Put this at the top of the notebook and restart the \
kernel:
    import os; os.environ["TF_USE_LEGACY_KERAS"] = "1"; import tf_keras as keras
Nothing was started."""


def check(why: str, modules: Collection[str]) -> None:
    """Check that the notebook's Keras can train over several ranks.

    Args:
        why: what in the cell Keras 3 cannot do by itself, or empty.
        modules: the modules of the cell's objects.

    Raises CaptureError, with the line to put at the top of the notebook.
    """
    if not why:
        return
    backend = _backend()
    if backend not in (None, "tensorflow"):
        raise CaptureError(_BACKEND.format(why=why, backend=backend))
    found = next(
        (name for name in sorted(modules) if name.startswith(("keras.src", "keras._tf_keras"))), None
    )
    if found is None:
        return
    if keras.wants_legacy():
        if why == keras.HOROVOD:
            raise CaptureError(_MIXED.format(why=why, found=found))
    elif moved := keras.missing():
        raise CaptureError(_MOVED.format(why=why, found=found, moved=", ".join(moved)))


def _backend() -> str | None:
    keras = sys.modules.get("keras")
    try:
        return None if keras is None else str(keras.config.backend())
    except AttributeError:  # tf_keras and Keras 2 support only TensorFlow
        return None
