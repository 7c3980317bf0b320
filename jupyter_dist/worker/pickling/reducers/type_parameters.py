"""Objects that `typing` makes in the notebook: parameters of types, new types, and `type X = ...`.

All of them claim to be in a module. A `ForwardRef` represents a name that an annotation did not find.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import operator
import sys
import types
import typing
from typing import Any

from . import Note

__all__ = ["reduce"]


def reduce(obj: Any, note: Note) -> Any:
    if type(obj).__name__ == "ForwardRef":
        return _reduce_reference(obj)
    if type(obj).__name__ in ("Union", "UnionType"):  # since Python 3.14, `int | str` has the first type
        return _union, obj.__args__
    module = getattr(obj, "__module__", None)
    if module != "__main__" and hasattr(sys.modules.get(str(module)), obj.__name__):
        return NotImplemented
    kind = type(obj)
    if kind.__name__ == "TypeAliasType":
        return _alias, (kind.__module__, obj.__name__, obj.__value__, obj.__type_params__)
    if kind.__name__ == "NewType":
        return _new_type, (obj.__name__, obj.__supertype__, obj.__module__)
    if kind.__name__ == "ParamSpec":
        variance = {"covariant": obj.__covariant__, "contravariant": obj.__contravariant__}
        return _parameter, (kind.__name__, obj.__name__, {"bound": obj.__bound__, **variance}, module)
    return _parameter, (kind.__name__, obj.__name__, {}, module)


def _reduce_reference(reference: Any) -> Any:
    """Reduce a reference without the globals of the notebook.

    The rank finds its own by their module's name.
    """
    if getattr(reference, "__extra_names__", None) or not hasattr(reference, "__globals__"):
        return NotImplemented
    module = reference.__forward_module__
    if module is None and reference.__globals__ is not None:
        module = reference.__globals__.get("__name__")
    options = {"is_class": reference.__forward_is_class__, "is_argument": reference.__forward_is_argument__}
    return _forward_reference, (reference.__forward_arg__, module, reference.__owner__, options)


# A pickle calls these functions when it is loaded. Their names are part of the format.


def _union(*kinds: Any) -> Any:
    if sys.version_info < (3, 14):  # there `int | str` is of another type than Union[int, str]
        # Before Python 3.11 a reference has no `|`, and before Python 3.10 a type has none.
        with contextlib.suppress(TypeError):
            made = functools.reduce(operator.or_, kinds)
            if typing.get_origin(made) in (typing.Union, getattr(types, "UnionType", None)):
                return made  # a metaclass may define another `|`
    return typing.Union[kinds]


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


def _alias(home: str, name: str, value: Any, parameters: tuple[Any, ...]) -> Any:
    return importlib.import_module(home).TypeAliasType(name, value, type_params=parameters)


def _forward_reference(name: str, module: str | None, owner: Any, options: dict[str, bool]) -> Any:
    library: Any = importlib.import_module("annotationlib")  # annotationlib is new in Python 3.14
    return library.ForwardRef(name, module=module, owner=owner, **options)
