"""`typing.ParamSpec`, `TypeVarTuple` and `NewType` of the notebook, which claim to be found in a module."""

from __future__ import annotations

import sys
import typing
from typing import Any

from . import Note

__all__ = ["reduce"]


def reduce(obj: Any, note: Note) -> Any:
    module = getattr(obj, "__module__", None)
    if module != "__main__" and hasattr(sys.modules.get(str(module)), obj.__name__):
        return NotImplemented
    kind = type(obj)
    if kind.__name__ == "NewType":
        return _new_type, (obj.__name__, obj.__supertype__, obj.__module__)
    if kind.__name__ == "ParamSpec":
        variance = {"covariant": obj.__covariant__, "contravariant": obj.__contravariant__}
        return _parameter, (kind.__name__, obj.__name__, {"bound": obj.__bound__, **variance}, module)
    return _parameter, (kind.__name__, obj.__name__, {}, module)


# What a pickle calls on the other side. Their names are part of the format.


def _new_type(name: str, supertype: Any, module: str) -> Any:
    make: Any = typing.NewType
    made = make(name, supertype)
    made.__module__ = module
    return made


def _parameter(kind: str, name: str, options: dict[str, Any], module: str) -> Any:
    home: Any = typing
    if not hasattr(typing, kind):
        import typing_extensions as home
    made = getattr(home, kind)(name, **options)
    made.__module__ = module
    return made
