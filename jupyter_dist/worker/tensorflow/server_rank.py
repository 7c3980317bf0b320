"""A rank that only serves other ranks: it marks its folder, and waits until it is ended."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from .. import layout, payload
from ..boot import Terminated
from ..output import events
from ..patching import wrap

__all__ = ["MARK", "patch", "serve"]

MARK = "serving"
"""The file in a rank's folder that marks it as only serving. The run does not wait for such a rank."""


def patch(server_lib: ModuleType) -> None:
    """Replace TensorFlow's `Server.join()`, which never returns, by `serve()` on a rank."""
    wrap(server_lib.Server, "join", _join)


def _join(original: Any) -> Any:
    def join(self: Any) -> Any:
        # `tf.distribute.Server` in the notebook's kernel keeps its own `join`.
        return original(self) if os.environ.get("JUPYTER_DIST_RUN") is None else serve()

    return join


def serve() -> NoReturn:
    """Wait until the supervisor ends this rank, which happens when all ranks that do not serve are done.

    The result is then None. The wait is in Python, because TensorFlow's own join ignores signals.
    """
    folder = _rank_folder()
    (folder / MARK).write_text("{}\n")
    try:
        while True:
            threading.Event().wait()
    except Terminated:
        writer = events.writer()
        if writer is not None:
            writer.result("None", payload.write_value(folder / layout.RESULT, None), None)
        raise


def _rank_folder() -> Path:
    run, attempt = os.environ["JUPYTER_DIST_RUN"], os.environ["JUPYTER_DIST_ATTEMPT"]
    return Path(layout.rank_path(run, attempt, os.environ["RANK"]))
