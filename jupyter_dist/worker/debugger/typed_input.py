"""`input()` on a rank: the question goes through the channel, and the answer appears in the log."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from typing import Any

from ..patching import wrap
from .channel import INPUT, NobodyAnswers, current, is_empty

__all__ = ["install"]

_STARTS_WITH = "jupyter_dist."


def install() -> None:
    """Make `input()` ask the user. Repeatable. With a `sys.stdin` of the user's, it stays as it is."""
    wrap(builtins, "input", _asking)


def _asking(original: Callable[..., str]) -> Callable[..., str]:
    def input(prompt: object = "", /) -> str:
        channel = current()
        if channel is None or not is_empty(sys.stdin):
            return original(prompt)
        text = str(prompt)
        with channel.turn:
            sys.stdout.write(text)
            sys.stdout.flush()
            channel.stop(INPUT, _place(channel))
            try:
                line = channel.ask(text)
            except NobodyAnswers as nobody:
                raise EOFError(str(nobody)) from None
            finally:
                channel.go()
            # The echo of a terminal, which `redirect_stdout` does not redirect either.
            print(line, file=sys.__stdout__)
        return line

    return input


def _place(channel: Any) -> str:
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(_STARTS_WITH):
        frame = frame.f_back
    return str(channel.name(frame.f_code.co_filename, frame.f_lineno))
