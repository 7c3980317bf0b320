"""Let Keras 3 itself train over several ranks, where TensorFlow's strategies and Horovod know only Keras 2.

Each module here patches, in a rank's process only, what one of them needs, right after the library's own
import (the table in `worker/autolog` says when). `missing` tells before any import whether the private names
that are patched are there; a Keras that has moved them cannot be helped, and tf_keras takes its place.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from ..foreign_names import KERAS3
from . import tf_keras

__all__ = [
    "HOROVOD",
    "arrange",
    "loaded",
    "missing",
    "patch_trainer",
    "shim",
    "swaps",
    "wants_legacy",
]

HOROVOD = tf_keras.HOROVOD
"""The reason for which a cell needs more than Keras 3 alone, where that is Horovod's."""


def wants_legacy(env: Mapping[str, str] = os.environ) -> bool:
    """Whether the user has asked TensorFlow for tf_keras, the way TensorFlow reads it."""
    return env.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true")


def swaps(why: str, env: Mapping[str, str]) -> str:
    """Why tf_keras takes the place of Keras 3 in a rank with this environment; empty where it does not."""
    if wants_legacy(env):
        # TensorFlow's own strategies then work as they are; Horovod's Keras API imports `keras` by itself.
        return "TF_USE_LEGACY_KERAS is set" if why == HOROVOD else ""
    moved = missing()
    return f"this Keras has no {', '.join(moved)}, without which {why} does not work" if moved else ""


def arrange(why: str) -> None:
    """Before any import: let tf_keras stand for keras where the cell needs that, which nearly none does.

    `why`: what in the cell Keras 3 cannot do without this package. Raises RuntimeError without tf_keras.
    """
    reason = swaps(why, os.environ)
    if reason:
        tf_keras.arrange(why)
        print(f"jupyter_dist: `keras` is tf_keras here; {reason}", file=sys.stderr)


def missing() -> list[str]:
    """The private names that this installation's Keras 3 no longer has. Imports nothing.

    Empty for a Keras that can be patched, and where there is no Keras 3 at all.
    """
    try:
        version = importlib.metadata.version("keras")
        spec = importlib.util.find_spec("keras")
    except (importlib.metadata.PackageNotFoundError, ImportError, ValueError):
        return []
    if spec is None or spec.origin is None or int(version.partition(".")[0]) < 3:
        return []
    return [
        name.removeprefix(row.module.rpartition(".")[0] + ".") for row in KERAS3 for name in row.lacking()
    ]


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


def patch_trainer(trainer: ModuleType) -> None:
    """Patch Keras 3's trainer for every strategy that spans ranks."""
    from . import multi_worker, parameter_servers

    multi_worker.patch(trainer)
    parameter_servers.patch(trainer)
