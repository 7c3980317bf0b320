"""Notebooks by their numbers: the same number is the same notebook, and a failing one is made smaller."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from .kinds import KINDS
from .pieces import Given, Kind, Notebook, Piece, compose, make_piece

__all__ = ["Recipe", "at_random", "make", "simple", "smaller"]

_MOST_PIECES = 6
_CELLS = 1000
"""More than the pieces of any notebook have."""
_PLAIN = {
    word: next(kind for kind in KINDS if kind.name == name)
    for word, name in (("FUNCTION", "function"), ("CLASS", "class"), ("THING", "class"))
}


@dataclass(frozen=True)
class Recipe:
    """What a notebook is made by. Without one of its kinds the others stay nearly as they were."""

    number: int
    kinds: tuple[tuple[int, Kind], ...]
    """Each with its place in the first recipe, which is what its choices hang on."""
    joined: float = 0.0
    """How many of the cells are one with the cell before."""
    in_cell: int = 0
    shape: int = 0


def at_random(number: int, kinds: Sequence[Kind]) -> Recipe:
    """The recipe of a number. At most one of its kinds may be refused, which hides what else it holds."""
    dice = random.Random(f"notebook {number}")
    if dice.random() < 0.75:  # processes with torch take a while to fork and to end
        kinds = [kind for kind in kinds if not kind.needs]
    travel = [kind for kind in kinds if not kind.refused]
    chosen = [dice.choice(travel) for _ in range(dice.randint(1, _MOST_PIECES))]
    if dice.random() < 0.1:
        chosen.append(dice.choice(kinds))
    joined = dice.choice([0.0, 0.3, 0.7, 1.0])
    return Recipe(number, tuple(enumerate(chosen)), joined, dice.choice([0, 0, 1, 2, 4]), dice.randrange(4))


def simple(kinds: Sequence[Kind]) -> Recipe:
    """These kinds, with a cell of its own for all that may have one."""
    return Recipe(0, tuple(enumerate(kinds)))


def make(recipe: Recipe) -> Notebook:
    pieces = _Pieces(recipe.number)
    for place, kind in recipe.kinds:
        pieces.add(kind, random.Random(f"piece {recipe.number} {place}"))
    dice = random.Random(f"layout {recipe.number}")
    joined = [dice.random() < recipe.joined for _ in range(_CELLS)]
    return compose(pieces.made, joined, recipe.in_cell, recipe.shape)


def smaller(recipe: Recipe) -> Iterator[Recipe]:
    """Recipes with less in them, the largest step first."""
    half = len(recipe.kinds) // 2
    if half > 1:
        yield replace(recipe, kinds=recipe.kinds[:half])
        yield replace(recipe, kinds=recipe.kinds[half:])
    for gone in range(len(recipe.kinds)):
        if len(recipe.kinds) > 1:
            yield replace(recipe, kinds=recipe.kinds[:gone] + recipe.kinds[gone + 1 :])
    plainer = (replace(recipe, shape=0), replace(recipe, in_cell=0), replace(recipe, joined=0.0))
    yield from (changed for changed in plainer if changed != recipe)


class _Pieces:
    """Adds pieces; what a piece needs of another is made first where there is none."""

    def __init__(self, number: int) -> None:
        self.made: list[Piece] = []
        self._number = number
        self._count = 0

    def add(self, kind: Kind, dice: random.Random) -> Piece:
        self._count += 1
        piece = make_piece(kind, self._count, self._chooser(dice), lambda: dice.randint(1, 9))
        self.made.append(piece)
        return piece

    def _chooser(self, dice: random.Random) -> Callable[[str], Given]:
        def choose(word: str) -> Given:
            found = [piece.gives[word] for piece in self.made if word in piece.gives]
            return dice.choice(found) if found else self.add(_PLAIN[word], dice).gives[word]

        return choose
