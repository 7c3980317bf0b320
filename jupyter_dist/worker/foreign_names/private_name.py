"""A group of private names of another library, and a probe of the installed version for them."""

from __future__ import annotations

import enum
import functools
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from ..standard_library import module_names

__all__ = ["Missing", "Probe", "Row", "is_there", "version_of"]


class Missing(enum.Enum):
    """The consequence if the installed version lacks a name."""

    REFUSE = "refuse"
    """The name decides what is trained. The user's import or cell raises one error."""
    NOTE = "note"
    """The name only serves curves and metrics. The user gets one note, and training continues."""
    OFF = "off"
    """The feature is off. The user gets a note if the feature would be missed."""


class Probe(enum.Enum):
    """How to check whether a name exists."""

    ATTRIBUTE = "attribute"
    """The name is an attribute of the module, or of a class in the module."""
    WRITTEN = "written"
    """Objects get the name in a constructor, so only the module's source contains the name."""
    MODULE = "module"
    """The module itself is private."""
    SOME_BUILDS = "some builds"
    """Only some builds of the library have the name, so the code that uses it looks for it."""


@dataclass(frozen=True)
class Row:
    """Private names that belong together: one module of a library, one use in our code, one consequence."""

    module: str
    """The full name of the module that has the names."""
    names: tuple[str, ...]
    """Paths of attributes in the module, such as `Condition._waiters`; none for MODULE."""
    users: tuple[str, ...]
    """Our modules that depend on the names: paths below jupyter_dist/, without `.py`."""
    missing: Missing
    feature: str
    """The feature that depends on the names, as the subject of a sentence."""
    probe: Probe = Probe.ATTRIBUTE
    takes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Name → the parameters that we pass to it, or that our replacement expects."""
    cure: str = ""
    """A command that helps besides another version."""
    since: tuple[int, int] = (3, 9)
    until: tuple[int, int] = (4, 0)
    """The first Python that has the names, and the first Python without them. For the standard library."""
    public: str = ""
    """The public name in the module that came with the names. An older version lacks all, and needs none."""

    @property
    def library(self) -> str:
        """The top-level module."""
        return self.module.partition(".")[0]

    @property
    def applies(self) -> bool:
        """Whether the row applies to this Python."""
        return self.since <= sys.version_info[:2] < self.until

    def lacking(self, module: ModuleType | None = None) -> list[str]:
        """Return the names that the installed version lacks, with their module. Empty if it has all names.

        Imports the module if it is not imported, unless the module's source is enough. `module`: the module
        itself, if its import has not ended yet.
        """
        if not self.applies or self.probe is Probe.SOME_BUILDS:
            return []
        if self.public and not _has(importlib.import_module(self.module), self.public, ()):
            return []
        if self.probe is Probe.MODULE:
            return [] if is_there(self.module) else [self.module]
        if self.probe is Probe.WRITTEN:
            written = _written(self.module, self.names)
            if written is None and is_there(self.module):
                return []  # the module has only compiled code, which cannot be searched
            found = written or frozenset()
        else:
            try:
                owner = module or importlib.import_module(self.module)
            except ImportError:
                return [f"{self.module}.{name}" for name in self.names]
            found = frozenset(name for name in self.names if _has(owner, name, self.takes.get(name, ())))
        return [f"{self.module}.{name}" for name in self.names if name not in found]


def _last(path: str) -> str:
    return re.escape(path.rpartition(".")[2])


def is_there(module: str) -> bool:
    """Return whether a module is imported or installed. Imports nothing."""
    return module in sys.modules or next(_files(module), None) is not None


def _has(owner: Any, path: str, takes: tuple[str, ...]) -> bool:
    for part in path.split("."):
        try:
            owner = getattr(owner, part)
        except AttributeError:
            return False
    return not takes or _accepts(owner, takes)


def _accepts(function: Any, names: tuple[str, ...]) -> bool:
    """Return whether a function has parameters of these names. True for functions without Python code."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARKEYWORDS:
        return True
    # `inspect.signature` would evaluate annotations, which fails for some on Python 3.14.
    return set(names) <= set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


@functools.lru_cache(64)
def _written(module: str, names: tuple[str, ...]) -> frozenset[str] | None:
    """Return those names that a module's source contains. None if the module has no source."""
    text = "\n".join(path.read_text("utf-8", "replace") for path in _files(module) if path.suffix == ".py")
    if not text:
        return None
    return frozenset(name for name in names if re.search(rf"(?<!\w){_last(name)}", text))


def _files(module: str) -> Iterator[Path]:
    """Yield the files of a module, from paths alone. `find_spec` of a submodule would import its parents."""
    top, *parts = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return
    if spec is None or spec.origin is None:
        return
    place = Path(spec.origin)
    if parts or spec.submodule_search_locations:
        folder = place.parent.joinpath(*parts)
        yield from sorted(path for path in folder.parent.glob(f"{folder.name}.*") if path.suffix in _CODE)
        place = folder / "__init__.py"
    if place.is_file():
        yield place


_CODE = (".py", ".so", ".pyd")


def version_of(library: str) -> str:
    """Return the installed version of a library, or `?` if it is unknown.

    For the standard library, the result is the version of Python.
    """
    if library in module_names():
        return ".".join(map(str, sys.version_info[:3]))
    version = getattr(sys.modules.get(library), "__version__", None)
    if isinstance(version, str):
        return version
    from importlib import metadata  # only for the text of an error: each rank imports this module

    for name in (library, f"{library}_cpu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "?"
