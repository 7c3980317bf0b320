"""The second part of a payload: names of the notebook that the cell's code does not name.

| value | travels | limit |
|---|---|---|
| a function, a class, an import | always | 1 MB |
| data | if its name is a word in a string or an annotation of the first part | 1 MB |
| data | if another name of the second part may ask for it | 10 kB |

All together have at most 10 MB. A value that cannot be pickled stays behind, and the cell runs without it.
`worker/pickling/lazy_names.py` loads the names on a rank.
"""

from __future__ import annotations

import functools
import io
import pickle
import sys
import types
import warnings
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..worker.pickling import Pickler, Trace, cloudpickle_parts
from ..worker.pickling.by_reference import ByName, is_installed, reached
from ..worker.pickling.code_places import CodePlaces
from ..worker.pickling.lazy_names import SecondPart, notebook_name
from ..worker.pickling.reducers import reducer
from ..worker.pickling.used_names import words_in
from . import definition_parts

__all__ = ["Built", "bound_names", "build"]

_MOST_OF_ONE = 1_000_000
_MOST_OF_READ = 10_000
"""The limit of data for which only names of the second part may ask. Each capture pickles such data again."""
_MOST_OF_ALL = 10_000_000
_KINDS = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
    type(functools.lru_cache(len)),
)
_EVALUATES = {"eval", "exec"}
_PLAIN_REDUCERS = {"exceptions", "locks", "stdlib", "type_parameters", "weak_references"}
_PLAIN_REDUCERS |= {"torch_compile", "torch_operators"}


@dataclass(frozen=True)
class Built:
    """The second part, and what the header says of it."""

    body: bytes
    unnamed: Mapping[str, str]
    """Names that the cell does not name, with the reason why a name was left out, or an empty text."""
    modules: frozenset[str]
    """Top-level modules of the user's that a rank needs for the names."""
    texts: Mapping[tuple[str, str], str]
    """The texts of functions, for ranks with another Python: see `CodePlaces.texts`."""


@dataclass(frozen=True)
class _Entry:
    """The pickle of one name, or the reason why there is none."""

    body: bytes = b""
    reason: str = ""
    parts: list[Any] | None = None
    references: Mapping[str, Any] = field(default_factory=dict)
    """Other names of the notebook to which the pickle refers, with their values."""
    words: frozenset[str] = frozenset()
    """Names that the code of the value may ask for, of the notebook or not."""
    attributes: frozenset[str] = frozenset()
    """Every name and attribute in the code of the value."""
    modules: frozenset[str] = frozenset()
    """Top-level modules of the user's that the pickle refers to."""
    texts: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """The texts of the functions, for ranks with another Python."""
    lacks: bool = False
    """Whether the text of a function is missing. A later capture may find it."""


def bound_names(namespace: Mapping[str, Any], hidden: Collection[str]) -> dict[int, str]:
    """Return the names of the notebook's own functions and classes, by their ids."""
    kinds = (type, types.FunctionType, type(functools.lru_cache(len)))
    return {
        id(value): name
        for name, value in reversed(list(namespace.items()))
        if issubclass(type(value), kinds) and name not in hidden and value.__module__ == "__main__"
    }


