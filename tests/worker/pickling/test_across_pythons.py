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
def theatre(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    path = other_python(request.param)
    place = tmp_path_factory.mktemp("theatre")
    with stage(place, [frozenset()], ranks=str(path), library=bare_library(place / "library")) as made:
        yield made


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


def test_each_kind(theatre: Stage) -> None:
    bound = [[kind] for kind in KINDS_HERE if kind.one_python]
    others = [kind for kind in KINDS_HERE if not kind.one_python]
    groups: list[list[Kind]] = [*bound]
    groups += [others[begin : begin + TOGETHER] for begin in range(0, len(others), TOGETHER)]
    stories = [story(theatre, simple(group)) for group in groups if trouble(theatre, simple(group))]
    assert not stories, "\n".join(stories)


@pytest.mark.parametrize("kind", CORNERS, ids=lambda kind: kind.name)
def test_corners(theatre: Stage, kind: Kind) -> None:
    seen = theatre.run(make(simple([kind])))
    assert seen.runs, seen.trouble
    assert seen.trouble is None, seen.trouble
    assert seen.refused is None


def test_a_function_without_a_text_is_refused_by_its_name(theatre: Stage) -> None:
    kind = next(kind for kind in KINDS_HERE if kind.name == "exec and eval")
    seen = theatre.run(make(simple([kind])))
    assert "'g (<string>:1)': 'its source text was not kept'" in str(seen.refused)


@pytest.mark.parametrize("season", ["few", pytest.param("many", marks=pytest.mark.timeout(600))])
def test_random_notebooks(theatre: Stage, season: str) -> None:
    stories: list[str] = []
    for number in NUMBERS[season]:
        recipe = at_random(number, KINDS_HERE)
        if trouble(theatre, recipe):
            stories.append(f"{story(theatre, recipe)}(notebook {number})")
        if len(stories) == ENOUGH:
            break
    assert not stories, "\n".join(stories)
