"""The names that pickling has found, from which a capture decides what else must be sent."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Protocol

from . import annotation_values
from .used_names import words_in

__all__ = ["Trace"]


class _Code(Protocol):
    """The names in some code. `CodeNames` and `Trace` are examples."""

    @property
    def imports(self) -> Collection[str]: ...
    @property
    def words(self) -> Collection[str]: ...
    @property
    def reads(self) -> Collection[str]: ...
    @property
    def texts(self) -> Collection[str]: ...


@dataclass
class Trace:
    """Names that were found while pickling. They decide what else must be sent."""

    modules: set[str] = field(default_factory=set)
    """Modules that the pickle refers to by name, directly or through an object in them."""
    imports: set[str] = field(default_factory=set)
    """Modules that the code of captured functions imports when it runs."""
    words: set[str] = field(default_factory=set)
    """Every name and attribute in the code of captured functions, and names of by-name references."""
    reads: set[str] = field(default_factory=set)
    """Global names that the code of captured functions may read."""
    texts: set[str] = field(default_factory=set)
    """Words in strings and annotations of captured functions and classes."""
    annotations: set[str] = field(default_factory=set)
    """Words in annotations that are strings."""
    files: set[str] = field(default_factory=set)
    """`co_filename` of the captured functions."""
    globals: dict[str, Any] = field(default_factory=dict)
    """Names of the main namespace that captured functions use."""
    found: dict[str, Any] = field(default_factory=dict)
    """Functions and classes of the pickle that the main namespace has under a name."""
    classes: set[int] = field(default_factory=set)
    """Ids of the classes that are pickled by value."""
    notes: list[str] = field(default_factory=list)
    """Notes for the user, one line each."""

    def add_code(self, names: _Code) -> None:
        """Record the names in code."""
        self.imports.update(names.imports)
        self.words.update(names.words)
        self.reads.update(names.reads)
        self.texts.update(names.texts)

    def add_annotations(self, obj: Any) -> None:
        """Record the annotations of a function or a class that are strings."""
        texts = annotation_values.texts(obj)
        if texts:
            words = words_in(texts)
            self.texts |= words
            self.annotations |= words
