"""Pickled classes of the notebook: rebuilt on a rank, unchanged in the kernel, the same for all ranks."""

from __future__ import annotations

import contextlib
import enum
import hashlib
import operator
import sys
import types
from collections.abc import Collection, Iterator
from typing import Any

from .. import foreign_names
from . import annotation_values, cloudpickle_parts, generated_methods
from .reducers import Refused
from .unpickling import current, is_foreign

__all__ = ["name_classes", "reduce_class"]

_READS_BODY = {("msgspec", "StructMeta"), ("sqlalchemy", "DeclarativeAttributeIntercept")}
"""Libraries and their metaclasses that make more of a class statement than the class has afterwards."""
_OF_A_MEMBER = {"_value_", "_name_", "__objclass__", "_sort_order_", "_inverted_"}


def reduce_class(cls: Any, generated: dict[str, Any] | None = None) -> Any:
    """Reduce a class by value, as cloudpickle does, and add what cloudpickle omits.

    `generated`: what another Python needs for the methods that a library has generated.

    Raises Refused.
    """
    for kind in type(cls).__mro__:
        library = kind.__module__.partition(".")[0]
        if (library, kind.__name__) in _READS_BODY:
            raise Refused(
                f"a class that {library} makes from the text of its class statement, which a rank does not "
                "run",
                "Write it into a .py file beside the notebook and import it, or define it inside the cell.",
            )
    generic = vars(cls).get("__pydantic_generic_metadata__")
    if isinstance(generic, dict) and isinstance(generic.get("origin"), type):
        # pydantic makes one class for each parametrisation of a model, and keeps the class as the model's.
        return operator.getitem, (generic["origin"], generic["args"])
    maker, args, state, *_ = cloudpickle_parts.dynamic_class_reduce(cls)
    if issubclass(cls, enum.Enum):
        args, state = _whole_enum(cls, args, state)
    else:
        args = _with_its_name(cls, args)
    if "__slots__" in vars(cls) and not issubclass(cls, (tuple, enum.Enum)):
        args, state = _with_slots(cls, args, state)
    attributes, extra = state
    attributes = dict(attributes)
    attributes.pop("__slotnames__", None)  # Python adds it when it pickles an object of the class
    state = attributes, extra
    annotated = annotation_values.of_class(cls, attributes)
    if annotated:
        extra = {**extra, "annotations": annotated}
    if generated is not None:
        extra = {**extra, "generated": generated}
    if extra is not state[1]:
        state = attributes, extra
    return _class, (maker, args), state, None, None, _set_class_state


def _whole_enum(cls: Any, args: tuple[Any, ...], state: Any) -> tuple[tuple[Any, ...], Any]:
    """Add the aliases of members, and the attributes that `__new__` or `__init__` has set on each member."""
    foreign_names.require("worker/pickling/classes")
    bases, name, qualname, _, *rest = args
    members = {key: member._value_ for key, member in cls.__members__.items()}
    attributes, extra = state
    attributes = {key: value for key, value in attributes.items() if key not in members}
    own = {
        key: {name: value for name, value in vars(member).items() if name not in _OF_A_MEMBER}
        for key, member in cls._member_map_.items()
        if hasattr(member, "__dict__")
    }
    own = {key: values for key, values in own.items() if values}
    return (bases, name, qualname, members, *rest), (attributes, {**extra, "_members": own})


