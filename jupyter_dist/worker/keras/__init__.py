"""Training with Keras 3 over several ranks.

TensorFlow's strategies and Horovod support only Keras 2. Each module of this package patches the functions
that one of them needs. It does so only in a rank's process, right after the import of the library. If a
version of Keras has moved these functions, patching is impossible, and tf_keras replaces Keras 3.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Mapping
from types import ModuleType

from ..foreign_names import KERAS3
from . import multi_worker, parameter_servers, tf_keras
from .when_loaded import loaded, shim

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
"""The reason why a cell needs more than Keras 3, if the reason is Horovod."""


def wants_legacy(env: Mapping[str, str] = os.environ) -> bool:
    """Return whether the user has requested tf_keras from TensorFlow, by TensorFlow's own rule."""
    return env.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true")


def swaps(why: str, env: Mapping[str, str]) -> str:
    """Return why tf_keras replaces Keras 3 in a rank with this environment; empty if it does not."""
    if wants_legacy(env):
        # TensorFlow's own strategies then work unchanged. Horovod's Keras API imports `keras` itself.
        return "TF_USE_LEGACY_KERAS is set" if why == HOROVOD else ""
    moved = missing()
    return f"this Keras has no {', '.join(moved)}, and {why} does not work without it" if moved else ""


def arrange(why: str) -> None:
    """Make tf_keras replace keras if the cell needs it, before any import. Nearly no cell does.

    `why`: the feature of the cell that Keras 3 lacks without this package.
    Raises RuntimeError without tf_keras.
    """
    reason = swaps(why, os.environ)
    if reason:
        tf_keras.arrange(why)
        print(f"jupyter_dist: `keras` is tf_keras here; {reason}", file=sys.stderr)


def missing() -> list[str]:
    """Return the private names that the installed Keras 3 lacks. Imports nothing.

    The list is empty if Keras can be patched, or if there is no Keras 3.
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


def patch_trainer(trainer: ModuleType) -> None:
    """Patch Keras 3's trainer for every strategy that spans ranks."""
    multi_worker.patch(trainer)
    parameter_servers.patch(trainer)
