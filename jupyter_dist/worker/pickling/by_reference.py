"""References by name: the other process imports the same module and uses its own object.

A module is pickled by name if the other process can import it: an import finds the same file. A module that
the notebook made itself is pickled by value, with its functions. Examples are a `types.ModuleType` and a file
loaded by its path.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import sys
import types
from collections.abc import Callable, Collection, Iterable
from importlib.machinery import ModuleSpec
from typing import Any

from ..standard_library import module_names
from . import namespaces

__all__ = ["ByName", "is_installed", "reached"]

Rule = Callable[[Any], Any]

_OF_NO_FILE = ("built-in", "frozen")
_OF_A_SPACE = ("__package__", "__name__", "__path__", "__file__")
_NEVER = {"__main__", "__mp_main__"}
_CONTAINERS = {dict, list, set, bytearray, collections.deque}
_CONTAINERS |= {collections.Counter, collections.defaultdict, collections.OrderedDict}
_SYNC = {"_thread", "threading", "queue", "_queue", "_contextvars"}


class ByName:
    """The modules that one pickler has found, and how each is pickled.

    `doubtful` returns whether a rank may lack a module. `named` is called with each module that is referred
    to by name.
    """

    def __init__(self, doubtful: Callable[[str], bool] | None, named: Callable[[str], None]) -> None:
        self._doubtful = doubtful or (lambda _: False)
        self._named = named
        self._importable: dict[str, bool] = {}
        self._shells: dict[int, namespaces.Shell] = {}
        self._places: dict[int, tuple[str, str]] | None = None
        self._at_home: dict[int, namespaces.Placed] | None = None
        self._folders: frozenset[str] | None = None

    @functools.cached_property
    def _modules(self) -> dict[str, Any]:
        return sys.modules.copy()

    @functools.cached_property
    def _odd(self) -> dict[int, str]:
        return {
            id(module): name
            for name, module in self._modules.items()
            if type(module) is not types.ModuleType and _is_odd(module)
        }

    @functools.cached_property
    def odd_kinds(self) -> set[type]:
        """Return the classes of objects that replace a module in sys.modules without being a module."""
        return {type(self._modules[name]) for name in self._odd.values()}

    def importable(self, name: Any) -> bool:
        """Return whether another process can import the module with this name."""
        if not isinstance(name, str):
            return False
        known = self._importable.get(name)
        if known is None:
            known = self._importable[name] = name not in _NEVER and self._is_found(name)
        return known

    def _is_found(self, name: str) -> bool:
        module = sys.modules.get(name)
        parent = name.rpartition(".")[0]
        if module is None or (parent and not self.importable(parent)):
            return False
        spec = getattr(module, "__spec__", None)
        if parent:  # a spec without a loader belongs to a module that somebody made up
            made_up = isinstance(spec, ModuleSpec) and not (spec.loader or spec.submodule_search_locations)
            return not made_up
        if not isinstance(spec, ModuleSpec) or spec.name != name:
            return _spec(name) is not None  # the module has replaced its own entry, or has two names
        if spec.origin in _OF_NO_FILE:
            return True
        if spec.origin is None:
            return bool(spec.submodule_search_locations)
        return self._is_at_its_place(spec) or getattr(_spec(name), "origin", None) == spec.origin

    def _is_at_its_place(self, spec: ModuleSpec) -> bool:
        """Return whether a top-level module's file is on the import path. Only the paths are compared."""
        if self._folders is None:
            self._folders = frozenset(os.path.abspath(path) for path in sys.path if isinstance(path, str))
        folder, file = os.path.split(str(spec.origin))
        if spec.submodule_search_locations is not None:
            folder, file = os.path.split(folder)
        return folder in self._folders and file.partition(".")[0] == spec.name

    def reduce_module(self, module: Any) -> Any:
        """Reduce a module, or an object that replaces one in sys.modules."""
        path = self._path_of(module)
        if path is not None:
            self._named(".".join(filter(None, path)))
            return namespaces.reduce_place(*path)
        if not issubclass(type(module), types.ModuleType):
            return NotImplemented
        if module.__name__ in _NEVER or any("__reduce__" in vars(base) for base in type(module).__mro__[:-1]):
            return NotImplemented
        return self._shell(module).filled({k: v for k, v in vars(module).items() if k != "__builtins__"})

    def _path_of(self, module: Any) -> tuple[str, str] | None:
        """Return the module to import and the attributes to follow from it; None for a module by value."""
        name = self._odd.get(id(module))
        if name is None:
            with contextlib.suppress(Exception):  # an object that replaces a module can raise anything
                name = object.__getattribute__(module, "__dict__").get("__name__")
        if not isinstance(name, str):
            return None
        if sys.modules.get(name) is module:
            return (name, "") if self.importable(name) else None
        head, _, tail = name.rpartition(".")
        parent = sys.modules.get(head)
        if parent is not None and vars(parent).get(tail) is module and self.importable(head):
            return head, tail  # for example torch.ops
        for other, found in self._modules.items():
            if found is module and self.importable(other):
                return other, ""
        now = getattr(sys.modules.get(name), "__spec__", None)
        spec = getattr(module, "__spec__", None) if type(module) is types.ModuleType else None
        if spec is not None and getattr(now, "origin", None) == spec.origin and self.importable(name):
            return name, ""  # the module was imported again since
        return None

    def space(self, space: dict[str, Any]) -> namespaces.Space | None:
        """Return the placeholder for globals that belong to a module; None for other globals."""
        name = space.get("__name__")
        module = sys.modules.get(name) if isinstance(name, str) else None
        shell = self._shells.get(id(space))
        if getattr(module, "__dict__", None) is space:
            assert isinstance(name, str)
            if self.importable(name):
                self._named(name)
                copied = {key: space[key] for key in _OF_A_SPACE if key in space}
                return namespaces.space_of_module(name, copied if self._doubtful(name) else None)
            shell = None if name in _NEVER else self._shell(module)
        return None if shell is None else namespaces.space_of_shell(shell)

    def _shell(self, module: Any) -> namespaces.Shell:
        space = vars(module)
        shell = self._shells.get(id(space))
        if shell is None:
            name = str(space.get("__name__", "?"))
            shell = self._shells[id(space)] = namespaces.Shell(name, sys.modules.get(name) is module)
        return shell

    def reduce_bound(self, method: Any) -> Any:
        """Reduce a method that is also a name of a module, such as `random.random`, to that name."""
        home: str = type(method.__self__).__module__
        name = method.__name__
        while home:
            if getattr(sys.modules.get(home), "__dict__", {}).get(name) is method and self.importable(home):
                self._named(home)
                return namespaces.reduce_place(home, name)
            home = home.rpartition(".")[0]
        return NotImplemented

    def rule_of_instances(self, kind: type, rule: Rule | None) -> Rule | None:
        """Return a rule that pickles named objects of a module by name, and uses `rule` for all others."""
        if any(base.__module__ in _SYNC for base in kind.__mro__):
            return lambda obj: self._reduce_placed(obj, rule)
        name = kind.__module__
        module = sys.modules.get(name)
        if name == "builtins" or type(module) is not types.ModuleType or not self.importable(name):
            return rule
        there = {id(value): key for key, value in list(vars(module).items()) if type(value) is kind}
        if not there:
            return rule

        def reduce(obj: Any) -> Any:
            key = there.get(id(obj))
            if key is not None:
                return self._reduce_constant(obj, name, key)
            return NotImplemented if rule is None else rule(obj)

        return reduce

    def _reduce_placed(self, obj: Any, rule: Rule | None) -> Any:
        """Reduce a lock or a context variable by name if any module has it, otherwise by `rule`."""
        if self._places is None:
            self._places = self._index()
        place = self._places.get(id(obj))
        if place is not None and self.importable(place[0]) and not self._doubtful(place[0]):
            self._named(place[0])
            return namespaces.reduce_place(*place)
        return NotImplemented if rule is None else rule(obj)

    def at_home(self, names: dict[str, Any]) -> dict[str, Any]:
        """Return the same names, with placeholders for containers that a module of the user's also has.

        The containers are lists, dicts and sets. After `from settings import CONFIG` the notebook and the
        module's functions share one dict.
        """
        if not any(type(value) in _CONTAINERS for value in names.values()):
            return names
        if self._at_home is None:
            self._at_home = self._own_containers()
        homes = self._at_home
        return {name: homes.get(id(value), value) for name, value in names.items()}

    def registries(self, module: types.ModuleType) -> list[namespaces.Placed]:
        """Return the containers of a user's module that contain functions or classes of the notebook."""
        if is_installed(module.__name__):
            return []
        if self._at_home is None:
            self._at_home = self._own_containers()
        containers = {
            k: v for k, v in vars(module).items() if type(v) in _CONTAINERS and id(v) in self._at_home
        }
        return [self._at_home[id(v)] for v in containers.values() if any(map(_is_of_notebook, _items(v)))]

    def _own_containers(self) -> dict[int, namespaces.Placed]:
        found: dict[int, namespaces.Placed] = {}
        installed = _NEVER.union(name for name in self._modules if "." not in name and is_installed(name))
        own = [name for name in self._modules if name.partition(".")[0] not in installed]
        for name in own:
            module = self._modules[name]
            if not issubclass(type(module), types.ModuleType):
                continue
            if not self.importable(name) or self._doubtful(name):
                continue
            for key, value in list(vars(module).items()):
                if type(value) in _CONTAINERS and not key.startswith("__"):
                    found.setdefault(id(value), namespaces.Placed(name, key, value, self._named))
        return found

    def _index(self) -> dict[int, tuple[str, str]]:
        found: dict[int, tuple[str, str]] = {}
        wanted: dict[type, bool] = {}
        for name, module in self._modules.items():
            if name in _NEVER or not issubclass(type(module), types.ModuleType):
                continue
            for key, value in list(vars(module).items()):
                kind = type(value)
                if kind not in wanted:
                    wanted[kind] = any(base.__module__ in _SYNC for base in kind.__mro__)
                if wanted[kind]:
                    found.setdefault(id(value), (name, key))
        return found

    def _reduce_constant(self, obj: Any, module: str, key: str) -> Any:
        """Reduce a constant of a module, such as `dataclasses.MISSING` or `os.environ`, to its name.

        A constant of the user's own module keeps the attributes that were set on it.
        """
        place = namespaces.reduce_place(module, key)
        if is_installed(module):
            self._named(module)
            return place
        if self._doubtful(module):
            return NotImplemented
        self._named(module)
        made = obj.__reduce_ex__(5)
        plain = type(made) is tuple and made[0].__name__ == "__newobj__" and not any(made[3:])
        if not plain or hasattr(obj, "__setstate__"):
            return NotImplemented
        state = made[2] if len(made) > 2 else None
        if not isinstance(state, dict):
            return NotImplemented if state else place
        return *place, state, None, None, namespaces.updated


