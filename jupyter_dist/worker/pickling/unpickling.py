"""The state of the current load, for the functions that a pickle calls."""

from __future__ import annotations

import builtins
import contextlib
import pickle
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ..former_places import present
from . import other_pythons

__all__ = [
    "HERE",
    "LOCK",
    "Loading",
    "Unpickler",
    "Writer",
    "current",
    "hold",
    "is_foreign",
    "later",
    "loading",
    "on_rank",
    "syntax_of",
]


class Writer(NamedTuple):
    """The Python that has written a pickle."""

    python: str
    """Its minor version, such as `3.11`."""
    texts: Mapping[tuple[str, str], str]
    """The text of each function in the pickle, by its file name and the digest of the text."""


HERE = Writer(f"{sys.version_info[0]}.{sys.version_info[1]}", {})
"""A writer with this process's Python."""


@contextlib.contextmanager
def syntax_of(python: str) -> Iterator[None]:
    """Compile a text of the notebook. A SyntaxError names both Pythons if the notebook has another one."""
    try:
        yield
    except SyntaxError as error:
        if python != HERE.python:
            notebook = f"The notebook has Python {python}"
            error.msg = f"{error.msg} (Python {HERE.python} does not know this syntax. {notebook}.)"
        raise


_NUMERIC = ("numpy._core.numeric", "numpy.core.numeric")
"""The module of `_frombuffer` in numpy 2 and in numpy 1. A search for the other one fails or warns."""


class Unpickler(pickle.Unpickler):
    """An unpickler that also finds what older results, other Pythons and other versions of numpy name."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_frombuffer" and module in _NUMERIC:
            return _frombuffer
        try:
            if is_foreign():
                return other_pythons.found(present(module), name, super().find_class)
            return super().find_class(present(module), name)
        except ModuleNotFoundError:
            package, of_numpy_2, rest = module.partition("numpy._core")
            if package or not of_numpy_2:
                raise
            return super().find_class(f"numpy.core{rest}", name)  # numpy 1, which has the same functions


def _frombuffer(buffer: Any, dtype: Any, shape: Any, order: Any, axes: Any = None) -> Any:
    """Make an array that numpy has pickled. numpy before 2.3 cannot read the order of the axes."""
    import numpy

    array = numpy.frombuffer(buffer, dtype)
    return array.reshape(shape, order=order) if axes is None else array.reshape(shape).transpose(axes)


class Loading:
    """One load. On a rank it uses the rank's main namespace, in the kernel a namespace of its own."""

    def __init__(self, main: dict[str, Any] | None, lazy: Any = None, writer: Writer = HERE) -> None:
        self.on_rank = main is not None
        self.writer = writer
        self.main = {"__name__": "__main__", "__builtins__": builtins} if main is None else main
        self.lazy = lazy
        """The `LazyNames` of the payload if the load is of one of its names, otherwise None."""
        self.made: list[type] = []
        """Classes of the notebook that this load has made on a rank."""
        self.known: set[int] = set()
        """Classes that existed before, usually the kernel's own."""
        self.referents: list[Any] = []
        """Objects with weak references, kept alive until all is loaded."""
        self.unfinished: list[tuple[int, Callable[[], None]]] = []


LOCK = threading.RLock()
"""Held during each load, and while a name of the second part is looked for."""
_current: Loading | None = None
_held: list[Any] = []


class loading:  # a class, because a traceback would show contextlib's frames
    """A context for unpickling with `main` as the main namespace, or a new one for None.

    Functions that were delayed with `later` are called at the end, when all is loaded. `lazy`: the names of
    which one is loaded. `writer`: the Python that has written the pickle.
    """

    def __init__(self, main: dict[str, Any] | None, lazy: Any = None, writer: Writer = HERE) -> None:
        self._load = Loading(main, lazy, writer)
        self._previous: Loading | None = None

    def __enter__(self) -> Loading:
        global _current
        LOCK.acquire()
        self._previous, _current = _current, self._load
        return self._load

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        global _current
        _current = self._previous
        LOCK.release()
        if kind is None:
            for _order, finish in sorted(self._load.unfinished, key=lambda item: item[0]):
                finish()
        _let_go(self._load)


def later(order: int, finish: Callable[[], None]) -> None:
    """Call `finish` when the whole value is loaded. Calls are sorted by `order`, then by arrival."""
    if _current is None:
        finish()
    else:
        _current.unfinished.append((order, finish))


def on_rank() -> bool:
    """Return whether the current load is on a rank rather than in the kernel."""
    return current().on_rank


def is_foreign() -> bool:
    """Return whether another version of Python has written what is loaded now."""
    return current().writer.python != HERE.python


def current() -> Loading:
    """Return the current load, or a new one of the kernel's kind without a current load."""
    return Loading(None) if _current is None else _current


def hold(referents: Iterable[Any]) -> None:
    """Keep objects with weak references alive until the load has ended."""
    current().referents.extend(referents)


def _let_go(load: Loading) -> None:
    """Free the referents that another object keeps alive, as in the notebook. A rank keeps the others.

    In the notebook, some object kept the others alive as well. That object was not sent, so the rank keeps
    them until it ends.
    """
    while load.referents:
        referent, references = _counted(load.referents)
        if load.on_rank and references <= _ALONE:
            _held.append(referent)


def _counted(values: list[Any]) -> tuple[Any, int]:
    """Remove the last value of a list. Return it, and the number of references that this function counts."""
    value = values.pop()
    return value, sys.getrefcount(value)


# The number is measured: since Python 3.14 a local name lends its reference to a call.
_ALONE = _counted([object()])[1]
"""The count for a value that no other object refers to."""
