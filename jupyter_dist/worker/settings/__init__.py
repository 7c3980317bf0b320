"""The settings of the notebook, applied on a rank as soon as each library is imported. Imports no library."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial, reduce
from typing import Any

from .. import import_hooks
from ..output import events
from . import libraries, library_calls, loggers, seeds

__all__ = ["OBJECTS", "after_names", "before_names"]

OBJECTS = " settings"
"""The name of the settings' objects among the cell's names. No variable of a user can have this name."""

_FOR_NAMES = ("sys", "tensorflow", "keras", "tf_keras")
"""Libraries whose settings may be needed to load names.

TensorFlow accepts some only before its first variable.
"""


def before_names(settings: Mapping[str, Any]) -> None:
    """Apply the settings that are needed before the cell's names are loaded and their modules imported.

    In a notebook, imports precede settings, so only the necessary settings are applied here. A warning that
    is now an error was only a warning when the notebook imported the module that raises it.
    """
    for library, values in settings.get("libraries", {}).items():
        if library == "keras":
            _choose_backend(values)
        if library in _FOR_NAMES:
            import_hooks.call(library, partial(_write, library, values))
    if "filters" in settings:
        loggers.apply_filters([item for item in settings["filters"] if item[0] != "error"])


def after_names(
    settings: Mapping[str, Any], objects: Mapping[str, Any], rank: int, main: dict[str, Any]
) -> None:
    """Apply all settings after the names are loaded and before the cell.

    They override settings of imported modules. `main` is the namespace in which the cell runs.
    """
    library_calls.repeat(objects.get("calls", ()), main, _note)
    kept = objects.get("kept", ())
    for library, values in settings.get("libraries", {}).items():
        import_hooks.call(library, partial(_write, library, values))
        given: dict[str, Any] = {}
        for name, key, index in values.get("kept", ()):
            if key is None:
                given[name] = kept[index]
            else:
                given.setdefault(name, {})[key] = kept[index]
        if given:
            import_hooks.call(library, partial(_write, library, given))
    if "loggers" in settings:
        loggers.apply_loggers(settings["loggers"], kept.__getitem__)
    if "filters" in settings:
        loggers.apply_filters(settings["filters"])
    for module, path, value in objects.get("attributes", ()):
        import_hooks.call(module, partial(_set, module, path, value))
    attempt = int(os.environ.get("JUPYTER_DIST_ATTEMPT", 0))
    seeds.apply(settings.get("seeds", {}), rank, attempt)


def _write(library: str, values: Mapping[str, Any]) -> None:
    libraries.write(library, sys.modules[library], values, partial(_failed, library))


def _failed(library: str, name: str, error: Exception) -> None:
    _note(f"{library}'s {name} differs from the notebook here: {type(error).__name__}: {error}")


def _set(module: str, path: tuple[str, ...], value: Any) -> None:
    *owners, name = path
    try:
        setattr(reduce(getattr, owners, sys.modules[module]), name, value)
    except Exception as error:  # the module may have changed since the notebook imported it
        _note(f"{'.'.join((module, *path))} differs from the notebook here: {type(error).__name__}: {error}")


def _choose_backend(values: Mapping[str, Any]) -> None:
    # Keras reads the variable when it is imported. A file in the notebook's home has effect only there.
    if "backend" in values and "keras" not in sys.modules:
        os.environ.setdefault("KERAS_BACKEND", values["backend"])


def _note(text: str) -> None:
    writer = events.writer()
    if writer is not None:
        writer.note(text)
