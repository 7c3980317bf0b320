"""Check that refuses, before anything starts, a cell whose Keras cannot train over several ranks."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Collection

from ..errors import CaptureError
from ..worker import keras
from ..worker.tensorflow.strategies import kind_of, spans_ranks

__all__ = [
    "NEED_LEGACY",
    "OUR_STRATEGY",
    "check",
    "logical_cpus",
    "needs_legacy",
    "spanning_strategy",
    "uses_keras",
]

_KERAS = {"keras", "tf_keras"}
NEED_LEGACY = {
    *("MultiWorkerMirroredStrategy", "ParameterServerStrategy", "ParameterServerStrategyV2"),
    "CollectiveAllReduceStrategy",  # what the first one is called inside
}
_CALLS_STRATEGY = re.compile(
    r"""^[^#\n]*\bstrategy\(\s*(?:kind\s*=\s*)?(?:['"]([\w. -]+)['"])?""", re.MULTILINE
)
_LOGICAL_CPU = re.compile(r"""['"]/?(?:device:)?CPU:(\d{1,2})['"]""", re.IGNORECASE)
OUR_STRATEGY = "`fit` over several ranks, as with dist.strategy(),"
_HOROVODS_KERAS = ("horovod.keras", "horovod.tensorflow.keras", "horovod._keras")

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


def needs_legacy(words: Collection[str], modules: Collection[str]) -> str:
    """Return what in the code does not work with Keras 3. Empty if there is nothing."""
    if any(f"{name}.".startswith(f"{own}.") for name in modules for own in _HOROVODS_KERAS):
        return "Horovod's Keras API"
    found = sorted(NEED_LEGACY & set(words)) if uses_keras(words, modules) else []
    return f"{found[0]} with Keras" if found else ""


def uses_keras(words: Collection[str], modules: Collection[str]) -> bool:
    return bool(_KERAS & set(words)) or any(_KERAS & set(name.split(".")) for name in modules)


def spanning_strategy(words: Collection[str], modules: Collection[str], texts: Collection[str]) -> bool:
    """Return whether `dist.strategy` is called, unless with a strategy that stays within a rank."""
    ours = any(name.partition(".")[0] == "jupyter_dist" for name in modules)
    if not (ours and "strategy" in words):
        return False
    for match in (match for text in texts for match in _CALLS_STRATEGY.finditer(text)):
        with contextlib.suppress(ValueError):  # for an unknown name, the rank lists the known ones
            if match[1] is None or spans_ranks(kind_of(match[1])):
                return True
    return False


def logical_cpus(words: Collection[str], texts: Collection[str]) -> int:
    """Return how many logical CPUs the code names, such as 2 for `devices=["CPU:0", "CPU:1"]`.

    A rank divides its CPU before a dataset of the notebook starts TensorFlow. 1 without `dist.strategy`.
    """
    found = [_LOGICAL_CPU.findall(text) for text in texts] if "strategy" in words else []
    return max((int(number) + 1 for numbers in found for number in numbers), default=1)


def _backend() -> str | None:
    keras = sys.modules.get("keras")
    try:
        return None if keras is None else str(keras.config.backend())
    except AttributeError:  # tf_keras and Keras 2 support only TensorFlow
        return None
