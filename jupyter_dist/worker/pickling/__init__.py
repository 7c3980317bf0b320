"""Pickles of functions, classes and tensors that work in another process as they do here.

The pickler differs from cloudpickle in these points:
- Functions of the notebook use the rank's `__main__` as their globals.
- Functions of a module that a rank can import, such as a decorator's, use that module's globals.
- Loading in the kernel leaves the notebook's own classes unchanged.
- Storages of CPU tensors and large arrays are sent out of band, without a copy.
- Arrays and tensors in a file that is mapped into memory are sent as references to the file.
- A reducer of `reducers` rebuilds the objects of its classes on the rank.
- An open file is refused.
"""

from __future__ import annotations

import functools
import io
import pickle
import sys
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from . import (
    by_reference,
    cloudpickle_parts,
    code_places,
    file_maps,
    forwarding_objects,
    generated_methods,
    namespaces,
    other_pythons,
    reducers,
    singledispatch,
    tensors,
)
from .classes import _class, _set_class_state, name_classes, reduce_class  # noqa: F401
from .namespaces import _main  # noqa: F401
from .reducers import torch_compile
from .reducers.stdlib import _cached_property  # noqa: F401
from .tensors import _cuda_storage, _storage, _typed_storage  # noqa: F401
from .trace import Trace
from .unpickling import later, loading, on_rank
from .used_names import code_names, words_in

__all__ = ["Dumped", "Pickler", "Trace", "dump", "later", "loading", "name_classes", "on_rank"]

Rule = Callable[[Any], Any]


class Dumped(NamedTuple):
    """A pickled value. `buffers` are views of the live arrays: write them before the arrays change."""

    body: bytes
    buffers: tuple[memoryview, ...]
    cuda_tensors: int
    shared_tensors: int = 0
    """The number of tensors' storages in shared memory, which are copied."""


def dump(
    value: Any,
    *,
    mains: Sequence[dict[str, Any]] = (),
    hidden: Collection[str] = (),
    trace: Trace | None = None,
    doubtful: Callable[[str], bool] | None = None,
    bound: Mapping[int, str] | None = None,
    maps: file_maps.FileMaps | None = None,
    places: code_places.CodePlaces | None = None,
) -> Dumped:
    """Pickle a value without copying its large buffers.

    Functions whose globals are one of `mains` get the loading rank's main namespace. Of the names that they
    use, `hidden` ones are left out. `doubtful` returns whether a rank may lack a top-level module. `bound`
    maps ids of functions and classes to their names. With it, a second pickle has those that were found.
    `maps` are the files that are mapped into memory; by default those of this process. `places`: with them,
    processes with another version of Python can load the functions.

    Raises any exception of the value's own pickling.
    """
    file = io.BytesIO()
    buffers: list[memoryview] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes >= tensors.IN_BAND_BELOW:
            buffers.append(view)
            return False
        return True

    trace = Trace() if trace is None else trace
    more: dict[str, Any] = {"trace": trace, "doubtful": doubtful, "bound": bound, "maps": maps}
    more["places"] = places
    pickler = Pickler(file, buffer_callback=keep, mains=mains, hidden=hidden, **more)
    pickler.dump_names(value) if mains and type(value) is dict else pickler.dump(value)
    if bound is not None:
        pickler.dump(trace.found)
    return Dumped(file.getvalue(), tuple(buffers), pickler.cuda_tensors, pickler.shared_tensors)


