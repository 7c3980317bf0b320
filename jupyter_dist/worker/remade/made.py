"""How a trainer was made, noted in it as it is made, and what has changed in it since.

The note is an attribute of the trainer: a table beside it would keep alive whatever refers back to its
trainer, as a model or a callback does. Pickled or deeply copied by others, the note becomes None.
"""

from __future__ import annotations

import copy
import enum
import re
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["TRAINERS", "Kind", "Made", "callbacks_of", "changes", "kind_of", "note", "noted", "top"]

_ATTRIBUTE = "_jupyter_dist_made"
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_MOST = 100
"""Items of a list or dict that are looked at one by one."""


@dataclass(frozen=True)
class Kind:
    """A class of a library whose objects are made anew on a rank, with all that is derived from it."""

    module: str
    name: str
    title: str
    within: tuple[str, ...] = ()
    """Beginnings of the modules whose objects belong to the trainer itself and are looked into."""
    aside: frozenset[str] = frozenset()
    """Places in it that say nothing."""
    callbacks: str = ""
    """Where its list of callbacks is."""
    settable: frozenset[str] = frozenset()
    """Attributes that users set and that mean the same on a rank, besides those with plain values."""
    places: frozenset[str] = frozenset()
    """The same deeper inside, by their paths."""
    altered: tuple[str, ...] = ()
    """Beginnings of the modules of arguments that the constructor writes into."""
    shared: bool = False
    """Whether all objects of the class are one, which the first call makes."""


_LIGHTNING = ("lightning.", "pytorch_lightning.", "lightning_fabric.")
_PLACES = frozenset(
    {
        *("fit_loop.max_epochs", "fit_loop.min_epochs"),
        *("fit_loop.epoch_loop.max_steps", "fit_loop.epoch_loop.min_steps"),
    }
)
_PARTS = ("strategies.", "accelerators.", "plugins.")


def _lightning(module: str, name: str, title: str, callbacks: str) -> Kind:
    own, fabric = module.split(".trainer.")[0], "lightning_fabric"
    if module.startswith("lightning."):
        own, fabric = ".".join(module.split(".")[:2]), "lightning.fabric"
    homes = {own, fabric} if name == "Trainer" else {fabric}
    altered = tuple(sorted(f"{home}.{part}" for home in homes for part in _PARTS))
    settable = frozenset({"_loggers"}) if name == "Trainer" else frozenset()
    places = _PLACES if name == "Trainer" else frozenset()
    return Kind(module, name, title, _LIGHTNING, frozenset(), callbacks, settable, places, altered)


_SETTABLE_HF = frozenset(
    {
        *("train_dataset", "eval_dataset", "data_collator", "processing_class", "tokenizer", "label_names"),
        *("compute_metrics", "compute_loss_func", "preprocess_logits_for_metrics", "label_smoother"),
        *("optimizer", "lr_scheduler", "optimizer_cls_and_kwargs", "model_init"),
    }
)
# What asking a Trainer for a loader leaves in it; training begins by looking again.
_ASIDE_HF = frozenset({"_signature_columns", "accelerator._dataloaders"})

TRAINERS = (
    _lightning("lightning.pytorch.trainer.trainer", "Trainer", "Lightning's Trainer", "callbacks"),
    _lightning("pytorch_lightning.trainer.trainer", "Trainer", "Lightning's Trainer", "callbacks"),
    _lightning("lightning.fabric.fabric", "Fabric", "Lightning's Fabric", "_callbacks"),
    _lightning("lightning_fabric.fabric", "Fabric", "Lightning's Fabric", "_callbacks"),
    Kind(
        *("transformers.trainer", "Trainer", "a Trainer of transformers"),
        within=("transformers.trainer", "accelerate."),
        aside=_ASIDE_HF,
        callbacks="callback_handler.callbacks",
        settable=_SETTABLE_HF,
    ),
    Kind(
        *("accelerate.accelerator", "Accelerator", "an Accelerator"),
        within=("accelerate.",),
        settable=frozenset({"_custom_objects"}),
        altered=("accelerate.utils.dataclasses",),
    ),
    Kind("accelerate.state", "PartialState", "a PartialState", shared=True),
)


