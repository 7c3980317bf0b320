"""The hint `one-file`: several ranks save a file of the same path on one machine."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..patching import wrap
from . import report, safely, wanted, world_size

__all__ = ["patch_joblib", "patch_keras", "patch_torch"]

_MOST = 50
_seen: set[str] = set()


def patch_torch(torch: ModuleType) -> None:
    """Observe `torch.save`."""
    wrap(torch, "save", _saving("torch.save", 1, "f"))


def patch_joblib(joblib: ModuleType) -> None:
    """Observe `joblib.dump`."""
    wrap(joblib, "dump", _saving("joblib.dump", 1, "filename"))


def patch_keras(keras: ModuleType) -> None:
    """Observe `save` and `save_weights` of Keras' models."""
    for name in ("save", "save_weights"):
        wrap(keras.Model, name, _saving(f"model.{name}", 1, "filepath"))


def _saving(what: str, index: int, keyword: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def save(*args: Any, **options: Any) -> Any:
            done = original(*args, **options)
            _saved(what, args[index] if len(args) > index else options.get(keyword))
            return done

        return save

    return make


@safely("one-file")
def _saved(what: str, path: Any) -> None:
    if not isinstance(path, (str, os.PathLike)) or world_size() < 2 or not wanted("one-file"):
        return
    real = os.path.realpath(os.fsdecode(path))
    if real in _seen or len(_seen) >= _MOST or real.startswith("/dev/") or _is_arranged():
        return
    _seen.add(real)
    report("one-file", last=False, path=real, host=socket.gethostname(), what=what)


def _is_arranged() -> bool:
    """Return whether TensorFlow spans the ranks: then all must save, and it writes one of the files."""
    tensorflow = sys.modules.get("tensorflow")
    distribute = getattr(tensorflow, "distribute", None)
    return distribute is not None and bool(distribute.has_strategy())
