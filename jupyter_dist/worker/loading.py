"""What the functions that a pickle calls find out about the load that calls them."""

from __future__ import annotations

import builtins
import contextlib
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["Loading", "current", "hold", "loading"]


class Loading:
    """One load: on a rank it has the rank's main namespace, in the kernel one of its own."""

    def __init__(self, main: dict[str, Any] | None) -> None:
        self.on_rank = main is not None
        self.main = {"__name__": "__main__", "__builtins__": builtins} if main is None else main
        self.known: set[int] = set()
        """Classes that were here before; the kernel's own, as a rule."""
        self.referents: list[Any] = []
        """What weak references refer to, held until all is loaded."""


_lock = threading.RLock()
_current: Loading | None = None
_held: list[Any] = []


@contextlib.contextmanager
def loading(main: dict[str, Any] | None) -> Iterator[None]:
    """What is unpickled inside has `main` as its main namespace; None: one of its own."""
    global _current
    with _lock:
        previous, _current = _current, Loading(main)
        try:
            yield
        finally:
            ended, _current = _current, previous
            _let_go(ended)


def current() -> Loading:
    """The load that is under way; a new one of the kernel's kind where none is."""
    return Loading(None) if _current is None else _current


def hold(referents: Iterable[Any]) -> None:
    """Keep what is weakly referred to from being freed before the load has ended."""
    current().referents.extend(referents)


def _let_go(load: Loading) -> None:
    """Free the referents that something else holds, as in the notebook; a rank keeps the others.

    In the notebook something held those as well. It did not travel, so they stay until the rank ends.
    """
    while load.referents:
        referent = load.referents.pop()
        if load.on_rank and sys.getrefcount(referent) <= 2:  # this name and the call's argument
            _held.append(referent)
