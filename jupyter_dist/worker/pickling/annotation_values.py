"""Annotations of a function or a class in a pickle: their values, or the function that computes them.

Since Python 3.14 annotations are computed at the first access (https://peps.python.org/pep-0649/). The access
can raise although the code itself runs without error, as in `def f(x: Missing)`.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import types
from collections.abc import Callable, MutableMapping
from typing import Any

__all__ = ["of_class", "of_function", "signature", "texts", "values"]

_IN_A_CLASS = ("__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__")
"""The attributes of a class with its annotations, in different versions of Python."""


def values(obj: Any) -> dict[str, Any]:
    """Return the annotations of a function or a class; none if they cannot be computed now."""
    try:
        return dict(obj.__annotations__)
    except Exception:  # annotations are the user's code and can raise anything
        return {}


def texts(obj: Any) -> list[str]:
    """Return the strings in the annotations of a function or a class, which name what they annotate with."""
    if sys.version_info < (3, 14) and isinstance(obj, type) and "__annotations__" not in vars(obj):
        return []
    return [text for value in values(obj).values() if type(value) is not type for text in _texts(value)]


def _texts(annotation: Any) -> list[str]:
    if isinstance(annotation, str):
        return [annotation]
    if type(annotation).__name__ == "ForwardRef":
        return [annotation.__forward_arg__]
    if type(annotation).__module__ not in ("typing", "types"):
        return []
    return [text for part in getattr(annotation, "__args__", ()) for text in _texts(part)]


def signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return what `inspect.signature` does, without an error if an annotation cannot be computed now.

    Raises TypeError and ValueError as `inspect.signature` does.
    """
    if sys.version_info >= (3, 14):
        library: Any = importlib.import_module("annotationlib")  # annotationlib is new in Python 3.14
        return inspect.signature(function, annotation_format=library.Format.FORWARDREF)
    return inspect.signature(function)


def of_function(function: Any) -> dict[str, Any]:
    """Return the attribute to set on the rank's function: its annotations, or a function that computes them.

    The annotations are preferred: the notebook sees the same values, and they need no names of the notebook.
    """
    if getattr(function, "__annotate__", None) is None:
        return {"__annotations__": function.__annotations__}
    try:
        return {"__annotations__": function.__annotations__}
    except Exception:  # annotations are the user's code and can raise anything
        return {"__annotate__": _without_the_class(function.__annotate__)}


def of_class(cls: Any, attributes: MutableMapping[str, Any]) -> dict[str, Any]:
    """Return the attribute to set on a class with lazy annotations; nothing for other classes.

    Removes Python's own entries for annotations from `attributes`, the dict of the class. cloudpickle would
    omit the function that computes them. Without this, a class would lose annotations that nobody has read.
    """
    own = vars(cls)
    if "__annotate_func__" not in own and "__annotations_cache__" not in own:
        return {}
    for name in _IN_A_CLASS:
        attributes.pop(name, None)
    return of_function(cls)


def _without_the_class(annotate: Any) -> Any:
    """Return the function with only those names of a class body that it uses.

    In a class body the function refers to the whole dict of the class, which can contain values that cannot
    be pickled.
    """
    if not isinstance(annotate, types.FunctionType) or "__classdict__" not in annotate.__code__.co_freevars:
        return annotate
    cells = []
    for name, cell in zip(annotate.__code__.co_freevars, annotate.__closure__ or ()):
        if name == "__classdict__":
            space = cell.cell_contents
            used = {word: space[word] for word in annotate.__code__.co_names if word in space}
            cell = types.CellType(used)
        cells.append(cell)
    made = types.FunctionType(
        annotate.__code__, annotate.__globals__, annotate.__name__, annotate.__defaults__, tuple(cells)
    )
    made.__module__, made.__qualname__ = annotate.__module__, annotate.__qualname__
    return made
