"""Notebooks made at random: what a rank sees of one is what the kernel sees, or the user is told.

For each look at a notebook's names there are three good ends: the same value in the kernel and on a rank; a
refusal before anything starts, which names the variable, for the kinds that say `refused`; another value with
a note, for the kinds that say `noted` (tests/rigs/random_notebooks/of_….py). Everything else fails: another
value in silence, an error on the rank, an error while capturing. A failing notebook is printed as its cells,
without what it does not take to fail.

The core has a few of them, always the same. The group `variants` has many more, and trainers in them, whose
libraries take long to import.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import Kernel
from tests.rigs.random_notebooks.comparison import Stage, differences, stage
from tests.rigs.random_notebooks.kinds import KINDS
from tests.rigs.random_notebooks.of_settings import SETTINGS
from tests.rigs.random_notebooks.pieces import Kind
from tests.rigs.random_notebooks.recipes import Recipe, at_random, make, simple, smaller

ENOUGH = 8
"""Different failures to show before the test gives up."""
TOGETHER = 6

LIGHT = [frozenset(), frozenset({"numpy", "pandas", "sklearn", "torch", "tqdm"})]
TRAINERS = LIGHT[1] | {"accelerate", "keras", "lightning", "tensorflow", "transformers"}


class Season(NamedTuple):
    """Which notebooks are made: the libraries that they may import, and their numbers."""

    shelves: list[frozenset[str]]
    numbers: range

    @property
    def installed(self) -> list[frozenset[str]]:
        return [frozenset(filter(importlib.util.find_spec, shelf)) for shelf in self.shelves]

    @property
    def kinds(self) -> list[Kind]:
        return [kind for kind in KINDS if self.installed[-1].issuperset(kind.needs)]


SEASONS = {"few": Season(LIGHT, range(150)), "many": Season([*LIGHT, TRAINERS], range(150, 2000))}
TRAVEL = [kind for kind in SEASONS["few"].kinds if not kind.refused]


@pytest.fixture(scope="module", params=["few", pytest.param("many", marks=pytest.mark.timeout(2600))])
def season(request: pytest.FixtureRequest) -> Season:
    return SEASONS[request.param]


@pytest.fixture(scope="module")
def theatre(season: Season, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("theatre"), season.installed) as made:
        yield made


def test_each_kind(theatre: Stage, season: Season) -> None:
    """All of them, some to a notebook. What a refused notebook holds besides is not seen."""
    kinds = season.kinds
    alone = [[kind] for kind in kinds if kind.refused]
    others = [kind for kind in kinds if not kind.refused]
    groups = [*alone, *(others[begin : begin + TOGETHER] for begin in range(0, len(others), TOGETHER))]
    failed = [group for group in groups if theatre.run(make(simple(group))).trouble is not None]
    stories = [story for group in failed for story in _one_by_one(theatre, group)]
    assert not stories, f"{len(stories)} of {len(kinds)} kinds:\n" + "\n".join(stories)


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels keep what imports have compiled, as they do for users: it tells of which text it was made."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)


@pytest.mark.parametrize("settings", [False, True], ids=["all but settings", "settings"])
def test_every_kind_through_the_magic(
    compiling: None, kernel: Kernel, tmp_path: Path, settings: bool
) -> None:
    """One notebook with all of them; the settings would change what the others do."""
    notebook = make(simple([kind for kind in TRAVEL if (kind in SETTINGS) == settings]))
    for path, text in notebook.files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    kernel.run("%load_ext jupyter_dist")
    for cell in notebook.cells:
        kernel.run(cell)
    ran = kernel.run(f"%%distribute -np 1 --out run_of_it\n{notebook.cell}")
    kernel.run(f"{notebook.cell.rstrip()}\n")
    asked = kernel.run("import json; print(json.dumps([Out[max(Out)], list(run_of_it.results)[0]]))")
    here, there = json.loads(asked.stdout.splitlines()[-1])
    assert differences(notebook, here, there, ran.text.splitlines()) is None


def _one_by_one(theatre: Stage, group: Sequence[Kind]) -> list[str]:
    stories = [_story(theatre, simple([kind])) for kind in group]
    return [story for story in stories if story] or [_story(theatre, simple(group))]


def test_a_rank_sees_what_the_kernel_sees(theatre: Stage, season: Season) -> None:
    stories: dict[tuple[str, ...], str] = {}
    none_at_all = 0
    kinds = season.kinds
    for number in season.numbers:
        recipe = at_random(number, kinds)
        seen = theatre.run(make(recipe))
        none_at_all += not seen.runs
        if seen.runs and seen.trouble is not None:
            least = _least(theatre, recipe)
            names = tuple(kind.name for _, kind in least.kinds)
            stories.setdefault(names, f"{_story(theatre, least)}\n(notebook {number})\n")
        if len(stories) >= ENOUGH:
            break
    assert not stories, "\n".join(stories.values())
    assert none_at_all <= len(season.numbers) / 100


def _least(theatre: Stage, recipe: Recipe) -> Recipe:
    """As little of it as fails on a rank."""
    for less in smaller(recipe):
        seen = theatre.run(make(less))
        if seen.runs and seen.trouble is not None:
            return _least(theatre, less)
    return recipe


def _story(theatre: Stage, recipe: Recipe) -> str:
    notebook = make(recipe)
    trouble = theatre.run(notebook).trouble
    return "" if trouble is None else f"--- {' + '.join(notebook.kinds)}\n{notebook!r}\n{trouble}\n"
