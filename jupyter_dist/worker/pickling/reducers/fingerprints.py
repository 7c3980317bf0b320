"""Fingerprints of a library's object, to detect later what has changed in it."""

from __future__ import annotations

import enum
import re
import weakref
from collections.abc import Iterator
from typing import Any

from .trainer_kinds import Kind

__all__ = ["MOST", "OURS", "PLAIN", "Same", "differing", "looks", "top"]

PLAIN = (bool, int, float, complex, str, bytes, type(None))
MOST = 100
"""The largest number of items of a list or dict that are compared one by one."""
OURS = "_jupyter_dist"
"""The prefix of attributes that jupyter-dist sets."""


class Same:
    """The identity of an object. Two are equal if they are of the same object, which neither keeps alive."""

    __slots__ = ("_id", "_ref", "kind")

    def __init__(self, value: Any) -> None:
        self.kind = type(value).__name__
        self._id = id(value)
        try:
            self._ref: Any = weakref.ref(value)
        except TypeError:
            self._ref = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Same) or (self.kind, self._id) != (other.kind, other._id):
            return False
        return self._ref is None or (self._ref() is not None and self._ref() is other._ref())

    __hash__ = None  # type: ignore[assignment]

    def of(self, value: Any) -> bool:
        """Return whether this is the identity of `value`."""
        return self == Same(value)


def looks(obj: Any, kind: Kind, known: set[int]) -> dict[str, Any]:
    """Return every value in an object and its parts by its path, such as `fit_loop.max_epochs`.

    Plain values are kept, all others only as identities, and none is kept alive. Objects whose id is in
    `known` are not searched.
    """
    return dict(_walk(obj, "", kind, {*known}))


def differing(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return the paths at which two fingerprints differ."""
    return [place for place in {**before, **now} if before.get(place) != now.get(place)]


def top(place: str) -> str:
    """Return the attribute of the object itself that contains a path."""
    return re.split(r"[.\[]", place, maxsplit=1)[0]


def _walk(value: Any, place: str, kind: Kind, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if place in kind.aside or (place and place == kind.callbacks):
        return
    if isinstance(value, (*PLAIN, enum.Enum)):
        yield place, (type(value), repr(value))
        return
    if id(value) in seen:
        yield place, Same(value)
        return
    if isinstance(value, (dict, list, tuple)) and len(value) <= MOST:
        seen.add(id(value))
        yield place, (type(value), len(value))
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _walk(item, f"{place}[{key!r}]", kind, seen)
        return
    home = type(value).__module__ + "."
    if home.startswith("accelerate.state."):
        return  # all objects in a process share one state, and each new object writes to it
    if place:
        yield place, Same(value)
    if not place or home.startswith(kind.within):
        seen.add(id(value))
        for name, item in getattr(value, "__dict__", {}).items():
            if not name.startswith(OURS):
                yield from _walk(item, f"{place}.{name}" if place else name, kind, seen)
