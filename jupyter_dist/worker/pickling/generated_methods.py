"""Methods of dataclasses and named tuples, for a process with another version of Python.

The standard library generates these methods from text that nothing keeps. Another version of Python generates
them again, with its own library.
"""

from __future__ import annotations

import collections
import dataclasses
import inspect
import reprlib
import sys
import types
import typing
from typing import Any

__all__ = ["SLOTTED", "apply", "describe", "functions", "reduce_slotted"]

_OF_A_DATACLASS = {
    f"__{word}__" for word in ("init", "repr", "eq", "lt", "le", "gt", "ge", "hash", "replace")
}
_OF_A_DATACLASS |= {f"__{word}__" for word in ("setattr", "delattr", "match_args")}
_ALWAYS = {"__dataclass_fields__", "__dataclass_params__"}
_OF_A_NAMEDTUPLE = {"__new__", "_make", "_replace", "__replace__", "__repr__", "_asdict", "__getnewargs__"}
_OF_A_PROTOCOL = {"__protocol_attrs__", "__non_callable_proto_members__"}
_PARAMETERS = ("init", "repr", "eq", "order", "unsafe_hash", "frozen")


@dataclasses.dataclass
class _Example:
    pass


_HAS_MATCH_ARGS = "match_args" in inspect.signature(dataclasses.dataclass).parameters  # not in Python 3.9
SLOTTED = {dataclasses.Field, type(vars(_Example)["__dataclass_params__"])}
"""The classes of a dataclass's own objects, which have other slots in other versions of Python."""
_OF_A_FIELD = ("default", "default_factory", "init", "repr", "hash", "compare", "metadata", "kw_only")


def describe(cls: Any) -> dict[str, Any] | None:
    """Return what another Python needs to generate the methods of a class again; None if nothing was."""
    own = vars(cls)
    if "__dataclass_params__" in own:
        found = _generated(own, _OF_A_DATACLASS, {dataclasses.__file__, reprlib.__file__})
        return _dataclass(cls, sorted(found))
    if issubclass(cls, tuple) and "_fields" in own:
        found = _generated(own, _OF_A_NAMEDTUPLE, {collections.__file__})
        return {"kind": "namedtuple", "generated": sorted(found)} if found else None
    if typing.Protocol in cls.__mro__:
        hooks = {name for name, value in own.items() if _file(value) == typing.__file__}
        hooks |= _OF_A_PROTOCOL & own.keys()
        itself = typing.Protocol in cls.__bases__
        of_isinstance = itself and _is_for_isinstance(cls)
        return {"kind": "protocol", "generated": sorted(hooks), "itself": itself, "isinstance": of_isinstance}
    return None


def _is_for_isinstance(protocol: Any) -> bool:
    try:
        isinstance(None, protocol)
    except TypeError:  # the protocol lacks @runtime_checkable
        return False
    return True


def functions(cls: Any, described: dict[str, Any]) -> list[Any]:
    """Return the functions of a class that are generated again."""
    return [_function(vars(cls)[name]) for name in described["generated"]]


def _generated(own: Any, names: set[str], files: set[str]) -> set[str]:
    found = set()
    for name in names & own.keys():
        if _file(own[name]) in {*files, "<string>"}:
            found.add(name)
    return found


def _file(value: Any) -> str:
    code = getattr(_function(value), "__code__", None)
    return code.co_filename if isinstance(code, types.CodeType) else ""


def _function(value: Any) -> Any:
    return value.__func__ if isinstance(value, (classmethod, staticmethod)) else value


def _dataclass(cls: Any, generated: list[str]) -> dict[str, Any]:
    known = cls.__dataclass_fields__
    inherited = {
        id(field) for base in cls.__mro__[1:] for field in getattr(base, "__dataclass_fields__", {}).values()
    }
    real = {field.name for field in dataclasses.fields(cls)}
    fields = {}
    for name, field in known.items():
        if id(field) in inherited:
            continue
        kind = "field" if name in real else _pseudo(field)
        options = {option: getattr(field, option, dataclasses.MISSING) for option in _OF_A_FIELD}
        options = {key: value for key, value in options.items() if value is not dataclasses.MISSING}
        options["metadata"] = dict(field.metadata)
        fields[name] = kind, options, field.type
    parameters = cls.__dataclass_params__
    return {
        "kind": "dataclass",
        "generated": generated,
        "fields": fields,
        "parameters": {name: getattr(parameters, name) for name in _PARAMETERS},
        "match_args": "__match_args__" in vars(cls) or not _HAS_MATCH_ARGS,
    }


def _pseudo(field: Any) -> str:
    of_init = isinstance(field.type, dataclasses.InitVar) or field.type is dataclasses.InitVar
    return "InitVar" if of_init or (isinstance(field.type, str) and "InitVar" in field.type) else "ClassVar"


