"""Objects whose `__getattr__` passes every unknown name to another object, such as a wrapper of a model.

`pickle` asks a new, empty object for `__setstate__`. The `__getattr__` of such a class then looks for the
wrapped object, which is not there yet, and calls itself without end. These pickles name a function that sets
the state, so nothing asks the empty object.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from typing import Any

__all__ = ["rule"]


def rule(kind: type) -> Callable[[Any], Any] | None:
    """Return how to reduce objects of a class. None for a class that cannot have this problem."""
    own = [vars(base) for base in kind.__mro__ if base is not object]
    if not any("__getattr__" in names for names in own):
        return None
    has_pickle = any(names.keys() & {"__setstate__", "__reduce__", "__reduce_ex__"} for names in own)
    return None if has_pickle or kind in copyreg.dispatch_table else _reduce


def _reduce(obj: Any) -> Any:
    parts = object.__reduce_ex__(obj, 4)
    if not isinstance(parts, tuple) or len(parts) < 3 or parts[2] is None:
        return parts
    return (*(*parts, None, None)[:5], _set_state)


# A pickle calls this function when it is loaded. Its name is part of the format.


def _set_state(obj: Any, state: Any) -> None:
    """Set the attributes as `pickle` does for an object without `__setstate__`."""
    slots: dict[str, Any] = {}
    if type(state) is tuple and len(state) == 2:
        state, slots = state
    if state:
        object.__getattribute__(obj, "__dict__").update(state)
    for name, value in (slots or {}).items():
        object.__setattr__(obj, name, value)