def kind_of(cls: type) -> Kind:
    """The kind of a class that is derived from one of `TRAINERS`."""
    names = {(base.__module__, base.__qualname__) for base in cls.__mro__}
    return next(kind for kind in TRAINERS if (kind.module, kind.name) in names)


class Attribute:
    """Stands for an argument that the object keeps as its attribute `name`, and alone keeps alive."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Made:
    """The call that made an object, and what the object looked like then."""

    def __init__(
        self, kind: Kind, order: int, inside: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.order = order
        """The how manieth of all; they are made anew in the same order."""
        self.inside = inside
        """Whether the constructor of another one made it."""
        self.trouble = ""
        """Why the call cannot be repeated, where it cannot."""
        self.names: frozenset[str] = frozenset()
        """The attributes that the constructor has set."""
        self.looks: dict[str, Any] = {}
        self.callbacks: tuple[tuple[_Same, str], ...] = ()
        """The callbacks that the constructor has put together, with the names of their classes."""
        self._steps: Any = None
        self._given = (args, kwargs)
        self._args, self._kwargs = args, kwargs
        try:
            self._args = tuple(_as_given(value, kind) for value in args)
            self._kwargs = {name: _as_given(value, kind) for name, value in kwargs.items()}
        except Exception as error:
            self.trouble = f"one of its arguments cannot be copied ({type(error).__name__}: {error})"

    def settle(self, obj: Any, kind: Kind) -> None:
        """Note what the constructor has left, and let go of arguments that the object itself keeps."""
        # The list of callbacks may be the one that was given, with the constructor's own put in.
        attributes = {
            id(value): name
            for name, value in vars(obj).items()
            if not isinstance(value, _PLAIN) and name != kind.callbacks
        }
        (args, kwargs), self._given = self._given, ((), {})
        held = [_held(kept, value, attributes) for kept, value in zip(self._args, args, strict=True)]
        self._args = tuple(held)
        self._kwargs = {name: _held(self._kwargs[name], kwargs[name], attributes) for name in kwargs}
        self.names = frozenset(vars(obj))
        self.callbacks = tuple(
            (_Same(item), type(item).__name__) for item in callbacks_of(obj, kind.callbacks)
        )
        self.looks = _looks(obj, kind, self)
        self._steps = _accumulation(obj)

    def was_plain(self, name: str) -> bool:
        """Whether the constructor has set the attribute to a number, a text, a member of an enum or None."""
        look = self.looks.get(name)
        return isinstance(look, tuple) and issubclass(look[0], (*_PLAIN, enum.Enum))

    def steps_now(self, obj: Any) -> Any:
        """Over how many steps an Accelerator accumulates, where that was changed; else None."""
        steps = _accumulation(obj)
        return None if steps == self._steps else steps

    def call(self, obj: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments that the object was made with, as they are now."""

        def now(value: Any) -> Any:
            if isinstance(value, Attribute):
                return vars(obj).get(value.name)
            return tuple(now(item) for item in value) if type(value) is tuple else value

        return tuple(now(value) for value in self._args), {
            name: now(value) for name, value in self._kwargs.items()
        }

    def __reduce__(self) -> Any:
        return type(None), ()

    def __deepcopy__(self, memo: Any) -> None:
        return None


def note(obj: Any, made: Made) -> None:
    """Leave the note in the object."""
    vars(obj)[_ATTRIBUTE] = made


def noted(obj: Any) -> Made | None:
    """The note in an object; None where nobody saw how it was made."""
    made = vars(obj).get(_ATTRIBUTE)
    return made if isinstance(made, Made) else None


