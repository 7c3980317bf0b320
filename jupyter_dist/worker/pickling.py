"""Pickle functions, classes and tensors so that they work on another process as they do here.

On top of cloudpickle: functions of the notebook share the rank's `__main__` as their globals, and
loading in the kernel leaves the notebook's own classes alone; storages of CPU tensors and large
arrays travel out of band without a copy; `functools.lru_cache` travels; an open file does not.
"""

from __future__ import annotations

import builtins
import ctypes
import functools
import hashlib
import io
import pickle
import sys
import threading
import types
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import cloudpickle
from cloudpickle import cloudpickle as _cp

from . import remade
from .names import code_names

__all__ = ["Dumped", "Pickler", "Trace", "dump", "later", "loading", "name_classes", "on_rank"]

_IN_BAND_BELOW = 4096  # a smaller buffer costs more aside than inside


@dataclass
class Trace:
    """What was met while pickling, for whoever decides what else must travel."""

    modules: set[str] = field(default_factory=set)
    """Modules that are referred to by name, themselves or something in them."""
    imports: set[str] = field(default_factory=set)
    """Modules that the code of captured functions imports when it runs."""
    words: set[str] = field(default_factory=set)
    """Every name and attribute in the code of captured functions, and what is referred to by name."""
    files: set[str] = field(default_factory=set)
    """`co_filename` of the captured functions."""
    globals: dict[str, Any] = field(default_factory=dict)
    """Names of the main namespace that captured functions use."""
    notes: list[str] = field(default_factory=list)
    """What the user should know, one line each."""


class Dumped(NamedTuple):
    """A pickled value. `buffers` are views of the live arrays: write them before those change."""

    body: bytes
    buffers: tuple[memoryview, ...]
    cuda_tensors: int


def dump(
    value: Any,
    *,
    mains: Sequence[dict[str, Any]] = (),
    hidden: Collection[str] = (),
    trace: Trace | None = None,
) -> Dumped:
    """Pickle a value; large buffers stay where they are.

    Functions whose globals are one of `mains` get the loading rank's main namespace; of the names they use,
    `hidden` ones are left behind. Raises whatever the value's own pickling raises.
    """
    file = io.BytesIO()
    buffers: list[memoryview] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes >= _IN_BAND_BELOW:
            buffers.append(view)
            return False
        return True

    pickler = Pickler(file, buffer_callback=keep, mains=mains, hidden=hidden, trace=trace)
    pickler.dump(value)
    return Dumped(file.getvalue(), tuple(buffers), pickler.cuda_tensors)


