"""`functools.singledispatch` functions in a pickle, with the implementations that the notebook registered."""

from __future__ import annotations

import functools
import types
from collections.abc import Collection
from typing import Any

from . import namespaces

__all__ = ["loaded", "of_module", "reduce_dispatcher", "reduce_registered"]


def reduce_dispatcher(function: types.FunctionType) -> Any:
    """Reduce a generic function of the notebook's; None for any other function."""
    if not _is_generic(function) or function.__globals__ is not vars(functools):
        return None
    registry: Any = function.registry  # type: ignore[attr-defined]
    own = {k: v for k, v in vars(function).items() if k not in _OF_A_DISPATCHER}
    return _dispatcher, (registry[object],), (dict(registry), own), None, None, _register


def reduce_registered(function: types.FunctionType, mains: Collection[int]) -> Any:
    """Reduce a library's function to its name and the notebook's implementations."""
    added = _added(function, mains)
    if not added:
        return NotImplemented
    place = namespaces.reduce_place(function.__module__, function.__qualname__)
    return *place, (added, {}), None, None, _register


def of_module(module: types.ModuleType, mains: Collection[int]) -> list[types.FunctionType]:
    """Return the generic functions of a module for which the notebook has registered implementations."""
    functions = [v for v in list(vars(module).values()) if type(v) is types.FunctionType and v.__dict__]
    return [function for function in functions if _added(function, mains)]


_OF_A_DISPATCHER = {"register", "dispatch", "registry", "_clear_cache", "__wrapped__"}


def _is_generic(function: types.FunctionType) -> bool:
    return "registry" in function.__dict__ and "dispatch" in function.__dict__


def _added(function: types.FunctionType, mains: Collection[int]) -> dict[type, Any]:
    if not _is_generic(function) or type(function.__dict__["registry"]) is not types.MappingProxyType:
        return {}
    return {
        kind: implementation
        for kind, implementation in function.__dict__["registry"].items()
        if id(getattr(implementation, "__globals__", None)) in mains
        or getattr(implementation, "__module__", None) == "__main__"
    }


# A pickle calls these functions when it is loaded. Their names are part of the format.


def _dispatcher(default: Any) -> Any:
    return functools.singledispatch(default)


def _register(function: Any, state: tuple[dict[type, Any], dict[str, Any]]) -> None:
    registry, own = state
    for kind, implementation in registry.items():
        function.register(kind, implementation)
    vars(function).update(own)


def loaded(_: Any, functions: Any) -> None:
    """Do nothing: each generic function has registered the notebook's implementations itself."""
