"""Layout of a cluster's form, from the models of options: a few open fields, and folded sections.

A model defines its layout in a class variable `form`, a `Form`. The forms of base classes count too.
Therefore a section that several backends share is written once, beside its fields.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel

__all__ = ["MOST_OPEN", "Form", "Layout", "arranged"]

MOST_OPEN = 5
"""Maximum number of open fields. More fields would make the form hard to read."""
_OTHERS = "More options"


@dataclass(frozen=True)
class Form:
    """Layout of the fields of one model of options."""

    first: tuple[str, ...] = ()
    """The open fields, at most five. They may include fields of every run (`np`, `hosts`, `env`, …)."""
    sections: Mapping[str, str] = field(default_factory=dict)
    """Names of the fields of each folded section, by its title. The last section has all other fields."""
    places: tuple[str, ...] = ()
    """The fields that name where to run. `no_site` of `detect` is about a cluster that sets none of them."""


@dataclass(frozen=True)
class Layout:
    """Layout of a whole form, with each field once."""

    first: tuple[str, ...]
    sections: tuple[tuple[str, tuple[str, ...]], ...]
    places: tuple[str, ...] = ()


def arranged(own: type[BaseModel], of_run: type[BaseModel], hidden: Container[str] = ()) -> Layout:
    """Return the layout for a backend's `own` options and the options `of_run`, without the `hidden` fields.

    `of_run`: the options that every backend has. A backend may define no open fields. Then the open fields
    are the number of workers, the hosts, and the backend's own fields that are in no section.
    """
    names = [name for model in (of_run, own) for name in _fields(model, hidden)]
    sections: dict[str, list[str]] = {}
    for form in (*_forms(own), *_forms(of_run)):
        for title, words in form.sections.items():
            sections.setdefault(title, []).extend(words.split())
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
        # A field is only in the first section that names it.
        there = tuple(name for name in dict.fromkeys(fields) if name in left)
        for name in there:
            del left[name]
        if there:
            folded.append((title, there))
    places = next((form.places for form in _forms(own) if form.places), ())
    return Layout(opened, tuple(folded), places)


def _forms(model: type[BaseModel]) -> Iterator[Form]:
    for one in model.__mro__:
        found = vars(one).get("form")
        if isinstance(found, Form):  # another package's model may use this name
            yield found


def _fields(model: type[BaseModel], hidden: Container[str]) -> list[str]:
    """Return the fields that users fill in. They are also flags."""
    properties = model.model_json_schema().get("properties", {})
    return [name for name, about in properties.items() if name not in hidden and about.get("flags") != []]
