"""What random notebooks are made of: kinds, which are templates, and the pieces that come of them.

A template's text uses a few words in capitals, so that a table of kinds reads like a notebook:

    name_N              a name of the piece's own: `name_4` in the fourth piece
    INT_A               a small number, the same wherever the piece says INT_A
    FUNCTION            a function of one int that an earlier piece has made
    CLASS               a class, made with one int, with a method `get()`, of an earlier piece
    THING, LOOK<expr>   an object of an earlier piece, and what to look at when `expr` is that object
    ---                 on a line of its own: another cell may begin here
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from jupyter_dist.agent.stage_program import OLDEST_PYTHON

__all__ = ["Given", "Kind", "Notebook", "Piece", "Probe", "compose", "make_piece"]

_INGREDIENT = re.compile(r"\b(FUNCTION|CLASS|THING)\b")
_LOOK = re.compile(r"LOOK<([^>]*)>")


@dataclass(frozen=True)
class Kind:
    """One kind of thing that notebooks hold."""

    name: str
    cells: str
    looks: tuple[str, ...]
    """Expressions with a plain value, the same on a rank as in the kernel."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Modules beside the notebook."""
    function: str | None = None
    cls: str | None = None
    thing: str | None = None
    """What later pieces may use as a FUNCTION, a CLASS or a THING."""
    look: str = ""
    """How to look at the thing; `IT` stands for it."""
    needs: tuple[str, ...] = ()
    """Libraries that the cells import."""
    refused: bool = False
    """That a cell which uses it may be refused before anything starts, by a message that names it."""
    noted: str = ""
    """What a note must match (a regular expression) where a rank sees something else; empty: it must not."""
    anew: bool = False
    """That it begins anew on a rank, as docs/capture.md says, whatever the kernel has made of it."""
    alone: bool = False
    """That each of its cells must stay a cell by itself."""
    earlier: bool = False
    """That it must not stand in the distributed cell, where it would mean something else."""
    one_python: bool = False
    """That no text is kept of some function in it, so that another version of Python cannot run it."""
    since: tuple[int, int] = OLDEST_PYTHON
    """The first Python of a rank that can run it."""


@dataclass(frozen=True)
class Given:
    """Something that a piece has made and others may use."""

    text: str
    look: str = ""
    refused: bool = False
    noted: str = ""
    one_python: bool = False


@dataclass(frozen=True)
class Probe:
    text: str
    kind: str
    noted: str
    anew: bool


@dataclass(frozen=True)
class Piece:
    kind: Kind
    number: int
    cells: tuple[str, ...]
    probes: tuple[Probe, ...]
    files: Mapping[str, str]
    gives: Mapping[str, Given]
    refused: frozenset[str]
    """The names that a refusal may be about."""
    one_python: bool = False


@dataclass(frozen=True)
class Notebook:
    pieces: tuple[Piece, ...]
    cells: tuple[str, ...]
    cell: str
    """The distributed one; its value is the list of the probes' `repr`."""

    @property
    def probes(self) -> list[Probe]:
        return [probe for piece in self.pieces for probe in piece.probes]

    @property
    def files(self) -> dict[str, str]:
        return {path: text for piece in self.pieces for path, text in piece.files.items()}

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(need for piece in self.pieces for need in piece.kind.needs)

    @property
    def refused(self) -> frozenset[str]:
        return frozenset(name for piece in self.pieces for name in piece.refused)

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(piece.kind.name for piece in self.pieces)

    def __repr__(self) -> str:
        """As a reader would see it in JupyterLab, so that a failing one can be pasted into one."""
        files = [f"# {path}\n{text}" for path, text in self.files.items()]
        cells = [f"In [{number}]:\n{text}" for number, text in enumerate(self.cells, 1)]
        parts = [*files, *cells, f"%%distribute\n{self.cell}"]
        return "\n\n".join(["", *(part.strip("\n") for part in parts), ""])


