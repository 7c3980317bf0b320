"""How the form of a cluster is laid out, as the models of options say it: few fields open, the others folded.

A model says so in a class variable `form`: a `Form`. Those of its base classes are counted in, so that a
section of fields which several backends share is written once, beside the fields.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel

__all__ = ["MOST_OPEN", "Form", "Layout", "arranged"]

MOST_OPEN = 5
"""So many fields stand open: more is no calm form."""
_OTHERS = "More options"


@dataclass(frozen=True)
class Form:
    """What one model of options says about its fields in a form."""

    first: tuple[str, ...] = ()
    """The fields that stand open, at most five, also of those of every run (`np`, `hosts`, `env`, …)."""
    sections: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Titles of folded sections, and the fields in each. Fields that stand in none come last, together."""


@dataclass(frozen=True)
class Layout:
    """A form, all of its fields once."""

    first: tuple[str, ...]
    sections: tuple[tuple[str, tuple[str, ...]], ...]


def arranged(own: type[BaseModel], of_run: type[BaseModel], hidden: Container[str] = ()) -> Layout:
    """The form for a backend's `own` options and those `of_run` that every backend has, without the `hidden`.

    Where the backend says nothing of which fields stand open, these are the number of workers, the hosts,
    and its own fields in their order that stand in no section.
    """
    names = [name for model in (of_run, own) for name in _fields(model, hidden)]
    sections: dict[str, list[str]] = {}
    for form in (*_forms(own), *_forms(of_run)):
        for title, fields in form.sections.items():
            sections.setdefault(title, []).extend(fields)
    grouped = {name for fields in sections.values() for name in fields}
    first = next((form.first for form in _forms(own) if form.first), None)
    if first is None:
        ours = [name for name in _fields(own, hidden) if name not in grouped]
        first = ("np", "hosts", *ours)
    opened = tuple(dict.fromkeys(name for name in first if name in names))[:MOST_OPEN]
    sections[_OTHERS] = [name for name in names if name not in grouped]
    left = dict.fromkeys(names)
    for name in opened:
        del left[name]
    folded = []
    for title, fields in sections.items():
        # Each field once: the first section that names it has it.
        there = tuple(name for name in dict.fromkeys(fields) if name in left)
        for name in there:
            del left[name]
        if there:
            folded.append((title, there))
    return Layout(opened, tuple(folded))


def _forms(model: type[BaseModel]) -> Iterator[Form]:
    for one in model.__mro__:
        found = vars(one).get("form")
        if isinstance(found, Form):  # a field of another package may have that name
            yield found


def _fields(model: type[BaseModel], hidden: Container[str]) -> list[str]:
    """The fields that are typed into a form: those that are flags as well."""
    properties = model.model_json_schema().get("properties", {})
    return [name for name, about in properties.items() if name not in hidden and about.get("flags") != []]
