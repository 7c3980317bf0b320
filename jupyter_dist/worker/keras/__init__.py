"""Let Keras 3 itself train over several ranks, where TensorFlow's strategies and Horovod know only Keras 2.

Each module here patches, in a rank's process only, what one of them needs, right after the library's own
import (the table in `worker/autolog` says when). `missing` tells before any import whether the private names
that are patched are there; a Keras that has moved them cannot be helped, and tf_keras takes its place.
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
    return f"this Keras has no {', '.join(moved)}, and {why} does not work without it" if moved else ""


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


def patch_trainer(trainer: ModuleType) -> None:
    """Patch Keras 3's trainer for every strategy that spans ranks."""
    multi_worker.patch(trainer)
    parameter_servers.patch(trainer)
