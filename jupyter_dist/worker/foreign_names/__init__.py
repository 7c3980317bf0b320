"""A register of every private name of another library that jupyter-dist uses, with checks that it exists.

A private name may disappear in any release of its library. `ROWS` lists each name, our modules that depend on
it, and what happens without it. docs/changing.md has the table. Code that relies on a name calls `require` or
`lost` first. tests/worker/foreign_names/test_canaries.py forbids private names without a row.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable
from types import ModuleType

from ..standard_library import module_names
from .engine_names import ROWS as _ENGINES
from .keras_names import KERAS3
from .keras_names import ROWS as _KERAS
from .notebook_names import DOCUMENTED
from .notebook_names import ROWS as _NOTEBOOK
from .private_name import Missing, Probe, Row, is_there, version_of
from .python_names import ROWS as _PYTHON
from .torch_names import ROWS as _TORCH
from .trainer_names import ROWS as _TRAINERS

__all__ = [
    "DOCUMENTED",
    "KERAS3",
    "ROWS",
    "TRIED",
    "ForeignNameMissing",
    "Missing",
    "Probe",
    "Row",
    "cure",
    "is_complete",
    "is_there",
    "keep_back",
    "lost",
    "note",
    "raise_kept_back",
    "refusal",
    "require",
    "unfit",
    "why",
]

ROWS: tuple[Row, ...] = (*_PYTHON, *_NOTEBOOK, *_TORCH, *_KERAS, *_TRAINERS, *_ENGINES)

TRIED: dict[str, tuple[str, str]] = {
    "IPython": ("ipython", "9.18.1"),
    "accelerate": ("accelerate", "1.15.0"),
    "cloudpickle": ("cloudpickle", "3.1.3"),
    "horovod": ("horovod", "0.28.1"),
    "ipykernel": ("ipykernel", "7.4.0"),
    "keras": ("keras", "3.15.1"),
    "lightning": ("lightning", "2.6.6"),
    "lightning_fabric": ("pytorch-lightning", "2.6.6"),
    "loguru": ("loguru", "0.7.3"),
    "numpy": ("numpy", "2.4.6"),
    "optuna": ("optuna", "5.0.0"),
    "pandas": ("pandas", "3.1.1"),
    "pyspark": ("pyspark", "4.3.0"),
    "pytorch_lightning": ("pytorch-lightning", "2.6.6"),
    "ray": ("ray", "2.60.0"),
    "tensorflow": ("tensorflow", "2.21.0"),
    "torch": ("torch", "2.13.0"),
    "transformers": ("transformers", "5.24.0"),
}
"""Library → its name in pip, and a version that has all names."""


class ForeignNameMissing(RuntimeError):
    """The installed version of a library lacks a private name that decides what is trained.

    It is not an ImportError, because code that handles a failed import would continue silently.
    """


def lost(
    user: str,
    *,
    libraries: Iterable[str] | None = None,
    module: ModuleType | None = None,
    consequence: Missing | None = None,
) -> list[tuple[Row, list[str]]]:
    """Return the rows of one of our modules whose names are missing, with the missing names. Imports nothing.

    Args:
    - user: the module's path below jupyter_dist/, without `.py`.
    - libraries: only rows of these libraries. None: of all imported libraries.
    - module: a module whose import is about to end, such as the one that a hook was called for.
    A module that is not imported, or only in part, counts as complete.
    """
    chosen = None if libraries is None else frozenset(libraries)
    found = []
    for row in _rows(user):
        if consequence is not None and row.missing is not consequence:
            continue
        if chosen is not None and row.library not in chosen:
            continue
        ends = module if module is not None and module.__name__ == row.module else None
        if ends is None and not is_complete(row.module):
            continue
        names = row.lacking(ends)
        if names:
            found.append((row, names))
    return found


@functools.cache
def _rows(user: str) -> tuple[Row, ...]:
    return tuple(row for row in ROWS if {user, f"{user}/__init__"}.intersection(row.users))


def is_complete(name: str) -> bool:
    """Return whether a module is imported, and its import has ended."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    # The import system checks the same attribute: importlib._bootstrap, `_find_and_load`.
    return module is not None and not getattr(spec, "_initializing", False)


def require(user: str, *, libraries: Iterable[str] | None = None, module: ModuleType | None = None) -> None:
    """Raise ForeignNameMissing if a missing name would change what is trained."""
    for row, names in lost(user, libraries=libraries, module=module, consequence=Missing.REFUSE):
        raise ForeignNameMissing(refusal(row, names))


_kept_back: dict[str, ForeignNameMissing] = {}


def unfit(module: str, error: Exception) -> ForeignNameMissing:
    """Return the error for a module that our hook does not fit, from the error that the hook has raised."""
    if isinstance(error, ForeignNameMissing):
        return error
    library = module.partition(".")[0]
    known = TRIED.get(library)
    what = f' What to do: pip install "{known[0]}=={known[1]}".' if known else ""
    return ForeignNameMissing(
        f"{module} cannot run on several ranks here. {library} {version_of(library)} differs "
        f"from what jupyter-dist expects ({type(error).__name__}: {error}).{what}"
    )


def keep_back(module: str, error: ForeignNameMissing) -> None:
    """Store an error that matters only for strategies that span ranks."""
    _kept_back[module] = error


def raise_kept_back(library: str = "") -> None:
    """Raise the first stored error, of one library or of all."""
    for module, error in _kept_back.items():
        if module.startswith(library):
            raise error


def refusal(row: Row, names: list[str]) -> str:
    """Return the text of the error: what failed, why, and what to type."""
    return f"{row.feature} does not work here. {why(row, names)} {cure(row)}"


def note(row: Row, names: list[str]) -> str:
    """Return the text of a note: the run continues without the feature."""
    return f"{row.feature} is off here. {why(row, names)} {cure(row)}"


def why(row: Row, names: list[str]) -> str:
    """Return one sentence: which installed version lacks which names."""
    library = "Python" if row.library in module_names() else row.library
    return f"{library} {version_of(row.library)} has no {', '.join(names)}, which jupyter-dist uses for that."


def cure(row: Row) -> str:
    """Return one sentence: what to type."""
    cures = []
    if row.library in TRIED:
        name, version = TRIED[row.library]
        cures.append(f'pip install "{name}=={version}"')
    if row.cure:
        cures.append(row.cure)
    return f"What to do: {', or '.join(cures) or 'use an older version of Python'}."