def build(
    namespace: dict[str, Any],
    named: Collection[str],
    values: Mapping[str, Any],
    trace: Trace,
    bound: Mapping[int, str],
    *,
    mains: Sequence[dict[str, Any]],
    hidden: Collection[str],
    doubtful: Callable[[str], bool],
    rank_modules: object,
    sources: Sequence[tuple[str, str]] | None = None,
) -> Built:
    """Pickle the names that the first part lacks.

    Args:
        named: names that the cell names.
        values, trace: of the first part.
        bound: see `bound_names`.
        rank_modules: a key that is equal for captures in which `doubtful` returns the same.
        sources: file names and texts of earlier cells, if the ranks can have another Python.

    Nothing is raised for a value that cannot be pickled.
    """
    taken = {*named, *trace.globals, *hidden}
    free = {name: value for name, value in namespace.items() if name not in taken}
    pickling = _Pickling(namespace, mains, doubtful, bound, rank_modules, sources)
    entries = {
        name: pickling.definition(name, value) for name, value in free.items() if _is_definition(value)
    }
    texts = trace.texts | words_in([*values.values(), *trace.globals.values()])
    wanted = set(texts).union(*(entry.words for entry in entries.values()))
    data: list[str] = []
    while more := [name for name in free if name in wanted and name not in entries]:
        data += more
        for name in more:
            limit = _MOST_OF_ONE if name in texts else _MOST_OF_READ
            entries[name] = pickling.data(name, free[name], limit)
        wanted = set().union(*(entries[name].words for name in more))
    pickling.keep(entries)
    _limit(entries, data)
    able = {name for name, entry in entries.items() if entry.body} | (trace.found.keys() & free.keys())
    needs = {name: sorted(entry.words & able - {name}) for name, entry in entries.items() if entry.body}
    first = [name for name in free if name in able & texts]
    for name, base in _subclasses(free, able, trace, bound):
        first.append(name) if base is None else needs.setdefault(base, []).append(name)
    part = SecondPart(
        pickles={name: entry.body for name, entry in entries.items() if entry.body},
        needs={name: found for name, found in needs.items() if found},
        data=data,
        homes={name: home for name in able - trace.annotations if (home := _home(free[name]))},
        submodules={name: found for name in entries if (found := _submodules(entries[name], namespace))},
        first=first,
        all_first="globals" in trace.reads,
        evaluates=not _EVALUATES.isdisjoint(trace.reads),
    )
    unnamed = {name: entries[name].reason if name in entries else "" for name in free}
    modules = frozenset().union(*(entry.modules for entry in entries.values()))
    known = {key: text for entry in entries.values() for key, text in entry.texts.items()}
    return Built(pickle.dumps(part, protocol=5), unnamed, modules, known)


def _is_definition(value: Any) -> bool:
    kind = type(value)
    if kind.__module__ in ("typing", "typing_extensions") or kind in (types.GenericAlias, types.UnionType):
        return True
    # isinstance would ask the value for its class, and a proxy may raise.
    return issubclass(kind, _KINDS) or kind.__name__ == "ufunc"


def _submodules(entry: _Entry, namespace: Mapping[str, Any]) -> list[str]:
    packages = [namespace[name] for name in entry.words if name in namespace]
    return [module.__name__ for module in reached(packages, entry.attributes)] if entry.body else []


def _home(value: Any) -> str:
    """Return the module from which a value was imported; an empty text for the notebook's own."""
    if type(value) is types.ModuleType:
        return value.__name__
    home = value.__module__ if issubclass(type(value), _KINDS) else ""
    return home if type(home) is str and home in sys.modules and home != "__main__" else ""


def _limit(entries: dict[str, _Entry], data: Collection[str]) -> None:
    """Leave out the largest data, then the largest definitions, until all together are within the limit."""
    size = sum(len(entry.body) for entry in entries.values())
    for name in sorted(entries, key=lambda name: (name not in data, -len(entries[name].body))):
        if size <= _MOST_OF_ALL:
            return
        size -= len(entries[name].body)
        entries[name] = _Entry(reason="all such names together have more than 10 MB")


def _subclasses(
    free: Mapping[str, Any], able: Collection[str], trace: Trace, bound: Mapping[int, str]
) -> Iterable[tuple[str, str | None]]:
    """Yield each class with the name of a base that a rank loads later; None for a base of the first part."""
    for name, cls in free.items():
        if name not in able or not issubclass(type(cls), type) or id(cls) not in bound:
            continue
        for base in cls.__mro__[1:]:
            if id(base) in bound and bound[id(base)] in able:
                yield name, bound[id(base)]
            if id(base) in trace.classes or (
                base.__module__ in trace.modules and not is_installed(base.__module__)
            ):
                yield name, None
                break


class _TooLarge(Exception):
    pass


