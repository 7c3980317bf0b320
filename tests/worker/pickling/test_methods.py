"""Properties, class methods and static methods travel with their own class and their own attributes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rigs.notebook_cells import Notebook

CLASSES = """
import abc

def tagged(kind, **tags):
    def mark(function):
        method = kind(function)
        method.tags = tags
        return method
    return mark

class Unit(property):
    def __init__(self, get, set=None, delete=None, doc=None, unit="m"):
        super().__init__(get, set, delete, doc)
        self.unit = unit

class PerClass(property):
    def __get__(self, obj, owner=None):
        return self.fget(owner)

class Counted(staticmethod):
    def __init__(self, function):
        super().__init__(function)
        self.calls = 0
    def __call__(self, *args):
        self.calls += 1
        return super().__call__(*args)

class Base:
    width = 2
    @tagged(classmethod, check="x")
    def small(cls, value): return value < cls.width
    @tagged(staticmethod, check="y")
    def twice(value): return 2 * value
    @Unit
    def length(self):
        "How long it is."
        return self.width
    @length.setter
    def length(self, value): self.width = value
    depth = Unit(lambda self: 7, unit="cm")
    @PerClass
    def name(cls): return cls.__name__
    @abc.abstractclassmethod
    def later(cls): return cls.width
    plain = property(lambda self: 1, doc="One.")

counted = Counted(lambda value: value + 1)
counted(1)
"""
ROWS = [
    ("Base.small(1), vars(Base)['small'].tags", (True, {"check": "x"})),
    ("Base.twice(4), vars(Base)['twice'].tags", (8, {"check": "y"})),
    ("Base().length, Base.length.unit, Base.length.__doc__", (2, "m", "How long it is.")),
    ("vars(type('Below', (Base,), {'width': 9})())", {}),
    ("(lambda base: (setattr(base, 'length', 5), base.width)[1])(Base())", 5),
    ("Base().depth, Base.depth.unit, type(Base.depth) is Unit", (7, "cm", True)),
    ("Base.name, type('Below', (Base,), {}).name", ("Base", "Below")),
    ("Base.later(), vars(Base)['later'].__isabstractmethod__", (2, True)),
    ("Base().plain, Base.plain.__doc__, type(Base.plain)", (1, "One.", property)),
    ("counted(3), counted.calls, type(counted) is Counted", (4, 2, True)),
]


@pytest.mark.parametrize(("source", "value"), ROWS, ids=[row[0] for row in ROWS])
def test_are_whole(notebook: Notebook, source: str, value: Any) -> None:
    notebook.cell(CLASSES)
    assert notebook.run(f"result = {source}") == value


def test_with_slots_are_refused(notebook: Notebook) -> None:
    notebook.cell("class Slotted(property):\n    __slots__ = ('unit',)\nslotted = Slotted()")
    assert notebook.error("slotted").startswith("slotted: cannot pickle 'Slotted' object")
