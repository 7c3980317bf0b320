"""Objects of the standard library that contain a lock or a generator, would change, or cannot be pickled.

Also numpy's archive of arrays, which contains an open file.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import logging
import struct
import types
from typing import Any

from . import Note

__all__ = ["reduce"]


def reduce(obj: Any, note: Note) -> Any:
    kind = type(obj)
    if kind is functools.cached_property:  # before Python 3.12 it contains a lock
        return _cached_property, (obj.func, obj.attrname)
    if kind is functools.partial:
        # Any look at its attributes makes an empty dict, which would count as a change in a session.
        made, arguments, (function, args, keywords, own) = obj.__reduce__()
        return made, arguments, (function, args, keywords, own or None)
    if kind is functools.partialmethod:  # since Python 3.14 it cannot be made without its function
        return _partial_method, (obj.func, obj.args, obj.keywords)
    if isinstance(obj, _METHODS):
        return _reduce_method(obj)
    if isinstance(obj, contextlib._GeneratorContextManager):
        # As a decorator it makes a new generator for every call. The stored generator is only for `with`.
        if inspect.getgeneratorstate(obj.gen) == inspect.GEN_CREATED:
            return kind, (obj.func, obj.args, obj.kwds)
        return NotImplemented
    if kind is memoryview and obj.contiguous:
        whole = type(obj.obj) in (bytes, bytearray) and len(obj.obj) == obj.nbytes
        return _view, (obj.obj if whole else bytearray(obj), obj.readonly, obj.format, obj.shape)
    if kind in _DICT_VIEWS and type(_behind(obj.mapping)) is dict:
        return _dict_view, (_behind(obj.mapping), kind.__name__.removeprefix("dict_"))
    if kind.__name__ == "NpzFile" and obj.zip is not None:
        return _archive, (_bytes_of(obj.zip.fp), obj.allow_pickle, obj.pickle_kwargs)
    if isinstance(obj, logging.Handler):
        return _reduce_handler(obj)
    if kind is struct.Struct:
        return struct.Struct, (obj.format,)
    if kind is types.MappingProxyType and type(_behind(obj)) is dict:
        return types.MappingProxyType, (_behind(obj),)
    return NotImplemented


_METHODS = (property, classmethod, staticmethod)


def _reduce_method(method: Any) -> Any:
    """Reduce a property, a class method or a static method with its own class and its own attributes.

    pandera marks the checks of a model with such attributes.
    """
    kind = type(method)
    if any(vars(each).get("__slots__") for each in kind.__mro__):
        return NotImplemented
    base: Any = next(each for each in _METHODS if issubclass(kind, each))
    arguments = (method.fget, method.fset, method.fdel) if base is property else (method.__func__,)
    usual = getattr(base(*arguments), "__dict__", {})
    own = {
        name: value
        for name, value in getattr(method, "__dict__", {}).items()
        # Since Python 3.14, annotations are kept there once somebody has read them.
        if usual.get(name, usual) is not value and not name.startswith("__annot")
    }
    return (_method, (kind, base, arguments), own or None) if own or kind is not base else NotImplemented


def _reduce_handler(handler: Any) -> Any:
    usual: Any = handler.__reduce_ex__(4)
    if len(usual) != 5 or usual[1] != (type(handler),) or type(usual[2]) is not dict:
        return NotImplemented  # its class has a way of its own
    return _handler, usual[1], {name: value for name, value in usual[2].items() if name != "lock"}


def _bytes_of(file: Any) -> bytes:
    """Return what an open file contains. Its name may have another file by now."""
    place = file.tell()
    file.seek(0)
    found: bytes = file.read()
    file.seek(place)
    return found


_DICT_VIEWS = {type({}.keys()), type({}.values()), type({}.items())}


def _behind(proxy: Any) -> Any:
    """Return the mapping behind a read-only proxy.

    The proxy passes it to any object that it is compared with.
    """

    class Asks:
        def __eq__(self, mapping: object) -> bool:
            self.mapping = mapping
            return True

        __hash__ = None  # type: ignore[assignment]

    asks = Asks()
    return asks.mapping if proxy == asks else None


# A pickle calls these functions when it is loaded. Their names are part of the format.


def _cached_property(function: Any, name: str | None) -> Any:
    made: Any = functools.cached_property(function)
    if name is not None:
        made.__set_name__(None, name)
    return made


def _method(kind: Any, base: Any, arguments: tuple[Any, ...]) -> Any:
    made = base.__new__(kind)
    base.__init__(made, *arguments)  # the class's own has run where the object was made
    return made


def _partial_method(function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    return functools.partialmethod(function, *args, **keywords)


def _archive(data: bytes, allow_pickle: bool, options: dict[str, Any]) -> Any:
    import numpy

    return numpy.load(io.BytesIO(data), allow_pickle=allow_pickle, **options)


def _handler(kind: type[logging.Handler]) -> logging.Handler:
    handler = kind.__new__(kind)
    handler.createLock()  # logging makes it anew in processes that a rank forks, too
    return handler


def _dict_view(mapping: dict[Any, Any], kind: str) -> Any:
    return getattr(mapping, kind)()


def _view(data: bytes | bytearray, readonly: bool, form: str, shape: Any) -> memoryview:
    view: Any = memoryview(data)
    view = view.cast("B").cast(form, shape) if view.nbytes else view
    return view.toreadonly() if readonly else view  # type: ignore[no-any-return]
