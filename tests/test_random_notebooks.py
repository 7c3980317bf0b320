"""Notebooks made at random: what a rank sees of one is what the kernel sees, or the user is told.

For each look at a notebook's names there are three good ends: the same value in the kernel and on a rank;
a refusal before anything starts, which names the variable, for the kinds that say `refused`; another value
with a note, for the kinds that say `noted` (tests/sampling/of_….py). Everything else fails: another value in
silence, an error on the rank, an error while capturing. A failing notebook is printed as its cells, without
what it does not take to fail.

`JUPYTER_DIST_NOTEBOOKS=10000` makes as many of them, then with trainers as well, whose libraries take long
to import; `JUPYTER_DIST_NOTEBOOKS_FROM=200` makes others than the first ones. The test suite has time for a
few, always the same.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from conftest import Kernel
from sampling.kinds import KINDS
from sampling.of_settings import SETTINGS
from sampling.pieces import Kind
from sampling.recipes import Recipe, at_random, make, simple, smaller
from sampling.stage import Stage, differences, stage

NOTEBOOKS = int(os.environ.get("JUPYTER_DIST_NOTEBOOKS", "200"))
FROM = int(os.environ.get("JUPYTER_DIST_NOTEBOOKS_FROM", "0"))
ENOUGH = 8
"""Different failures to show before the test gives up."""
TOGETHER = 6

SHELVES = [frozenset(), frozenset({"numpy", "pandas", "torch", "tqdm"})]
if "JUPYTER_DIST_NOTEBOOKS" in os.environ:
    SHELVES.append(SHELVES[1] | {"accelerate", "keras", "lightning", "tensorflow", "transformers"})
SHELVES = [frozenset(filter(importlib.util.find_spec, shelf)) for shelf in SHELVES]
THERE = [kind for kind in KINDS if SHELVES[-1].issuperset(kind.needs)]
TRAVEL = [kind for kind in THERE if not kind.refused]


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("theatre"), SHELVES) as made:
        yield made


@pytest.mark.timeout(600)
def test_each_kind(theatre: Stage) -> None:
    """All of them, some to a notebook. What a refused notebook holds besides is not seen."""
    alone = [[kind] for kind in THERE if kind.refused]
    groups = [*alone, *(TRAVEL[begin : begin + TOGETHER] for begin in range(0, len(TRAVEL), TOGETHER))]
    failed = [group for group in groups if theatre.run(make(simple(group))).trouble is not None]
    stories = [story for group in failed for story in _one_by_one(theatre, group)]
    assert not stories, f"{len(stories)} of {len(THERE)} kinds:\n" + "\n".join(stories)


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels keep what imports have compiled, as they do for users: it tells of which text it was made."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)


@pytest.mark.timeout(300)
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
    ran = kernel.run(f"%%distribute -np 1 --out run_of_it\n{notebook.cell}", timeout_s=120)
    kernel.run(f"{notebook.cell.rstrip()}\n")
    asked = kernel.run("import json; print(json.dumps([Out[max(Out)], list(run_of_it.results)[0]]))")
    here, there = json.loads(asked.stdout.splitlines()[-1])
    assert differences(notebook, here, there, ran.text.splitlines()) is None


def _one_by_one(theatre: Stage, group: Sequence[Kind]) -> list[str]:
    stories = [_story(theatre, simple([kind])) for kind in group]
    return [story for story in stories if story] or [_story(theatre, simple(group))]


@pytest.mark.timeout(600 + NOTEBOOKS)
def test_a_rank_sees_what_the_kernel_sees(theatre: Stage) -> None:
    stories: dict[tuple[str, ...], str] = {}
    none_at_all = 0
    for number in range(FROM, FROM + NOTEBOOKS):
        recipe = at_random(number, THERE)
        seen = theatre.run(make(recipe))
        none_at_all += not seen.runs
        if seen.runs and seen.trouble is not None:
            least = _least(theatre, recipe)
            names = tuple(kind.name for _, kind in least.kinds)
            stories.setdefault(names, f"{_story(theatre, least)}\n(JUPYTER_DIST_NOTEBOOKS_FROM={number})\n")
        if len(stories) >= ENOUGH:
            break
    assert not stories, "\n".join(stories.values())
    assert none_at_all <= NOTEBOOKS / 100


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
