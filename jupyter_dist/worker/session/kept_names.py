"""The names of a session's rank, and whose they are: the ranks' or the notebook's.

A name that a cell has assigned belongs to the ranks. Every other name comes from the notebook. A cell has
assigned a name that refers to another object after the cell. A cell that succeeds has also assigned each
name whose assignment is outside of branches and loops: `x = 1` may assign the object that `x` already is.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import types
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import listing, payload
from ..output import events
from ..pickling.lazy_names import LazyNames
from ..rank import shipped_modules
from ..settings import OBJECTS
from . import process_group
from .content import digest
from .shipped_versions import ShippedVersions

__all__ = ["KeptNames", "forced"]

_LONGEST_TYPE = 60
_ARRAYS = ("numpy", "torch", "pandas")
_DEFINITIONS = (type, types.FunctionType, type(functools.lru_cache(len)))
_NONE = object()
"""The value of a name that is not there."""
_OF_A_CALL = {"fn", "args", "kwargs", "names", OBJECTS}
forced: set[str] = set()
"""Names that the present cell has assigned in another way than its code shows."""


class KeptNames:
    """The `__main__` of a session's rank."""

    def __init__(self) -> None:
        self.main = types.ModuleType("__main__")
        self.keep: Collection[str] = frozenset()
        """Names of the present cell that the notebook must not overwrite."""
        self.first: Collection[str] = ()
        """Payloads of the functions to call before the present cell's names are loaded."""
        self.tells = False
        """Whether this rank writes the notes that all ranks of the present cell would write."""
        self._labels: dict[str, str] = {}
        """The labels of all cells by their files: functions stay longer than the cell that has sent them."""
        self._modules_paths: list[str] = []
        self._shipped = ShippedVersions()
        self._settings: Any = None
        self._settings_are_new = False
        self._digest: str | None = None
        """The digest of the settings' objects."""
        self.all_settings: tuple[Mapping[str, Any], dict[str, Any]] = {}, {}
        """The notebook's settings, including those that have not changed, and their objects."""
        self._of_script: Mapping[str, Any] = {}
        """Names of the last cell that was a script, such as `__file__`, as the cells before it had them."""
        self._arguments: list[str] | None = None
        """The notebook's `sys.argv`; None before the first cell."""
        self._from_notebook: dict[str, str | None] = {}
        """Names that the notebook has sent, with digests of the values that arrived."""
        self._of_modules: set[str] = set()
        """Names of the notebook for functions and classes of modules beside it."""
        self._ids: dict[str, int] | None = None
        """What the names referred to when the present cell's code began; None if it has not begun."""
        self._before: dict[str, Callable[[], Any]] = {}
        """References to the values, before the cell, of names that its code assigns."""
        self._cell: tuple[str, str, int] | None = None
        """The source, the file name and the compiler flags of the present cell; None for a call."""
        self._assigns: frozenset[str] = frozenset()
        """Names that the present cell assigns if it runs to its end."""
        self.installed: list[str] = []
        """Names that the notebook has sent with the present cell."""

    def changed(self, names: Collection[str]) -> list[str]:
        """Return those of the names whose values have changed here since the notebook sent them.

        Classes and functions are left out. Use changes them as well: pickling an object adds
        `__slotnames__` to its class. The notebook's present definition counts.
        """
        space = self.main.__dict__
        return [
            name
            for name in names
            if name in space
            and name in self._from_notebook
            and not issubclass(type(space[name]), _DEFINITIONS)
            and digest(space[name], space) != self._from_notebook[name]
        ]

    def enter(self, modules_path: str | None) -> None:
        """Take the modules of earlier cells off the search path, if the present cell has them too.

        `modules_path`: the folder with the modules of the present cell; None if it has none.
        """
        self.installed = []
        if modules_path is None:
            return
        own = listing.names(modules_path)
        for path in [path for path in self._modules_paths if set(listing.names(path)) <= set(own)]:
            self._modules_paths.remove(path)
            shipped_modules.remove(path)
        self._modules_paths.append(modules_path)
        note = self._shipped.note(modules_path)
        writer = events.writer()
        if note is not None and self.tells and writer is not None:
            writer.note(note)

    def all_labels(self, labels: Mapping[str, str]) -> Mapping[str, str]:
        """Return the labels of the present cell's payload, and those of earlier payloads."""
        self._labels.update(labels)
        return self._labels

    def new_settings(self, header: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the notebook's settings if they have changed since the last cell.

        The state of the random generators comes with the first cell only. It is the ranks' afterwards.
        """
        found: dict[str, Any] = dict(header.get("settings", {}))
        seeds = found.pop("seeds", {})
        first, self._settings = self._settings is None, self._settings or {}
        self._settings_are_new = first or found != self._settings
        if not self._settings_are_new:
            return {}
        self._settings = dict(found)
        return {**found, "seeds": seeds} if first else found

    def new_arguments(self, argv: Sequence[str]) -> list[str]:
        """Return the `sys.argv` of the present cell: the ranks' own after a cell has changed it.

        If the notebook has changed its arguments since the last cell, the notebook's count.
        """
        before, self._arguments = self._arguments, list(argv)
        is_own = before is not None and sys.argv != before and before[1:] == self._arguments[1:]
        return sys.argv if is_own else list(argv)

    def script_names(self, names: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the present cell's names of a script, such as `__file__`. Undo those of an earlier one.

        `names`: empty if the present cell is no script.
        """
        space = self.main.__dict__
        for name, value in self._of_script.items():
            if value is _NONE:
                space.pop(name, None)
            else:
                space[name] = value
        self._of_script = {name: space.get(name, _NONE) for name in names}
        return names

    def new_objects(
        self, settings: Mapping[str, Any], objects: dict[str, Any]
    ) -> tuple[Mapping[str, Any], dict[str, Any]]:
        """Return the settings that have changed, those of changed objects too, and the objects for them."""
        now = digest(objects, self.main.__dict__) if objects else ""
        before, self._digest = self._digest, now
        if not self._settings_are_new and before == now:
            return {}, {}
        self.all_settings = self._settings, objects
        return settings or _of_objects(self._settings), objects

    def load(self, path: Path, *, main: dict[str, Any], header: Mapping[str, Any]) -> dict[str, Any]:
        """Load a payload with this header, and return its names without those of the ranks."""
        self._call_first(main)
        for name in self._of_modules & self._from_notebook.keys() & main.keys():
            main[name] = self._shipped.present(main[name]) or main[name]  # after a reload
        own = {name: main[name] for name in self.keep if name in main}
        before = self._identities()
        names: dict[str, Any] = payload.load(path, main=main, header=header)
        main.update(own)
        is_call = {"fn", "args", "kwargs"} <= names.keys() and names.keys() <= _OF_A_CALL
        if is_call:
            main.update({name: value for name, value in names.pop("names", {}).items() if name not in own})
        else:
            names = {name: value for name, value in names.items() if name not in own}
            main.update({name: value for name, value in names.items() if name != OBJECTS})
        self.installed = [name for name, ident in self._identities().items() if before.get(name) != ident]
        if not is_call:
            self.installed = sorted({*self.installed, *names} - {OBJECTS, *own})
        for name in self.installed:
            self._from_notebook[name] = digest(main[name], main)
            by_reference = self._shipped.present(main[name]) is main[name]
            (self._of_modules.add if by_reference else self._of_modules.discard)(name)
        return names

    def _call_first(self, main: dict[str, Any]) -> None:
        """Call the functions that a fresh rank calls first. What they assign belongs to the ranks."""
        for path in self.first:
            names = payload.load(Path(path), main=main)
            before = self._identities()
            names["fn"](*names["args"], **names["kwargs"])
            after = self._identities()
            forced.update(name for name, ident in after.items() if before.get(name) != ident)
        self.first = ()

    def begin(self, header: Mapping[str, Any]) -> None:
        """Note what the names refer to, right before the cell's code runs."""
        self._ids = self._identities()
        self._cell, self._assigns = None, frozenset()
        self._before = {}
        if header["kind"] == "cell":
            self._cell = header["source"], header["filename"], header["flags"]
            self._assigns = frozenset(header["assigns"])
            for name in self._ids.keys() & header["writes"]:
                reference = _reference(self.main.__dict__[name], may_hold=name not in self._assigns)
                if reference is not None:
                    self._before[name] = reference

    def explain(self, error: BaseException) -> None:
        """Add a note to an error of the cell for each name whose object has an old class.

        The notebook has defined the class again since the object was made.
        """
        if self._cell is None:
            return
        source, filename, flags = self._cell
        try:
            code = compile(source, filename, "exec", flags, dont_inherit=True)
        except (SyntaxError, ValueError):  # the error itself, if the ranks have an older Python
            return
        space = self.main.__dict__
        for name in sorted(space.keys() & code.co_names):
            with contextlib.suppress(Exception):  # code of the user's classes; an error without notes
                self._explain(error, name, space[name])

    def _explain(self, error: BaseException, name: str, value: object) -> None:
        if not hasattr(error, "add_note"):  # Python 3.10
            return
        old_group = process_group.advice(name, value)
        if old_group is not None:
            error.add_note(old_group)
        kind = type(value)
        now = self._present(kind.__name__)
        if kind.__module__ == "__main__" and isinstance(now, type) and now is not kind:
            error.add_note(
                f"{name} is an object of an earlier definition of {kind.__name__}. Make it "
                f"again with the present class, or set {name}.__class__ = {kind.__name__}."
            )

    def _present(self, name: str) -> Any:
        """Return the notebook's present value of a function or class, or this rank's."""
        lazy = getattr(self.main.__dict__.get("__getattr__"), "__self__", None)
        if isinstance(lazy, LazyNames):
            with contextlib.suppress(Exception):  # the cell's own error counts
                return lazy.get(name)
        return self.main.__dict__.get(name)

    def assigned(self, *, succeeded: bool) -> list[str]:
        """Return the names that the cell has assigned, after the cell's end."""
        now, before = self._identities(), self._ids
        # A cell that was stopped before its code, or whose names did not load, has assigned nothing.
        found: set[str] = set()
        if before is not None:
            found = {name for name, ident in now.items() if before.get(name) != ident}
        # A loop that assigns a name twice can place the second value where the first one was.
        found |= {name for name in self._before.keys() & now.keys() if id(self._before[name]()) != now[name]}
        self._before = {}
        if succeeded:
            found |= self._assigns & now.keys()
        found |= forced & now.keys()
        forced.clear()
        for name in found:
            self._from_notebook.pop(name, None)
        self._ids = self._cell = None
        return sorted(found)

    def kinds(self) -> dict[str, str]:
        """Return all names of this rank with the types and sizes of their values: `list, 12 items`.

        Of a module, this is its name: `module math`.
        """
        return {
            name: _described(value)
            for name, value in list(self.main.__dict__.items())
            if not _is_pythons(name)
        }

    def _identities(self) -> dict[str, int]:
        return {name: id(value) for name, value in list(self.main.__dict__.items()) if not _is_pythons(name)}


def _reference(value: object, *, may_hold: bool) -> Callable[[], Any] | None:
    """Return a function that returns the value as long as it exists.

    Python has no weak references to lists, dicts and tuples. Their memory is held only if `may_hold`.
    """
    try:
        return weakref.ref(value)
    except TypeError:
        return (lambda: value) if may_hold or not isinstance(value, (list, dict, tuple)) else None


def _described(value: object) -> str:
    kind = type(value)
    told = kind.__name__[:_LONGEST_TYPE]
    with contextlib.suppress(Exception):  # a parameter of torch without data has no shape
        told = digest(value, {}) or told if isinstance(value, types.ModuleType) else told + _size_of(value)
    return told[:_LONGEST_TYPE]


def _size_of(value: object) -> str:
    kind = type(value)
    if isinstance(value, (list, tuple, dict, set, frozenset)) and kind.__module__ == "builtins":
        return f", {len(value)} item{'' if len(value) == 1 else 's'}"
    # The attributes of other classes can run code of the user.
    if kind.__module__.partition(".")[0] in _ARRAYS:
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple) and shape:
            element = getattr(value, "dtype", None)
            of = "" if element is None else f" {str(element).removeprefix('torch.')}"
            return f" {'×'.join(map(str, shape))}{of}"
    return ""


def _is_pythons(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _of_objects(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings whose values are among the settings' objects."""
    libraries = {
        name: {"kept": of["kept"]} for name, of in settings.get("libraries", {}).items() if "kept" in of
    }
    return {"libraries": libraries, **{name: of for name, of in settings.items() if name == "loggers"}}