class Pickler(cloudpickle_parts.BasePickler):  # type: ignore[misc]
    """cloudpickle's Pickler with the differences that the module's docstring lists."""

    def __init__(
        self,
        file: Any,
        *,
        buffer_callback: Any = None,
        mains: Sequence[dict[str, Any]] = (),
        hidden: Collection[str] = (),
        trace: Trace | None = None,
        doubtful: Callable[[str], bool] | None = None,
        bound: Mapping[int, str] | None = None,
        by_name: by_reference.ByName | None = None,
        maps: file_maps.FileMaps | None = None,
        places: code_places.CodePlaces | None = None,
    ) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffer_callback)
        self._mains = {id(space) for space in mains}
        self._hidden = hidden
        self._bound = bound or {}
        self._trace = Trace() if trace is None else trace
        self._maps = file_maps.FileMaps() if maps is None else maps
        self._tensors = tensors.Tensors(self._maps) if hasattr(sys.modules.get("torch"), "Tensor") else None
        self._places = places
        self._by_name = by_name or by_reference.ByName(doubtful, self._trace.modules.add)
        self._owners: set[int] = set()
        self._cells: dict[int, namespaces.Cell] = {}
        self._rules: dict[type, Rule | None] = {}
        stand_in = namespaces.space_of_main()
        for space in mains:
            self.globals_ref[id(space)] = stand_in

    @property
    def cuda_tensors(self) -> int:
        """The number of tensors on a GPU that were found."""
        return 0 if self._tensors is None else self._tensors.on_gpu

    @property
    def shared_tensors(self) -> int:
        """The number of tensors' storages in shared memory that were found."""
        return 0 if self._tensors is None else self._tensors.shared

    def dump_names(self, names: dict[str, Any]) -> None:
        """Pickle names with their values, in the same way as the names of captured functions."""
        self._owners = tensors.owners(names.values())
        self._maps.name(names)
        self.dump(self._by_name.at_home(names))

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        try:
            rule = self._rules[kind]
        except KeyError:
            rule = self._rules[kind] = self._rule(kind)
        return NotImplemented if rule is None else rule(obj)

    def _rule(self, kind: type) -> Rule | None:
        """Return how to reduce objects of a class, or None for cloudpickle's way. Called once per class."""
        if kind is types.FunctionType:
            return self._reduce_function
        if issubclass(kind, type):
            return self._reduce_class
        if issubclass(kind, types.ModuleType) or kind in self._by_name.odd_kinds:
            return self._reduce_module
        if kind is types.CodeType:
            return _reduce_code if self._places is None else self._places.reduce_code
        if self._places is not None and kind in generated_methods.SLOTTED:
            return generated_methods.reduce_slotted
        if self._places is not None and kind is functools.singledispatchmethod:
            return other_pythons.reduce_dispatch_method
        if kind is namespaces.Space:
            return lambda space: space.reduced
        if kind is namespaces.Cell:
            return lambda _: (cloudpickle_parts.make_empty_cell, ())
        if kind is types.CellType:
            return lambda cell: self._cell(cell).filled()
        numpy = sys.modules.get("numpy")
        if numpy is not None and issubclass(kind, numpy.ndarray):
            return lambda array: tensors.reduce_array(array, self._owners, self._maps)
        if self._tensors is not None and self._tensors.are(kind):
            return self._tensors.reduce
        if kind is getattr(sys.modules.get("pyarrow"), "Buffer", None):
            return lambda buffer: file_maps.reduce_arrow_buffer(buffer, self._maps)
        if kind is types.BuiltinFunctionType or kind is types.MethodType:
            return self._reduce_bound
        if kind is _LRU_CACHE:
            return self._reduce_lru_cache
        if kind is type(sys.stdout) or kind is type(sys.stderr) or kind is io.TextIOWrapper:
            return _reduce_stream
        remake = reducers.reducer(kind)
        rule = forwarding_objects.rule(kind) if remake is None else self._remaking(remake)
        return self._by_name.rule_of_instances(kind, rule)

    def _remaking(self, remake: Callable[[Any, Callable[[str], None]], Any]) -> Rule:
        return lambda obj: remake(obj, self._trace.notes.append)

    def _named(self, obj: Any) -> None:
        """Record an object that is referred to by name."""
        module = getattr(obj, "__module__", None)
        if isinstance(module, str):
            self._trace.modules.add(module)
            self._trace.words.add(getattr(obj, "__name__", ""))

    def _in_notebook(self, obj: Any) -> Any:
        """Record a function or class under its name in the notebook. A subclass may reduce it to the name."""
        name = self._bound.get(id(obj))
        if name is not None:
            self._trace.found[name] = obj
        return None

    def _is_by_name(self, obj: Any) -> bool:
        """Return whether the other process finds a function or class by its name in an importable module."""
        found = cloudpickle_parts.lookup_module(obj)
        if found is None or cloudpickle_parts.is_by_value(found[0]):
            return False
        return self._by_name.importable(obj.__module__ or found[0].__name__)

    def _reduce_function(self, function: types.FunctionType) -> Any:
        if getattr(function, reducers.NOTES, None) is function:  # the kernel's own wrapper of a constructor
            function = vars(function)["__wrapped__"]
        if self._is_by_name(function):
            self._named(function)
            return singledispatch.reduce_registered(function, self._mains)
        reference = self._in_notebook(function)
        if reference is not None:
            return reference
        own = function.__dict__
        if own:
            special = torch_compile.reduce_function(function, self._trace.notes.append)
            if special is None:
                special = singledispatch.reduce_dispatcher(function)
            if special is not None:
                return special
        return self._reduce_by_value(function)

    def _reduce_by_value(self, function: types.FunctionType) -> Any:
        space = function.__globals__
        if id(space) not in self.globals_ref:
            stand_in = self._by_name.space(space)
            if stand_in is not None:
                self.globals_ref[id(space)] = stand_in
        # Closures that share a variable keep sharing it. cloudpickle would make separate cells for each
        # function.
        cells = tuple(map(self._cell, function.__closure__ or ())) or None
        arguments = (*cloudpickle_parts.function_arguments(self, function)[:-1], cells)
        names = code_names(function.__code__)
        used = {name: space[name] for name in sorted(names.reads | names.writes) if name in space}
        trace = self._trace
        trace.add_code(names)
        if function.__defaults__:
            trace.texts |= words_in(function.__defaults__)
        trace.add_annotations(function)
        trace.files.add(function.__code__.co_filename)
        home = self.globals_ref[id(space)]
        if id(space) in self._mains:
            used = {name: value for name, value in used.items() if name not in self._hidden}
            trace.globals.update(used)
        elif (
            isinstance(home, namespaces.Space)
            and home.of_module
            and not (home.copied and self._can_travel(used))
        ):
            used = {}
        reached = by_reference.reached(used.values(), names.words)
        used = self._by_name.at_home(used)
        maker: Any = cloudpickle_parts.make_function
        if self._places is not None:
            maker, arguments = self._places.reduce_function(arguments)
        return (
            maker,
            arguments,
            namespaces.function_state(function, used, cells, reached),
            None,
            None,
            namespaces.set_function,
        )

    def _cell(self, cell: types.CellType) -> namespaces.Cell:
        known = self._cells.get(id(cell))
        if known is None:
            known = self._cells[id(cell)] = namespaces.Cell(cell)
        return known

    def _can_travel(self, used: dict[str, Any]) -> bool:
        try:
            Pickler(io.BytesIO(), buffer_callback=lambda _: False).dump(used)
        except Exception:  # pickling runs code of the values
            return False
        return True

    def _reduce_class(self, cls: Any) -> Any:
        if self._is_by_name(cls):
            self._named(cls)
            return NotImplemented
        if cls in cloudpickle_parts.BUILTIN_TYPES or cls in _SINGLE:
            return cloudpickle_parts.class_reduce(cls)
        reference = self._in_notebook(cls)
        if reference is not None:
            return reference
        self._trace.classes.add(id(cls))
        texts = _texts_of_class(cls)
        if texts:
            self._trace.texts |= words_in(texts)
        self._trace.add_annotations(cls)
        generated = None if self._places is None else generated_methods.describe(cls)
        if generated is not None and self._places is not None:
            self._places.made_again(generated_methods.functions(cls, generated))
        return reduce_class(cls, generated)

    def _reduce_module(self, module: Any) -> Any:
        reduced = self._by_name.reduce_module(module)
        if reduced is not NotImplemented and type(module) is types.ModuleType and len(reduced) == 2:
            registered = [*singledispatch.of_module(module, self._mains), *self._by_name.registries(module)]
            if registered:
                return *reduced, registered, None, None, singledispatch.loaded
        return reduced

    def _reduce_bound(self, method: Any) -> Any:
        owner = method.__self__
        if owner is None or type(owner) is types.ModuleType:
            self._named(method)
            return NotImplemented
        reduced = self._by_name.reduce_bound(method)
        if reduced is NotImplemented and type(method) is types.BuiltinFunctionType:
            self._named(method)
            if self._places is not None:
                return other_pythons.reduce_method(method)
        return reduced

    def _reduce_lru_cache(self, wrapper: Any) -> Any:
        if self._is_by_name(wrapper):
            self._named(wrapper)
            return NotImplemented
        reference = self._in_notebook(wrapper)
        if reference is not None:
            return reference
        # The contents of the cache are not sent. Python makes the cache's two methods again with the wrapper.
        own = {k: v for k, v in vars(wrapper).items() if k not in ("__wrapped__", "cache_parameters")}
        return _lru_cache, (wrapper.__wrapped__, wrapper.cache_parameters()), own