def make_piece(kind: Kind, number: int, choose: Callable[[str], Given], integer: Callable[[], int]) -> Piece:
    """A piece of a kind. `choose("FUNCTION")` says which function it may use, and so on."""
    whole = "\n".join([kind.cells, *kind.looks, *kind.files.values(), kind.look])
    used = {word: choose(word) for word in dict.fromkeys(_INGREDIENT.findall(whole))}
    if "LOOK<" in whole:
        used.setdefault("THING", choose("THING"))
    numbers = {word: str(integer()) for word in dict.fromkeys(re.findall(r"\bINT_[A-Z]\b", whole))}

    def fill(text: str) -> str:
        text = re.sub(r"_N\b", f"_{number}", text)
        text = _LOOK.sub(lambda match: used["THING"].look.replace("IT", match[1]), text)
        text = _INGREDIENT.sub(lambda match: used[match[1]].text, text)
        return re.sub(r"\bINT_[A-Z]\b", lambda match: numbers[match[0]], text)

    refused = kind.refused or any(given.refused for given in used.values())
    noted = "|".join(dict.fromkeys(filter(None, [kind.noted, *(given.noted for given in used.values())])))
    one_python = kind.one_python or any(given.one_python for given in used.values())
    gives = {}
    for word, text in (("FUNCTION", kind.function), ("CLASS", kind.cls), ("THING", kind.thing)):
        if text is not None:
            gives[word] = Given(fill(text), fill(kind.look), refused, noted, one_python)
    cells = tuple(fill(text).strip("\n") for text in kind.cells.split("\n---\n"))
    names = re.findall(rf"\b\w+_{number}\b", "\n".join(cells))
    return Piece(
        kind,
        number,
        cells,
        tuple(Probe(fill(look), kind.name, noted, kind.anew) for look in kind.looks),
        {fill(path): fill(text) for path, text in kind.files.items()},
        gives,
        frozenset(names) if refused else frozenset(),
        one_python,
    )


def compose(pieces: Sequence[Piece], joined: Sequence[bool], in_cell: int, shape: int) -> Notebook:
    """Put the pieces' cells together.

    `joined` says for each cell whether it goes into the same one as the cell before it; the last `in_cell`
    ones go into the distributed cell, as far as their kinds allow; `shape` is how that one is written.
    """
    parts = [(piece.kind, text) for piece in pieces for text in piece.cells]
    movable = 0
    for kind, _ in reversed(parts):
        if movable == in_cell or kind.alone or kind.earlier:
            break
        movable += 1
    before, inside = parts[: len(parts) - movable], parts[len(parts) - movable :]
    cells: list[str] = []
    open_ = False
    for (kind, text), join in zip(before, joined[: len(before)], strict=True):
        if cells and join and open_ and not kind.alone:
            cells[-1] += f"\n\n{text}"
        else:
            cells.append(text)
        open_ = not kind.alone
    looks = [f"repr({probe.text})" for piece in pieces for probe in piece.probes]
    body = "\n\n".join([*(text for _, text in inside), _SHAPES[shape % len(_SHAPES)](looks)])
    return Notebook(tuple(pieces), tuple(cells), f"{body}\n")


def _plain(looks: Sequence[str]) -> str:
    return "[\n" + "".join(f"    {look},\n" for look in looks) + "]"


def _in_function(looks: Sequence[str]) -> str:
    return "def look():\n    return [\n" + "".join(f"        {look},\n" for look in looks) + "    ]\n\nlook()"


def _one_by_one(looks: Sequence[str]) -> str:
    return "\n".join(["seen = []", *(f"seen.append({look})" for look in looks), "seen"])


def _awaited(looks: Sequence[str]) -> str:
    inner = "".join(f"        {look},\n" for look in looks)
    return f"async def look():\n    return [\n{inner}    ]\n\nawait look()"


_SHAPES: tuple[Callable[[Sequence[str]], str], ...] = (_plain, _in_function, _one_by_one, _awaited)