def apply(cls: Any, described: dict[str, Any]) -> None:
    """Generate the methods again, with this Python's library."""
    if described["kind"] == "namedtuple":
        _apply_namedtuple(cls, described["generated"])
    elif described["kind"] == "protocol":
        if described["itself"]:
            _apply_protocol(cls, described)
    else:
        _apply_dataclass(cls, described)


def _apply_namedtuple(cls: Any, generated: list[str]) -> None:
    defaults = vars(cls).get("_field_defaults", {})
    values = [defaults[name] for name in cls._fields if name in defaults]
    model = collections.namedtuple(cls.__name__, cls._fields, rename=True, defaults=values)  # type: ignore[misc]
    for name in generated:
        if name in vars(model):
            setattr(cls, name, vars(model)[name])
    if "__new__" in generated and isinstance(vars(cls).get("__annotations__"), dict):
        cls.__new__.__annotations__ = cls.__annotations__


def _apply_protocol(cls: Any, described: dict[str, Any]) -> None:
    """Make the class once more, with all its attributes, and copy what its library has added."""
    own = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    own = {name: value for name, value in own.items() if name not in _OF_A_PROTOCOL}
    model = types.new_class(
        cls.__name__, cls.__bases__, {"metaclass": type(cls)}, lambda space: space.update(own)
    )
    for name in {*described["generated"], *_OF_A_PROTOCOL} & vars(model).keys():
        type.__setattr__(cls, name, vars(model)[name])
    if described["isinstance"]:
        typing.runtime_checkable(cls)


def _apply_dataclass(cls: Any, described: dict[str, Any]) -> None:
    """Decorate the class again, without its own methods, and then restore these.

    dataclass() refuses some methods that a class can get later.
    """
    fields, generated = described["fields"], set(described["generated"])
    before = dict(vars(cls))
    annotations = (
        dict(cls.__annotations__) if "__annotations__" in before or hasattr(cls, "__annotate__") else {}
    )
    for name in (_OF_A_DATACLASS | _ALWAYS) & before.keys():
        type.__delattr__(cls, name)
    cls.__annotations__ = {name: _annotation(kind, type_) for name, (kind, _, type_) in fields.items()}
    for name, (kind, options, _) in fields.items():
        if kind != "ClassVar":
            type.__setattr__(cls, name, _field(cls, options))
    parameters = dict(described["parameters"])
    if _HAS_MATCH_ARGS:
        parameters["match_args"] = described["match_args"]
    dataclasses.dataclass(cls, **parameters)
    for name, (_, _, annotation) in fields.items():
        cls.__dataclass_fields__[name].type = annotation
    cls.__annotations__ = annotations
    made = dict(vars(cls))
    kept = (fields.keys() | _OF_A_DATACLASS) - generated - {"__replace__"}
    for name in kept:
        if name in before:
            type.__setattr__(cls, name, before[name])
        elif name in made and name != "__match_args__":  # a class of Python 3.9 had none, and gets it here
            type.__delattr__(cls, name)


def _field(cls: Any, options: dict[str, Any]) -> Any:
    if not hasattr(dataclasses, "KW_ONLY") and options.pop("kw_only", False):
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        what = f"The notebook's class {cls.__qualname__} has keyword-only fields"
        raise RuntimeError(f"{what}, which dataclasses of Python {version} cannot have.")
    return dataclasses.field(**options)


def _annotation(kind: str, annotation: Any) -> Any:
    """Return an annotation with which dataclass() finds the kind of a field. A text could be ambiguous."""
    if kind == "ClassVar":
        return typing.ClassVar
    return dataclasses.InitVar[Any] if kind == "InitVar" and isinstance(annotation, str) else annotation


def reduce_slotted(obj: Any) -> Any:
    """Reduce a field or the parameters of a dataclass. Their slots differ between versions of Python."""
    slots = {name: getattr(obj, name) for name in type(obj).__slots__ if hasattr(obj, name)}
    if isinstance(slots.get("metadata"), types.MappingProxyType):
        slots["metadata"] = dict(slots["metadata"])
    return _slotted, (type(obj),), slots, None, None, _fill_slots


# A pickle calls these functions when it is loaded. Their names are part of the format.


def _slotted(cls: type) -> Any:
    made: Any = object.__new__(cls)
    return made


def _fill_slots(obj: Any, slots: dict[str, Any]) -> None:
    fresh = dataclasses.field()
    for name in type(obj).__slots__:
        value: Any = slots.get(name, getattr(fresh, name, None))
        setattr(obj, name, types.MappingProxyType(value) if name == "metadata" else value)
