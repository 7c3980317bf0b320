"""Names of the notebook that the cell's code does not name. A rank unpickles each at the first request.

A pickle file, a string that is evaluated, or a library can ask `__main__` for such a name. So the payload has
a second part: each name has a pickle of its own. A pickle refers to the notebook's other functions and
classes by name. A class or function of the first part therefore stays the same object.

| request | answer |
|---|---|
| `__main__.Net`, a pickle that names `Net` | the module's `__getattr__` (https://peps.python.org/pep-0562/) |
| `eval` or `exec` in the cell | builtins with a `__missing__`, which Python asks last |
| `globals` or `vars` in the cell | all functions and classes are loaded before the cell runs |
| a word in a string or an annotation | the name is loaded before the cell runs |
| `Base.__subclasses__()` | the subclasses are loaded with the base |
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import io
import pickle
import sys
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from . import cloudpickle_parts
from .unpickling import HERE, LOCK, Unpickler, Writer, current, loading

__all__ = ["LazyNames", "SecondPart", "load_all", "notebook_name", "unnamed_message"]


class SecondPart(TypedDict):
    """The second part of a payload."""

    pickles: dict[str, bytes]
    """One pickle for each name."""
    needs: dict[str, list[str]]
    """Names that the code of a name may ask for."""
    data: list[str]
    """Names that are not of functions, classes or imports."""
    homes: dict[str, str]
    """Names that were imported, with their modules. A word in a string does not cause the import.

    A name in an annotation is left out, because the library that asks for it needs the name.
    """
    submodules: dict[str, list[str]]
    """Modules to import for the code of a name, such as `xml.dom` where the code reads it from `xml`."""
    first: list[str]
    """Names to load before the cell runs."""
    all_first: bool
    """Whether the cell reads its namespace as a dict. Then all names are loaded."""
    evaluates: bool
    """Whether the cell evaluates code that is not in it."""


class LazyNames:
    """The names of a payload's second part, on a rank.

    Args:
        main: the dict of `__main__`.
        found: functions and classes of the first part by name. They are never loaded again.
        made: all classes that the first part has made.
        unnamed: all names of the notebook that the first part lacks, with the reason why one did not travel.
        writer: the notebook's Python.
    """

    def __init__(
        self,
        main: dict[str, Any],
        found: Mapping[str, Any],
        made: Iterable[type],
        part: SecondPart,
        unnamed: Mapping[str, str],
        writer: Writer = HERE,
    ) -> None:
        self._main = main
        self._part = part
        self._unnamed = unnamed
        self._writer = writer
        self._objects = dict(found)
        self._made: weakref.WeakSet[type] = weakref.WeakSet(made)
        self._pending: set[str] = set()
        self._fresh: list[str] = []

    def install(self) -> None:
        """Make `__main__` answer requests for the names, and load those that the cell needs at once."""
        self._main["__getattr__"] = self._attribute
        self._load_imported(self._part["first"])
        if self._part["all_first"]:
            self.load_all()
        if self._part["evaluates"]:
            self._main["__builtins__"] = _Builtins(self)  # not earlier: functions of the first part stay fast

    def load_all(self) -> None:
        """Make all values names of `__main__`, except those of modules that nothing has imported."""
        self._load_imported([*self._part["pickles"], *self._objects])

    def get(self, name: str) -> Any:
        """Return the value of a name, which becomes a name of `__main__`. Repeatable.

        Raises KeyError for a name that did not travel, and any exception of its unpickling.
        """
        with LOCK:
            if name not in self._objects:
                self._load(name)
                self._load_needs()
            self._main.setdefault(name, self._objects[name])
            return self._objects[name]

    def reference(self, name: str, identity: Any) -> Any:
        """Return the value to which a pickle of the second part refers by name.

        `identity`: for a class, cloudpickle's identity of the class. A class may refer to itself.
        """
        if name in self._pending and identity in cloudpickle_parts.TRACKED_IDS:
            return cloudpickle_parts.TRACKED_IDS[identity]
        if name not in self._objects:
            self._load(name)
        if self._pending.issubset(self._part["data"]):  # unpickling the data may call methods of the class
            self._load_needs()
        return self._objects[name]

    def has_made(self, cls: type) -> bool:
        """Return whether the first part or an earlier name has made this class."""
        return cls in self._made

    def _attribute(self, name: str) -> Any:
        if name in self._objects or name in self._part["pickles"]:
            return self.get(name)
        if name in self._unnamed:
            raise AttributeError(unnamed_message(name, self._unnamed[name]))
        raise AttributeError(f"module '__main__' has no attribute {name!r}")

    def _load(self, name: str) -> None:
        data = self._part["pickles"][name]
        if name in self._pending:
            raise pickle.UnpicklingError(f"{name} and a value that it refers to cannot be loaded: a circle")
        self._pending.add(name)
        last_asked = self._main.get("__builtins__", builtins)
        try:
            with loading(self._main, self, self._writer) as load:
                value = Unpickler(io.BytesIO(data)).load()
        finally:
            self._pending.remove(name)
            self._main["__builtins__"] = last_asked  # cloudpickle replaces it for each function
        self._made.update(load.made)
        self._objects[name] = value
        self._fresh.append(name)

    def _load_imported(self, names: Iterable[str]) -> None:
        homes = self._part["homes"]
        for name in names:
            if homes.get(name, "sys") in sys.modules:
                self._try(name)

    def _load_needs(self) -> None:
        """Load what the code of the loaded names may ask for. Code that lacks a name reports that itself."""
        while self._fresh:
            name = self._fresh.pop()
            for module in self._part["submodules"].get(name, ()):
                with contextlib.suppress(Exception):
                    importlib.import_module(module)
            for need in self._part["needs"].get(name, ()):
                self._try(need)

    def _try(self, name: str) -> None:
        if name not in self._main and name not in self._pending:
            with contextlib.suppress(Exception):  # unpickling runs the value's own code
                self.get(name)


def load_all(main: Mapping[str, Any]) -> None:
    """Load the names of the second part with which `main` was installed, if there is one."""
    names = getattr(main.get("__getattr__"), "__self__", None)
    if isinstance(names, LazyNames):
        names.load_all()


class _Builtins(dict[str, Any]):
    """Python's builtins, and behind them the names of the second part.

    A function looks for a global name there last. It is slower than with a plain dict, by about 0.1 µs for
    each builtin name that code reads.
    """

    def __init__(self, names: LazyNames) -> None:
        super().__init__(vars(builtins))
        self._names = names

    def __missing__(self, name: str) -> Any:
        return vars(builtins)[name] if hasattr(builtins, name) else self._names.get(name)


def unnamed_message(name: str, reason: str) -> str:
    """Return the text for a name of the notebook that a rank lacks."""
    why = f", and it was left out ({reason})" if reason else ""
    return (
        f"{name} is in the notebook, but this cell does not name it{why}. Write {name} on a line of the cell."
    )


# A pickle calls this function when it is loaded. Its name is part of the format.


def notebook_name(name: str, identity: Any) -> Any:
    return current().lazy.reference(name, identity)
