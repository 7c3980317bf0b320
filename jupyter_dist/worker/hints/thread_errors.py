"""The hint `thread-error`: an exception has ended a thread, and its rank continues."""

from __future__ import annotations

import threading
import traceback
from typing import Any

from . import labels, report, safely

__all__ = ["install"]


def install() -> None:
    """Observe the exceptions that end threads from now on. A hook that the user sets replaces this one."""
    before = threading.excepthook
    if getattr(before, "__module__", None) == __name__:
        return

    def hook(args: Any) -> None:
        before(args)  # the traceback stays in the log
        if args.exc_type is not SystemExit and args.exc_value is not None:
            _report(args)

    threading.excepthook = hook


@safely("thread-error")
def _report(args: Any) -> None:
    frames = traceback.extract_tb(args.exc_traceback)
    own = [frame for frame in frames if frame.filename in labels()]
    last = (own or frames)[-1] if frames else None
    report(
        "thread-error",
        name=getattr(args.thread, "name", "?")[:60],
        error=f"{args.exc_type.__name__}: {args.exc_value}"[:200],
        file="" if last is None else labels().get(last.filename, last.filename),
        line=None if last is None else last.lineno,
    )
