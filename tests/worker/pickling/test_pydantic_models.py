"""Parametrised models of pydantic: `Box[int]` is the same class out and back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rigs.notebook_cells import Notebook

pytestmark = pytest.mark.needs("pydantic")

MODELS = """
from typing import Generic, Literal, Optional, TypeVar
from pydantic import BaseModel
T = TypeVar("T")
U = TypeVar("U")
class Inner(BaseModel):
    rate: float = 0.5
class Box(BaseModel, Generic[T]):
    value: T
    def twice(self): return self.value, self.value
class Pair(BaseModel, Generic[T, U]):
    left: T
    right: Optional[U] = None
class Below(Box[int]):
    name: str = "n"
class Node(BaseModel, Generic[T]):
    value: T
    children: "list[Node[T]]" = []
class Sub(Box[T], Generic[T]):
    more: T
class Holder(BaseModel):
    box: Box[Inner]
"""
ROWS = [
    ("Box[int]", "Box[int](value=3)"),
    ("Box[list[float]]", "Box[list[float]](value=[1, '2'])"),
    ("Box[Inner]", "Box[Inner](value=Inner(rate=2))"),
    ("Box[Box[Inner]]", "Box[Box[Inner]](value=Box[Inner](value=Inner()))"),
    ("Pair[int, Literal['a', 'b']]", "Pair[int, Literal['a', 'b']](left=1, right='a')"),
    ("Below", "Below(value=2)"),
    ("Node[int]", "Node[int](value=1, children=[Node[int](value=2)])"),
    ("Sub[str]", "Sub[str](value='a', more='b')"),
    ("Holder", "Holder(box=Box[Inner](value=Inner()))"),
    ("Pair[T, int]", "Pair[T, int](left=1, right=2)"),
]


@pytest.mark.parametrize(("kind", "made"), ROWS, ids=[row[0] for row in ROWS])
def test_are_one_class(notebook: Notebook, kind: str, made: str) -> None:
    notebook.cell(MODELS + f"here = {made}\nKind = {kind}")
    names = notebook.names
    there: Any = notebook.run(f"result = here, {made}, Kind, type(here) is {kind}, isinstance(here, Kind)")
    assert there[3:] == (True, True)
    assert there[0] == there[1] == names["here"]
    assert type(there[0]) is type(there[1]) is there[2] is names["Kind"]


def test_that_no_code_names(notebook: Notebook) -> None:
    notebook.cell(MODELS + "Ints = Box[int]")
    there = notebook.run(
        "import __main__\nresult = __main__.Ints(value=4), __main__.Ints is __main__.Box[int]"
    )
    assert there == (notebook.names["Ints"](value=4), True)
    assert type(there[0]) is notebook.names["Ints"]