def changes(obj: Any, kind: Kind, made: Made) -> list[str]:
    """The places in an object that differ from what its constructor left, as `fit_loop.max_epochs`."""
    now = _looks(obj, kind, made)
    return [place for place in {**made.looks, **now} if made.looks.get(place) != now.get(place)]


def top(place: str) -> str:
    """The attribute of the object itself that a place is in."""
    return re.split(r"[.\[]", place, maxsplit=1)[0]


def callbacks_of(obj: Any, path: str) -> list[Any]:
    """The list of callbacks at a path such as `callback_handler.callbacks`; empty where there is none."""
    for name in path.split(".") if path else ():
        obj = getattr(obj, name, None)
    return obj if isinstance(obj, list) else []


class _Same:
    """Equal to another one of the same object, which it does not keep alive."""

    __slots__ = ("_id", "_ref", "kind")

    def __init__(self, value: Any) -> None:
        self.kind = type(value).__name__
        self._id = id(value)
        try:
            self._ref: Any = weakref.ref(value)
        except TypeError:
            self._ref = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Same) or (self.kind, self._id) != (other.kind, other._id):
            return False
        return self._ref is None or (self._ref() is not None and self._ref() is other._ref())

    __hash__ = None  # type: ignore[assignment]

    def of(self, value: Any) -> bool:
        """Whether it is of this object."""
        return self == _Same(value)


def _accumulation(obj: Any) -> Any:
    # It is in a state that all Accelerators of a process share, and so not compared with the rest.
    return getattr(getattr(obj, "gradient_state", None), "num_steps", None)


def _as_given(value: Any, kind: Kind) -> Any:
    """An argument that stays what it was, whatever the constructor or its owner writes into it."""
    if type(value) in (list, tuple) and len(value) <= _MOST:
        return type(value)(_as_given_item(item, kind) for item in value)
    if type(value) is dict and len(value) <= _MOST:
        return {key: _as_given_item(item, kind) for key, item in value.items()}
    return _as_given_item(value, kind)


def _as_given_item(value: Any, kind: Kind) -> Any:
    homes = (base.__module__ + "." for base in type(value).__mro__)
    return copy.deepcopy(value) if any(home.startswith(kind.altered) for home in homes) else value


def _held(kept: Any, given: Any, attributes: dict[int, str]) -> Any:
    if id(given) in attributes and (kept is given or type(kept) in (list, dict)):
        return Attribute(attributes[id(given)])
    if type(given) is tuple and type(kept) is tuple:
        return tuple(_held(one, other, attributes) for one, other in zip(kept, given, strict=True))
    return kept


def _looks(obj: Any, kind: Kind, made: Made) -> dict[str, Any]:
    """Every value in the object, and in what belongs to it, by its place."""
    args, kwargs = made.call(obj)
    seen = {id(item) for value in [*args, *kwargs.values()] for item in _items(value)}
    return dict(_walk(obj, "", kind, seen))


def _items(value: Any) -> list[Any]:
    if isinstance(value, _PLAIN):
        return []
    more = list(value) if isinstance(value, list | tuple) and len(value) <= _MOST else []
    return [value, *more]


def _walk(value: Any, place: str, kind: Kind, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if place in kind.aside or (place and place == kind.callbacks):
        return
    if isinstance(value, (*_PLAIN, enum.Enum)):
        yield place, (type(value), repr(value))
        return
    if id(value) in seen:
        yield place, _Same(value)
        return
    if isinstance(value, dict | list | tuple) and len(value) <= _MOST:
        seen.add(id(value))
        yield place, (type(value), len(value))
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _walk(item, f"{place}[{key!r}]", kind, seen)
        return
    home = type(value).__module__ + "."
    if home.startswith("accelerate.state."):
        return  # all in a process share one, and each that is made writes into it
    if place:
        yield place, _Same(value)
    if not place or home.startswith(kind.within):
        seen.add(id(value))
        for name, item in getattr(value, "__dict__", {}).items():
            if name != _ATTRIBUTE:
                yield from _walk(item, f"{place}.{name}" if place else name, kind, seen)
