"""What the functions that a pickle calls find out about the load that calls them."""

from __future__ import annotations

import builtins
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["Loading", "current", "hold", "later", "loading", "on_rank"]


class Loading:
    """One load: on a rank it has the rank's main namespace, in the kernel one of its own."""

    def __init__(self, main: dict[str, Any] | None) -> None:
        self.on_rank = main is not None
        self.main = {"__name__": "__main__", "__builtins__": builtins} if main is None else main
        self.known: set[int] = set()
        """Classes that were here before; the kernel's own, as a rule."""
        self.referents: list[Any] = []
        """What weak references refer to, held until all is loaded."""
        self.unfinished: list[tuple[int, Callable[[], None]]] = []


_lock = threading.RLock()
_current: Loading | None = None
_held: list[Any] = []


class loading:  # a class, because a traceback would show contextlib's frames
    """What is unpickled inside has `main` as its main namespace; None: one of its own.

    What was put off with `later` is done at the end, when all is loaded.
    """

    def __init__(self, main: dict[str, Any] | None) -> None:
        self._load = Loading(main)
        self._previous: Loading | None = None

    def __enter__(self) -> None:
        global _current
        _lock.acquire()
        self._previous, _current = _current, self._load

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        global _current
        _current = self._previous
        _lock.release()
        if kind is None:
            for _order, finish in sorted(self._load.unfinished, key=lambda item: item[0]):
                finish()
        _let_go(self._load)


def later(order: int, finish: Callable[[], None]) -> None:
    """Call `finish` when all of the value is loaded: by `order`, else as they came."""
    if _current is None:
        finish()
    else:
        _current.unfinished.append((order, finish))


def on_rank() -> bool:
    """Whether what is being unpickled arrives on a rank, not in the kernel."""
    return current().on_rank


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
        referent, references = _counted(load.referents)
        if load.on_rank and references <= _ALONE:
            _held.append(referent)


def _counted(values: list[Any]) -> tuple[Any, int]:
    """Take the last value off a list. Returns it, and how many references this function saw of it."""
    value = values.pop()
    return value, sys.getrefcount(value)


# Counted instead of written down: since Python 3.14 a local name lends its reference to a call.
_ALONE = _counted([object()])[1]
"""What is counted for a value that nothing else holds."""