_LRU_CACHE = type(functools.lru_cache(len))
_SINGLE = {type(None), type(Ellipsis), type(NotImplemented)}
_NO_TEXT = {"__doc__", "__module__", "__qualname__"}


def _texts_of_class(cls: type) -> list[str]:
    return [value for name, value in vars(cls).items() if type(value) is str and name not in _NO_TEXT]


def _reduce_code(code: types.CodeType) -> Any:
    """Reduce code together with its file name.

    Tracebacks find lines by it; cloudpickle omits it since 3.1.3.
    """
    return _code, (*cloudpickle_parts.code_reduce(code), code.co_filename)


def _reduce_stream(stream: Any) -> Any:
    if stream is sys.stdout or stream is sys.stderr:
        return getattr, (sys, "stdout" if stream is sys.stdout else "stderr")
    if type(stream) is io.TextIOWrapper and stream.closed:
        return _closed_stream, (getattr(stream, "name", None),)
    if type(stream) is io.TextIOWrapper:
        # cloudpickle would read the whole file and send a copy of its text.
        raise pickle.PicklingError(f"cannot pickle the open file {stream.name!r}")
    return NotImplemented


# A pickle calls these functions when it is loaded. Their names are part of the format, and so are the private
# names that are imported above. Results in old run folders call them by these names.


def _closed_stream(name: Any) -> io.TextIOWrapper:
    """Return a closed text file with this name, as a callback of Keras has after its training."""
    raw = io.BytesIO()
    raw.name = name
    stream = io.TextIOWrapper(raw)
    stream.close()
    return stream


def _code(maker: Any, arguments: tuple[Any, ...], filename: str) -> types.CodeType:
    code: types.CodeType = maker(*arguments)
    return code.replace(co_filename=filename)


def _lru_cache(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)