class _Short(io.BytesIO):
    """A file that ends a pickle above a limit in bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def write(self, data: Any) -> int:
        self._check(memoryview(data).nbytes)
        return super().write(data)

    def keep(self, buffer: pickle.PickleBuffer) -> bool:
        """Check a buffer before it is copied into the pickle."""
        self._check(buffer.raw().nbytes)
        return True

    def _check(self, size: int) -> None:
        if self.tell() + size > self._limit:
            raise _TooLarge(_larger_than(self._limit))


def _larger_than(limit: int) -> str:
    return f"it has more than {limit / 1000:,.0f} kB"


class _EntryPickler(Pickler):
    """A pickler for one name. It refers to other functions and classes of the notebook by name."""

    def __init__(
        self, file: _Short, name: str, trace: Trace, pickling: _Pickling, places: CodePlaces | None
    ) -> None:
        super().__init__(
            file,
            buffer_callback=file.keep,
            mains=pickling.mains,
            hidden=pickling.namespace,
            trace=trace,
            bound=pickling.bound,
            by_name=pickling.by_name,
            places=places,
        )
        self._name = name

    def _in_notebook(self, obj: Any) -> Any:
        name = self._bound.get(id(obj), self._name)
        if name == self._name:
            return None
        super()._in_notebook(obj)
        return notebook_name, (name, cloudpickle_parts.tracker_id(obj) if isinstance(obj, type) else None)

    def _rule(self, kind: type) -> Any:
        remake = reducer(kind)
        home = getattr(remake, "__module__", "").rpartition(".")[2]
        if remake is not None and home not in _PLAIN_REDUCERS:
            # These reducers may ask another process for data, or add notes on what the cell does not use.
            raise pickle.PicklingError(f"a {kind.__name__} travels only if the cell names it")
        if self._tensors is not None and self._tensors.are(kind):
            return self._reduce_tensor
        return super()._rule(kind)

    def _reduce_tensor(self, tensor: Any) -> Any:
        if tensor.device.type != "cpu":
            raise pickle.PicklingError("a tensor on a GPU travels only if the cell names it")
        assert self._tensors is not None
        return self._tensors.reduce(tensor)


_cache: dict[str, tuple[Any, _Entry]] = {}
"""The entries of the last capture, with their values' weak references. One kernel has one notebook."""
_cached_for: object = None


class _Pickling:
    """One pass over the names of a namespace."""

    def __init__(
        self,
        namespace: dict[str, Any],
        mains: Sequence[dict[str, Any]],
        doubtful: Callable[[str], bool],
        bound: Mapping[int, str],
        rank_modules: object,
        sources: Sequence[tuple[str, str]] | None,
    ) -> None:
        self.namespace, self.mains, self.bound = namespace, mains, bound
        self._doubtful = doubtful
        self._trace = Trace()
        self._sources = sources
        self._key = id(namespace), rank_modules, sources is None
        self._known = _cache if _cached_for == self._key else {}

    @functools.cached_property
    def by_name(self) -> ByName:
        """The references to modules, which all pickles share."""
        return ByName(self._doubtful, lambda module: self._trace.modules.add(module))

    def definition(self, name: str, value: Any) -> _Entry:
        before = self._before(name, value)
        if before is not None and before.reason == _larger_than(_MOST_OF_ONE):
            return before
        found = definition_parts.parts(value)
        if before is not None and definition_parts.same(before.parts, found) and self._refers(before):
            return before
        return self._new(name, value, found)

    def data(self, name: str, value: Any, limit: int) -> _Entry:
        if str(type(value).__module__).partition(".")[0] == "jupyter_dist":
            return _Entry()
        before = self._before(name, value)
        if before is not None and before.reason == _larger_than(limit):
            return before
        return self._new(name, value, None, limit)

    def keep(self, entries: Mapping[str, _Entry]) -> None:
        """Keep the entries for the next capture."""
        global _cache, _cached_for
        _cached_for = self._key
        _cache = {
            name: (_reference(self.namespace[name]), entry)
            for name, entry in entries.items()
            if not entry.lacks
        }

    def _before(self, name: str, value: Any) -> _Entry | None:
        reference, entry = self._known.get(name, (None, None))
        return entry if reference is not None and reference() is value else None

    def _refers(self, entry: _Entry) -> bool:
        return all(self.namespace.get(name) is value for name, value in entry.references.items())

    def _new(self, name: str, value: Any, parts: list[Any] | None, limit: int = _MOST_OF_ONE) -> _Entry:
        trace = self._trace = Trace()
        file = _Short(limit)
        places = None if self._sources is None else CodePlaces(self._sources)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the cell does not name the value
                _EntryPickler(file, name, trace, self, places).dump(value)
        except _TooLarge as error:
            return _Entry(reason=str(error))
        except Exception as error:  # pickling runs the value's own code
            return _Entry(
                reason=f"it cannot be pickled: {type(error).__name__}: {str(error)[:200]}", parts=parts
            )
        modules = {module for module in trace.modules | trace.imports if not is_installed(module)}
        return _Entry(
            body=file.getvalue(),
            parts=parts,
            references={other: obj for other, obj in trace.found.items() if other != name},
            words=frozenset(trace.reads | trace.texts | words_in(value)),
            attributes=frozenset(trace.words),
            modules=frozenset(module.partition(".")[0] for module in modules),
            texts={} if places is None else places.texts,
            lacks=places is not None and bool(places.missing),
        )


def _reference(value: Any) -> Any:
    try:
        return weakref.ref(value)
    except TypeError:
        return None