class _MainGlobals(dict[str, Any]):
    """Stands for the main namespace in a pickle; never empty, or cloudpickle would fill it."""


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle's Pickler with the differences that this module's first lines name."""

    def __init__(
        self,
        file: Any,
        *,
        buffer_callback: Any = None,
        mains: Sequence[dict[str, Any]] = (),
        hidden: Collection[str] = (),
        trace: Trace | None = None,
    ) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffer_callback)
        self.cuda_tensors = 0
        self._mains = {id(space) for space in mains}
        self._hidden = hidden
        self._trace = Trace() if trace is None else trace
        self._torch = sys.modules.get("torch")
        self._numpy = sys.modules.get("numpy")
        new_dtypes = getattr(getattr(self._torch, "storage", None), "_new_dtypes", set)
        self._untyped_dtypes = frozenset(new_dtypes())
        stand_in = _MainGlobals(__name__="__main__")
        for space in mains:
            self.globals_ref[id(space)] = stand_in

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is _MainGlobals:
            return _main, ()
        if kind is types.FunctionType:
            if getattr(obj, remade.NOTES, None) is obj:  # the kernel's own wrapper of a constructor
                obj = vars(obj)["__wrapped__"]
            return self._reduce_function(obj)
        if issubclass(kind, type):
            return self._reduce_class(obj)
        if issubclass(kind, types.ModuleType):
            self._trace.modules.add(obj.__name__)
            return NotImplemented
        if kind is types.BuiltinFunctionType:
            self._by_name(obj)
            return NotImplemented
        if kind is functools._lru_cache_wrapper:
            return self._reduce_lru_cache(obj)
        if kind is functools.cached_property:  # before Python 3.12 it holds a lock
            return _cached_property, (obj.func, obj.attrname)
        if obj is sys.stdout or obj is sys.stderr:
            return getattr, (sys, "stdout" if obj is sys.stdout else "stderr")
        if kind is io.TextIOWrapper:
            # cloudpickle would read the whole file and send a copy of its text.
            raise pickle.PicklingError(f"cannot pickle the open file {obj.name!r}")
        if kind is weakref.WeakKeyDictionary or kind is weakref.WeakValueDictionary:
            return kind, (dict(obj),)
        if self._numpy is not None and issubclass(kind, self._numpy.ndarray):
            return self._reduce_array(obj)
        remake = remade.reducer(kind)
        if remake is not None:
            return remake(obj, self._trace.notes.append)
        if self._torch is not None:
            return self._reduce_torch(obj)
        return NotImplemented

    def _by_name(self, obj: Any) -> None:
        module = getattr(obj, "__module__", None)
        if isinstance(module, str):
            self._trace.modules.add(module)
            self._trace.words.add(getattr(obj, "__name__", ""))

    def _reduce_function(self, function: types.FunctionType) -> Any:
        reduced = super().reducer_override(function)
        if reduced is NotImplemented:
            self._by_name(function)
            return reduced
        used = reduced[2][1]["__globals__"]
        names = code_names(function.__code__)
        space = function.__globals__
        for name in names.reads:  # cloudpickle overlooks what only a nested class body reads
            if name in space:
                used.setdefault(name, space[name])
        trace = self._trace
        trace.imports |= names.imports
        trace.words |= names.words
        trace.files.add(function.__code__.co_filename)
        if id(space) in self._mains:
            for name in self._hidden:
                used.pop(name, None)
            trace.globals.update(used)
        return reduced

    def _reduce_class(self, cls: Any) -> Any:
        reduced = super().reducer_override(cls)
        if reduced is NotImplemented:
            self._by_name(cls)
        elif reduced[0] in (_cp._make_skeleton_class, _cp._make_skeleton_enum):
            maker, args, state, *_ = reduced
            return _class, (maker, args), state, None, None, _set_class_state
        return reduced

    def _reduce_lru_cache(self, wrapper: Any) -> Any:
        if _cp._lookup_module_and_qualname(wrapper) is not None:
            self._by_name(wrapper)
            return NotImplemented
        # The cache itself stays behind; its two methods are made anew with the wrapper.
        own = {k: v for k, v in vars(wrapper).items() if k not in ("__wrapped__", "cache_parameters")}
        return _lru_cache, (wrapper.__wrapped__, wrapper.cache_parameters()), own

    def _reduce_array(self, array: Any) -> Any:
        numpy = self._numpy
        assert numpy is not None
        plain = type(array) is numpy.ndarray or type(array) is numpy.memmap
        if not plain or array.dtype.hasobject or array.nbytes < _IN_BAND_BELOW:
            return NotImplemented
        view = numpy.asarray(array)
        if view is not array or not (array.flags.forc or array.T.flags.forc):
            # A memory map or a slice: numpy would copy it into the body, byte by byte.
            return numpy.ascontiguousarray(view).__reduce_ex__(5)
        return NotImplemented

    def _reduce_torch(self, obj: Any) -> Any:
        torch = self._torch
        assert torch is not None
        kind = type(obj)
        if kind is torch.UntypedStorage:
            return self._reduce_storage(obj)
        if kind is torch.storage.TypedStorage:
            return _typed_storage, (obj._untyped_storage, obj.dtype)
        if issubclass(kind, torch.Tensor):
            self.cuda_tensors += bool(obj.is_cuda)
            if kind is torch.Tensor and obj.dtype in self._untyped_dtypes:
                rebuild, (first, *rest) = obj.__reduce_ex__(5)
                if type(first) is torch.UntypedStorage:  # torch hands this out, but wants a typed one back
                    return rebuild, (_typed_storage(first, torch.uint8), *rest)
        return NotImplemented

    def _reduce_storage(self, storage: Any) -> Any:
        # torch has one object for each storage, and pickle one entry for each object:
        # tied weights stay tied, views stay views.
        if storage.device.type == "cuda":
            return _cuda_storage, (storage.cpu(),)
        if storage.device.type != "cpu":
            return NotImplemented
        size = storage.nbytes()
        if size == 0:
            return _storage, (None,)
        memory = (ctypes.c_char * size).from_address(storage.data_ptr())
        memory._storage = storage  # keeps the memory as long as the view
        return _storage, (pickle.PickleBuffer(memory),)


class _Loading:
    """What the functions below find out about the load that calls them."""

    def __init__(self, main: dict[str, Any] | None) -> None:
        self.on_rank = main is not None
        self.main = {"__name__": "__main__", "__builtins__": builtins} if main is None else main
        self.known: set[int] = set()
        """Classes that were here before; the kernel's own, as a rule."""
        self.unfinished: list[tuple[int, Callable[[], None]]] = []