def _items(container: Any) -> Iterable[Any]:
    return list(container.values() if isinstance(container, dict) else container)


def _is_of_notebook(value: Any) -> bool:
    return isinstance(value, (type, types.FunctionType)) and value.__module__ == "__main__"


def reached(values: Iterable[Any], words: Collection[str]) -> list[types.ModuleType]:
    """Return the imported submodules that code may use as attributes of those values that are packages.

    `import xml` provides `xml.etree` only if something else has imported it, such as another cell.
    """
    packages = [value for value in values if type(value) is types.ModuleType and hasattr(value, "__path__")]
    found = []
    while packages:
        package = packages.pop()
        for word in sorted(vars(package).keys() & words):
            module = sys.modules.get(f"{package.__name__}.{word}")
            if type(module) is types.ModuleType:
                found.append(module)
                packages.append(module)
    return found


def _spec(name: str) -> ModuleSpec | None:
    """Return the spec that an import of a top-level module would find.

    Finders of other libraries may raise.
    """
    for finder in sys.meta_path:
        with contextlib.suppress(Exception):
            spec = finder.find_spec(name, None, None)
            if spec is not None:
                return spec
    return None


def _is_odd(module: Any) -> bool:
    return not issubclass(type(module), types.ModuleType) and module is not None


def is_installed(name: str) -> bool:
    """Return whether a module's top-level package is installed or part of Python.

    Otherwise the module is the user's own.
    """
    top = name.partition(".")[0]
    if top in module_names():
        return True
    module = sys.modules.get(top)
    known = _installed.get(top)
    if known is None or known[0] != id(module):
        known = _installed[top] = id(module), _lies_with_libraries(module)
    return known[1]


_installed: dict[str, tuple[int, bool]] = {}


def _lies_with_libraries(module: Any) -> bool:
    spec = getattr(module, "__spec__", None)
    places = [getattr(spec, "origin", None), *(getattr(spec, "submodule_search_locations", None) or ())]
    parts = {part for place in places if isinstance(place, str) for part in place.split(os.sep)}
    return bool(parts & {"site-packages", "dist-packages"}) or getattr(spec, "origin", None) in _OF_NO_FILE
