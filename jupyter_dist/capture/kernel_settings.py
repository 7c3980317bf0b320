"""Settings made in this notebook, for its ranks: settings of imported libraries and of modules.

Nothing is imported, and nothing is changed: no library's state, and no generator's next number.
"""

from __future__ import annotations

import ast
import functools
import io
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..worker import foreign_names
from ..worker.pickling import Pickler, Trace
from ..worker.settings import libraries
from . import kernel_logging, kernel_seeds, library_calls, module_attributes, notebook_history
from . import modules as _modules

__all__ = ["Settings", "is_notebook", "read"]

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_LIBRARIES = "worker/settings/libraries"
_READERS = (
    *("capture/kernel_seeds", "capture/kernel_logging"),
    *(f"{_LIBRARIES}/torch", f"{_LIBRARIES}/tensorflow", f"{_LIBRARIES}/numeric"),
)
"""Modules that read private names of libraries and skip missing names."""
_EVERYWHERE = {"__main__", "cloudpickle", "jupyter_dist", *sys.stdlib_module_names}


@dataclass
class Settings:
    """Captured settings.

    `header` has only plain builtins. `objects` must be pickled with what the cell uses.
    """

    header: dict[str, Any] = field(default_factory=dict)
    objects: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def is_notebook(namespace: Mapping[str, Any]) -> bool:
    """Return whether a namespace is a notebook's or a script's. Other namespaces have no settings."""
    return "In" in namespace or namespace is sys.modules["__main__"].__dict__


def read(
    namespace: Mapping[str, Any],
    directory: Path,
    modules: Collection[str],
    *,
    mains: Sequence[dict[str, Any]],
    hidden: Collection[str],
    own_cell: Sequence[ast.stmt] = (),
    here: bool = True,
) -> Settings:
    """Return the settings in which this process differs from a new rank, if they can be pickled.

    Args:
        modules: the top-level modules that the cell uses. Settings of other modules are not captured.
        mains, hidden: as for pickling.
        own_cell: statements of the cell that the settings are for.
        here: whether all ranks run on this machine, where they can import what this process can.
    """
    found = Settings()
    if not is_notebook(namespace):
        return found
    texts = notebook_history.texts(namespace)
    own: dict[str, bool] = {}

    def is_own(top: str) -> bool:
        if top not in own:
            own[top] = _modules.is_own(top, directory)
        return own[top]

    kept: list[Any] = []

    def keep(value: Any, libraries: Collection[str] | None) -> int | None:
        """Pickle a value with what the cell uses. None if it cannot be pickled, or needs another library.

        `libraries` are those that it may need, None stands for all.
        """
        used = _pickled(value, mains, hidden)
        tops = set() if used is None else {name.partition(".")[0] for name in used}
        if used is None:
            return None
        if libraries is not None and tops - {*libraries, *_EVERYWHERE, *filter(is_own, tops)}:
            return None
        kept.append(value)
        return len(kept) - 1

    found.header = {
        "seeds": kernel_seeds.read(texts),
        "libraries": _libraries(texts, keep, found.notes),
        "loggers": kernel_logging.read_loggers(
            lambda name: not is_own(name.partition(".")[0]),
            # Ranks on other machines have what the cell imports. They may lack what only a logger uses.
            functools.partial(keep, libraries=None if here else modules),
            found.notes.append,
        ),
        "filters": kernel_logging.read_filters(),
    }
    for user in _READERS:
        found.notes += [foreign_names.note(row, names) for row, names in foreign_names.lost(user)]
    attributes = []
    for module, path, value in module_attributes.changed(texts, namespace, modules, is_own):
        if _plain(value) is value or _pickled(value, mains, hidden) is not None:
            attributes.append((module, path, value))
        else:
            name = ".".join((module, *path))
            found.notes.append(
                f"{name}, set in the notebook, stays behind: a {type(value).__name__} that cannot be pickled"
            )
    calls = library_calls.search(
        notebook_history.cells(namespace),
        namespace,
        own_cell=own_cell,
        hidden=hidden,
        used=modules,
        here=here,
        is_own=is_own,
        modules_of=lambda names: _pickled(names, mains, hidden),
    )
    found.notes += calls.notes
    if kept or attributes or calls.calls:
        found.objects = {"kept": kept, "attributes": attributes, "calls": calls.calls}
    return found


def _libraries(
    texts: Sequence[str], keep: Callable[..., int | None], notes: list[str]
) -> dict[str, dict[str, Any]]:
    """Return by library the plain settings, and under `kept` those that must be pickled."""
    found: dict[str, dict[str, Any]] = {}
    for library in libraries.LIBRARIES:
        module = sys.modules.get(library)
        if module is None:
            continue

        def failed(name: str, error: Exception, library: str = library) -> None:
            notes.append(f"{library}'s {name} stays behind: {type(error).__name__}: {error}")

        values = libraries.read(library, module, failed)
        if "set_num_threads" in values and not any("set_num_threads" in text for text in texts):
            del values["set_num_threads"]  # torch's default follows the machine, so a rank uses its own
        for name, value in values.items():
            entries = value if isinstance(value, dict) else {None: value}
            for key, entry in entries.items():
                of_library = found.setdefault(library, {})
                _add(of_library, name, key, entry, functools.partial(keep, libraries=(library,)), notes)
    return found


_NO = object()


def _add(
    found: dict[str, Any],
    name: str,
    key: str | None,
    value: Any,
    keep: Callable[[Any], int | None],
    notes: list[str],
) -> None:
    plain = _plain(value)
    if plain is _NO:
        index = keep(value)
        if index is None:
            shown = name if key is None else f"{name} {key!r}"
            notes.append(f"{shown}, set in the notebook, stays behind: a {type(value).__name__}")
            return
        found.setdefault("kept", []).append((name, key, index))
    elif key is None:
        found[name] = plain
    else:
        found.setdefault(name, {})[key] = plain


def _plain(value: Any) -> Any:
    """Return the value in plain builtins: itself if it already is, `_NO` if it cannot be converted."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind.__module__ == "numpy" and getattr(value, "shape", None) == ():
        return value.item()
    if kind in (list, tuple):
        items = [_plain(item) for item in value]
        return _NO if any(item is _NO for item in items) else kind(items)
    if kind is dict:
        items = [_plain(item) for item in [*value.keys(), *value.values()]]
        return _NO if any(item is _NO for item in items) else value
    return _NO


def _pickled(value: Any, mains: Sequence[dict[str, Any]], hidden: Collection[str]) -> set[str] | None:
    """Return the modules that a value needs for unpickling. None if it cannot be pickled."""
    trace = Trace()
    try:
        pickler = Pickler(
            io.BytesIO(), buffer_callback=lambda _: False, mains=mains, hidden=hidden, trace=trace
        )
        pickler.dump(value)
    except Exception:  # pickling runs the value's own code
        return None
    return trace.modules