def _with_its_name(cls: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    metaclass, name, bases, options, *rest = args
    return metaclass, name, bases, {**options, "__qualname__": cls.__qualname__}, *rest


def _with_slots(cls: Any, args: tuple[Any, ...], state: Any) -> tuple[tuple[Any, ...], Any]:
    """Make the class with its slots. cloudpickle's class has a `__dict__`, which allows any attribute."""
    slots = vars(cls)["__slots__"]
    if not isinstance(slots, (str, tuple, list, dict)):
        return args, state  # the iterable was consumed when the class was made
    metaclass, name, bases, options, *rest = args
    attributes, extra = state
    members = (types.MemberDescriptorType, types.GetSetDescriptorType)
    attributes = {k: v for k, v in attributes.items() if k != "__slots__" and not isinstance(v, members)}
    return (metaclass, name, bases, {**options, "__slots__": slots}, *rest), (attributes, extra)


def name_classes(main: dict[str, Any], run: str) -> None:
    """Assign one identity to classes of the cell, for readers that load results of several ranks.

    Every rank has made the classes from the same lines. Without this, `results[0] == results[1]` would be
    false for two equal dataclasses. Classes of the payload already have their identities.
    """
    for name, value in list(main.items()):
        if isinstance(value, type) and (value.__module__, value.__qualname__) == ("__main__", name):
            lines = sorted(
                (key, item.__code__.co_filename, item.__code__.co_firstlineno)
                for key, item in vars(value).items()
                if isinstance(item, types.FunctionType)
            )
            shape = hashlib.sha256(repr((lines, sorted(vars(value)))).encode()).hexdigest()
            with cloudpickle_parts.TRACKER_LOCK:
                identity = f"{run} {name} {shape}"
                if value not in cloudpickle_parts.TRACKED_CLASSES:
                    cloudpickle_parts.TRACKED_CLASSES[value] = identity
                    cloudpickle_parts.TRACKED_IDS[identity] = value


# A pickle calls these functions when it is loaded. Their names are part of the format.


def _class(maker: Any, args: tuple[Any, ...]) -> Any:
    known = cloudpickle_parts.TRACKED_IDS.get(args[-2])
    load = current()
    if known is None or (load.on_rank and not (load.lazy and load.lazy.has_made(known))):
        made = _made(maker, args)
        load.made.append(made)
        return made
    load.known.add(id(known))
    return known


def _made(maker: Any, args: tuple[Any, ...]) -> Any:
    """Make a class without running code of the notebook that already ran when the class was made there.

    The effects of a metaclass or `__init_subclass__` of the notebook are already in the pickled objects. A
    second run would register the class twice, and would lack the keywords of the class statement. Metaclasses
    and hooks of libraries run.
    """
    bases = types.resolve_bases(args[2] if maker is cloudpickle_parts.make_skeleton_class else args[0])
    with _without_init_subclass({cls for base in bases for cls in base.__mro__}):
        if maker is not cloudpickle_parts.make_skeleton_class or not _travelled(args[0]):
            return maker(*args)
        metaclass, name, given, options, identity, _ = args
        if bases is not given:
            options = {**options, "__orig_bases__": given}
        library: Any = next(base for base in metaclass.__mro__ if not _travelled(base))
        return cloudpickle_parts.lookup_class_or_track(
            identity, library.__new__(metaclass, name, bases, dict(options))
        )


def _travelled(cls: Any) -> bool:
    return cls in cloudpickle_parts.TRACKED_CLASSES


@contextlib.contextmanager
def _without_init_subclass(bases: Collection[Any]) -> Iterator[None]:
    hooks = [
        (cls, vars(cls)["__init_subclass__"])
        for cls in bases
        if "__init_subclass__" in vars(cls) and _travelled(cls)
    ]
    for cls, _ in hooks:
        type.__delattr__(cls, "__init_subclass__")
    try:
        yield
    finally:
        for cls, hook in hooks:
            type.__setattr__(cls, "__init_subclass__", hook)


def _set_class_state(cls: Any, state: Any) -> Any:
    # cloudpickle would replace the methods by methods whose globals are not the notebook's.
    if id(cls) in current().known:
        return cls
    foreign = is_foreign()
    generated = state[1].pop("generated", None)
    if foreign:
        again = set(generated["generated"]) if generated else set()
        state = _of_this_python(cls, state[0], again), state[1]
    members = state[1].pop("_members", {})
    annotated = state[1].pop("annotations", {})
    cloudpickle_parts.set_class_state(cls, state)
    for name, values in members.items():
        vars(cls._member_map_[name]).update(values)
    for name, value in annotated.items():
        setattr(cls, name, value)
    if generated is not None and foreign:
        generated_methods.apply(cls, generated)
    return cls


def _of_this_python(cls: Any, attributes: dict[str, Any], generated: set[str]) -> dict[str, Any]:
    """Leave out attributes that Python itself has set, and that another version of Python lacks."""
    dropped = generated | {name for name in _SINCE_313 if name in attributes and sys.version_info < (3, 13)}
    if issubclass(cls, enum.Enum):
        sunder = {name for name in attributes if name[:1] == name[-1:] == "_" != name[1:2]}
        dropped |= {name for name in sunder if name in vars(cls) or not _is_method(attributes[name])}
        dropped |= {name for name in _OF_AN_ENUM if getattr(attributes.get(name), "__module__", "") == "enum"}
    return {name: value for name, value in attributes.items() if name not in dropped}


def _is_method(value: Any) -> bool:
    return callable(value) or isinstance(value, classmethod)


_SINCE_313 = ("__firstlineno__", "__static_attributes__")
_OF_AN_ENUM = ("__new__", "__new_member__", "__reduce_ex__", "__format__", "__repr__", "__str__")
"""Methods that EnumType copies into each class, in some versions of Python."""
