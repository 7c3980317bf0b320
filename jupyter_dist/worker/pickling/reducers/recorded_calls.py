"""A record of how a trainer was made, stored in the trainer, and of its changes since.

The record is an attribute of the trainer. A separate table would keep alive every object that refers to its
trainer, as a model or a callback does. If other code pickles or deep-copies the record, it becomes None.
"""

from __future__ import annotations

import copy
import enum
from typing import Any, NamedTuple

from .fingerprints import MOST, OURS, PLAIN, Same, differing, looks
from .trainer_kinds import Kind

__all__ = ["Callback", "Made", "callbacks_of", "changes", "note", "noted"]

_ATTRIBUTE = f"{OURS}_made"


class _Attribute:
    """The placeholder for an argument that only the object keeps alive, as its attribute `name`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Callback(NamedTuple):
    """A callback that an object had when it was made."""

    same: Same
    name: str
    """The name of its class."""
    looks: dict[str, Any] | None
    """The fingerprint, if the constructor made the callback.

    None if it was an argument and is sent itself.
    """


class Made:
    """The call that made an object, and the object's fingerprint at that time."""

    def __init__(
        self, kind: Kind, order: int, inside: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.order = order
        """The sequence number among all calls. Objects are rebuilt in the same order."""
        self.inside = inside
        """Whether the constructor of another object made this one."""
        self.trouble = ""
        """Why the call cannot be repeated; empty if it can."""
        self.names: frozenset[str] = frozenset()
        """The attributes that the constructor has set."""
        self.looks: dict[str, Any] = {}
        self.callbacks: tuple[Callback, ...] = ()
        """The callbacks that the object had after its constructor."""
        self._steps: Any = None
        self._given = (args, kwargs)
        self._args, self._kwargs = args, kwargs
        try:
            self._args = tuple(_as_given(value, kind) for value in args)
            self._kwargs = {name: _as_given(value, kind) for name, value in kwargs.items()}
        except Exception as error:
            self.trouble = f"one of its arguments cannot be copied ({type(error).__name__}: {error})"

    def settle(self, obj: Any, kind: Kind) -> None:
        """Record the state after the constructor, and release arguments that the object itself keeps."""
        # The list of callbacks can be the argument itself, with the constructor's own callbacks added.
        attributes = {
            id(value): name
            for name, value in vars(obj).items()
            if not isinstance(value, PLAIN) and name != kind.callbacks
        }
        (args, kwargs), self._given = self._given, ((), {})
        held = [_held(kept, value, attributes) for kept, value in zip(self._args, args)]
        self._args = tuple(held)
        self._kwargs = {name: _held(self._kwargs[name], kwargs[name], attributes) for name in kwargs}
        self.names = frozenset(vars(obj))
        given = self.given(obj)
        self.callbacks = tuple(
            Callback(Same(item), type(item).__name__, None if id(item) in given else looks(item, kind, given))
            for item in callbacks_of(obj, kind.callbacks)
        )
        self.looks = looks(obj, kind, given)
        self._steps = _accumulation(obj)

    def was_plain(self, name: str) -> bool:
        """Return whether the constructor has set the attribute to a plain value.

        Plain values are numbers, texts, members of an enum and None.
        """
        look = self.looks.get(name)
        return isinstance(look, tuple) and issubclass(look[0], (*PLAIN, enum.Enum))

    def steps_now(self, obj: Any) -> Any:
        """Return over how many steps an Accelerator accumulates, or None if the number has not changed."""
        steps = _accumulation(obj)
        return None if steps == self._steps else steps

    def call(self, obj: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments that the object was made with, in their current state."""

        def now(value: Any) -> Any:
            if isinstance(value, _Attribute):
                return vars(obj).get(value.name)
            return tuple(now(item) for item in value) if type(value) is tuple else value

        return tuple(now(value) for value in self._args), {
            name: now(value) for name, value in self._kwargs.items()
        }

    def given(self, obj: Any) -> set[int]:
        """Return the ids of the arguments and of items in list arguments.

        The arguments are sent themselves.
        """
        args, kwargs = self.call(obj)
        return {id(item) for value in [*args, *kwargs.values()] for item in _items(value)}

    def __reduce__(self) -> Any:
        return type(None), ()

    def __deepcopy__(self, memo: Any) -> None:
        return None


def note(obj: Any, made: Made) -> None:
    """Store the record in the object."""
    vars(obj)[_ATTRIBUTE] = made


def noted(obj: Any) -> Made | None:
    """Return the record in an object, or None if the kernel did not see how the object was made."""
    made = vars(obj).get(_ATTRIBUTE)
    return made if isinstance(made, Made) else None


def changes(obj: Any, kind: Kind, made: Made) -> list[str]:
    """Return the paths in an object that changed since its constructor, such as `fit_loop.max_epochs`."""
    found = differing(made.looks, looks(obj, kind, made.given(obj)))
    for item in callbacks_of(obj, kind.callbacks):
        for callback in made.callbacks:
            if callback.looks is not None and callback.same.of(item):
                now = looks(item, kind, made.given(obj))
                found += [f"{callback.name}.{place}" for place in differing(callback.looks, now)]
    return found


def callbacks_of(obj: Any, path: str) -> list[Any]:
    """Return the list of callbacks at a path such as `callback_handler.callbacks`; empty if there is none."""
    for name in path.split(".") if path else ():
        obj = getattr(obj, name, None)
    return obj if isinstance(obj, list) else []


def _accumulation(obj: Any) -> Any:
    # All Accelerators of a process share this state, so it is compared separately.
    return getattr(getattr(obj, "gradient_state", None), "num_steps", None)


def _as_given(value: Any, kind: Kind) -> Any:
    """Copy the parts of an argument that the constructor or the argument's owner could change."""
    if type(value) in (list, tuple) and len(value) <= MOST:
        return type(value)(_as_given_item(item, kind) for item in value)
    if type(value) is dict and len(value) <= MOST:
        return {key: _as_given_item(item, kind) for key, item in value.items()}
    return _as_given_item(value, kind)


def _as_given_item(value: Any, kind: Kind) -> Any:
    homes = (base.__module__ + "." for base in type(value).__mro__)
    return copy.deepcopy(value) if any(home.startswith(kind.altered) for home in homes) else value


def _held(kept: Any, given: Any, attributes: dict[int, str]) -> Any:
    if id(given) in attributes and (kept is given or type(kept) in (list, dict)):
        return _Attribute(attributes[id(given)])
    if type(given) is tuple and type(kept) is tuple:
        return tuple(_held(one, other, attributes) for one, other in zip(kept, given))
    return kept


def _items(value: Any) -> list[Any]:
    if isinstance(value, PLAIN):
        return []
    more = list(value) if isinstance(value, (list, tuple)) and len(value) <= MOST else []
    return [value, *more]