_lock = threading.RLock()
_current: _Loading | None = None


class loading:  # a class, because a traceback would show contextlib's frames
    """What is unpickled inside has `main` as its main namespace; None: one of its own.

    What was put off with `later` is done at the end, when all is loaded.
    """

    def __init__(self, main: dict[str, Any] | None) -> None:
        self._load = _Loading(main)
        self._previous: _Loading | None = None

    def __enter__(self) -> None:
        global _current
        _lock.acquire()
        self._previous, _current = _current, self._load

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        global _current
        _current = self._previous
        _lock.release()
        if kind is None:
            for _order, finish in sorted(self._load.unfinished, key=lambda item: item[0]):
                finish()


def later(order: int, finish: Callable[[], None]) -> None:
    """Call `finish` when all of the value is loaded: by `order`, else as they came."""
    if _current is None:
        finish()
    else:
        _current.unfinished.append((order, finish))


def _load() -> _Loading:
    return _Loading(None) if _current is None else _current


def on_rank() -> bool:
    """Whether what is being unpickled arrives on a rank, not in the kernel."""
    return _load().on_rank


# What a pickle calls on the other side. Their names are part of the format.


def _main() -> dict[str, Any]:
    return _load().main


def _class(maker: Any, args: tuple[Any, ...]) -> Any:
    known = _cp._DYNAMIC_CLASS_TRACKER_BY_ID.get(args[-2])
    load = _load()
    if known is None or load.on_rank:
        return maker(*args)
    load.known.add(id(known))
    return known


def _set_class_state(cls: Any, state: Any) -> Any:
    # cloudpickle would write the methods again, with globals cut off from the notebook's.
    return cls if id(cls) in _load().known else _cp._class_setstate(cls, state)


def _lru_cache(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _cached_property(function: Any, name: str | None) -> Any:
    made: Any = functools.cached_property(function)
    if name is not None:
        made.__set_name__(None, name)
    return made


def _storage(buffer: Any) -> Any:
    import torch

    if buffer is None:
        return torch.UntypedStorage(0)
    return torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage()


def _typed_storage(storage: Any, dtype: Any) -> Any:
    import torch

    return torch.storage.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


def _cuda_storage(storage: Any) -> Any:
    import torch

    if _goes_to_gpu(_load().on_rank, torch):
        return storage.cuda()
    return storage


def _goes_to_gpu(on_rank: bool, torch: Any) -> bool:
    """Whether what was on a GPU goes to one again: results stay off the notebook's GPU."""
    return on_rank and bool(torch.cuda.is_available())


def name_classes(main: dict[str, Any], run: str) -> None:
    """Make classes of the cell the same class for whoever loads results of several ranks.

    Every rank has made them from the same lines; without this `results[0] == results[1]` would be
    false for two equal dataclasses. Classes that came with the payload have their names already.
    """
    for name, value in list(main.items()):
        if isinstance(value, type) and (value.__module__, value.__qualname__) == ("__main__", name):
            lines = sorted(
                (key, item.__code__.co_filename, item.__code__.co_firstlineno)
                for key, item in vars(value).items()
                if isinstance(item, types.FunctionType)
            )
            shape = hashlib.sha256(repr((lines, sorted(vars(value)))).encode()).hexdigest()
            with _cp._DYNAMIC_CLASS_TRACKER_LOCK:
                identity = f"{run} {name} {shape}"
                if value not in _cp._DYNAMIC_CLASS_TRACKER_BY_CLASS:
                    _cp._DYNAMIC_CLASS_TRACKER_BY_CLASS[value] = identity
                    _cp._DYNAMIC_CLASS_TRACKER_BY_ID[identity] = value
