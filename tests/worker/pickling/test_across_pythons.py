"""A notebook of this Python on ranks with every other Python of this machine.

A rank sees what the notebook sees, or what a notebook with the rank's Python would see. Otherwise the start
is refused, with the name of a function whose text nothing has kept. The ranks' Pythons have no library but
cloudpickle, which is what jupyter-dist copies to a host.

The group `pythons` runs this file on each other Python. So every pair of versions is tried, in both
directions.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rigs import debian_python
from tests.rigs.other_pythons import OTHERS, bare_library, other_python
from tests.rigs.random_notebooks.comparison import Stage, stage
from tests.rigs.random_notebooks.kinds import KINDS
from tests.rigs.random_notebooks.of_corners import CORNERS
from tests.rigs.random_notebooks.pieces import Kind
from tests.rigs.random_notebooks.recipes import Recipe, at_random, make, simple, smaller

KINDS_HERE = [kind for kind in KINDS if not kind.needs and not kind.refused]
TOGETHER = 12
ENOUGH = 5
NUMBERS = {"few": range(15), "many": range(15, 215)}


@pytest.fixture(scope="module", params=OTHERS)
def minor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def theatre(minor: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    path = other_python(minor)
    place = tmp_path_factory.mktemp("theatre")
    with stage(place, [frozenset()], ranks=str(path), library=bare_library(place / "library")) as made:
        yield made


def runs(kind: Kind, minor: str) -> bool:
    """Whether a rank with this Python can run what is in a kind."""
    return kind.since <= tuple(map(int, minor.split(".")))


def trouble(theatre: Stage, recipe: Recipe) -> str | None:
    seen = theatre.run(make(recipe))
    return seen.trouble if seen.runs else None


def least(theatre: Stage, recipe: Recipe) -> Recipe:
    for less in smaller(recipe):
        if trouble(theatre, less):
            return least(theatre, less)
    return recipe


def story(theatre: Stage, recipe: Recipe) -> str:
    shown = least(theatre, recipe)
    return f"{make(shown)!r}\n{trouble(theatre, shown)}\n"


def test_each_kind(theatre: Stage, minor: str) -> None:
    bound = [[kind] for kind in KINDS_HERE if kind.one_python]
    others = [kind for kind in KINDS_HERE if not kind.one_python and runs(kind, minor)]
    groups: list[list[Kind]] = [*bound]
    groups += [others[begin : begin + TOGETHER] for begin in range(0, len(others), TOGETHER)]
    stories = [story(theatre, simple(group)) for group in groups if trouble(theatre, simple(group))]
    assert not stories, "\n".join(stories)


@pytest.mark.parametrize("kind", CORNERS, ids=lambda kind: kind.name)
def test_corners(theatre: Stage, minor: str, kind: Kind) -> None:
    seen = theatre.run(make(simple([kind])))
    assert seen.runs, seen.trouble
    assert seen.refused is None
    if runs(kind, minor):
        assert seen.trouble is None, seen.trouble
    else:
        assert f"Python {minor}" in str(seen.trouble), "the rank says what its Python lacks"


def test_a_function_without_a_text_is_refused_by_its_name(theatre: Stage) -> None:
    kind = next(kind for kind in KINDS_HERE if kind.name == "exec and eval")
    seen = theatre.run(make(simple([kind])))
    assert "'g (<string>:1)': 'its source text was not kept'" in str(seen.refused)


LACKING = {
    "match": ("def f(x):\n    match x:\n        case 1: return 2", 'File "In[1]", line 2\n    match x:'),
    "union": ("def f(x):\n    y: int = x\n    return isinstance(y, int | str)", 'File "In[1]", line 3, in f'),
    "field": (
        "from dataclasses import *\n@dataclass(kw_only=True)\nclass A:\n    a: int\ndef f(x): return A(a=x)",
        "The notebook's class A has keyword-only fields, which dataclasses of Python 3.9 cannot have.",
    ),
    "name": (
        "import itertools\ndef f(x): return list(itertools.pairwise([x]))",
        "module 'itertools' has no attribute 'pairwise'",
    ),
}


@pytest.mark.parametrize("what", LACKING)
@pytest.mark.parametrize("minor", [debian_python.OLDEST], indirect=True, scope="module")
def test_what_the_oldest_python_lacks_is_named_with_its_line(theatre: Stage, what: str) -> None:
    cells, said = LACKING[what]
    seen = theatre.run(make(simple([Kind(what, cells, ("f(1)",))])))
    assert said in str(seen.trouble)
    versions = f"(Python {debian_python.OLDEST} does not know this syntax. The notebook"
    assert (versions in str(seen.trouble)) is (what == "match")


UNIONS = Kind(
    "unions",
    """
import dataclasses
@dataclasses.dataclass
class A:
    x: int | None = None
    y: list[int] | str = ""
def f(x: int | float = 1) -> "A | None": return A(x)
U = int | str
""",
    ("f(2)", "A().x", "f(3) == A(3)"),
)


def test_annotations_with_unions_run_on_every_python(theatre: Stage) -> None:
    seen = theatre.run(make(simple([UNIONS])))
    assert seen.runs
    assert seen.trouble is None, seen.trouble


@pytest.mark.parametrize("season", ["few", pytest.param("many", marks=pytest.mark.timeout(600))])
def test_random_notebooks(theatre: Stage, minor: str, season: str) -> None:
    stories: list[str] = []
    kinds = [kind for kind in KINDS_HERE if runs(kind, minor)]
    for number in NUMBERS[season]:
        recipe = at_random(number, kinds)
        if trouble(theatre, recipe):
            stories.append(f"{story(theatre, recipe)}(notebook {number})")
        if len(stories) == ENOUGH:
            break
    assert not stories, "\n".join(stories)
