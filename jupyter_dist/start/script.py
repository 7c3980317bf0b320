"""Python file as the code of ranks."""

from __future__ import annotations

import os
import sys
import tokenize
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..flags import shown
from ..plan.run_plan import make_plan
from .origin import Origin
from .run_start import start_cell, warn

if TYPE_CHECKING:
    from ..showing.run import Run

__all__ = ["origin_of_script", "read_script", "start_script"]


def read_script(script: Path) -> str:
    """Read a Python file. Raises InputError if it is not a Python file, or is empty."""
    if script.suffix == ".ipynb":
        raise InputError(
            f"{shown(str(script))} is a notebook, not a Python file. Open it in Jupyter, or run a .py file"
        )
    try:
        with tokenize.open(script) as file:
            source = file.read()
    except OSError as error:
        raise InputError(f"cannot read {shown(str(script))}: {error.strerror or error}") from None
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{shown(str(script))} is not a Python file: {error}") from None
    if not source.strip():
        raise InputError(f"{shown(str(script))} is empty. Add the code to run")
    return source


def origin_of_script(words: Sequence[str]) -> Origin:
    """Return the origin of a Python file. `words`: its path as it was typed, and its arguments."""
    script = Path(words[0])
    return Origin(script.name, script.absolute().parent, argv=tuple(words), file=os.path.abspath(script))


def start_script(script: Path, arguments: Sequence[str], given: Mapping[str, Any]) -> Run:
    """Start a run of a Python file with its command line.

    Does not wait for the run. `given`: as for `make_plan`.

    Raises DistError with nothing started.
    """
    source = read_script(script)
    plan = make_plan(given, spelled_as_flags=False)
    warn(plan)
    origin = origin_of_script((str(script), *arguments))
    # `python SCRIPT` also puts the script's folder first. The notebook keeps its own path.
    before = sys.path[:]
    sys.path.insert(0, str(origin.directory))
    try:
        return start_cell(source, {}, plan, origin)
    finally:
        sys.path[:] = before
