"""Classes that a library makes from the text of their class statement are refused before anything starts."""

from __future__ import annotations

import pytest

from tests.rigs.notebook_cells import Notebook

pytestmark = pytest.mark.needs("sqlalchemy")

MODELS = """
from sqlalchemy.orm import DeclarativeBase, Mapped, declarative_base, mapped_column
class Base(DeclarativeBase): pass
class Result(Base):
    __tablename__ = "results"
    id: Mapped[int] = mapped_column(primary_key=True)
Old = declarative_base()
class Score(Old):
    __tablename__ = "scores"
    id: Mapped[int] = mapped_column(primary_key=True)
result = Result(id=3)
def latest(): return Score
"""


@pytest.mark.parametrize(
    ("used", "named"),
    [
        ("Result", "Result"),
        ("Base", "Base"),
        ("Old", "Old"),
        ("[result]", "result's class Result"),
        ("latest()", "latest() uses Score"),
    ],
)
def test_are_refused_with_a_cure(notebook: Notebook, used: str, named: str) -> None:
    notebook.cell(MODELS)
    first, second, *_ = notebook.error(used).split("\n")
    assert first.startswith(f"{named}: a class that sqlalchemy makes from the text of its class statement")
    assert second.strip().startswith("Write it into a .py file beside the notebook")


def test_stay_behind_where_no_code_names_them(notebook: Notebook) -> None:
    notebook.cell(MODELS)
    assert notebook.run("result = 1 + 1") == 2
