"""Python file as the code of ranks."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pkgutil
import sys
import tokenize
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..flags import nearest, shown
from ..plan.run_plan import make_plan
from .origin import Origin
from .run_start import start_cell, warn

if TYPE_CHECKING:
    from ..showing.run import Run

__all__ = ["origin_of_module", "origin_of_script", "read_script", "start_script"]


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


def origin_of_module(words: Sequence[str]) -> Origin:
    """Return the origin of a module that runs as `python -m` runs it. Imports no module.

    `words`: its name, and its arguments. The folder of the command is searched first.

    Raises InputError if there is no such module, or if it has no Python file.
    """
    if not words:
        raise InputError("-m needs the name of a module. For example: `jupyter dist run -m pkg.train`")
    name, *arguments = words
    if name.endswith(".py") or "/" in name:
        meant = name.removesuffix(".py").removeprefix("./").replace("/", ".")
        raise InputError(
            f"-m needs the name of a module, and {shown(name)} is the path of a file. Write -m {meant} to "
            f"run the module, or `jupyter dist run {name}` to run the file"
        )
    module, spec = _found(name)
    if spec.origin is None or not spec.origin.endswith(".py"):
        raise InputError(
            f"-m {name}: the module {module!r} has no Python file. Name a module with a .py file"
        )
    file = os.path.abspath(spec.origin)
    label = module.replace(".", "/") + ".py"
    return Origin(label, Path.cwd(), argv=(file, *arguments), file=file, module=module)


def _found(name: str) -> tuple[str, ModuleSpec]:
    """Return the full name of the module that `-m` means, and its place. A package's is its `__main__`."""
    parts = name.split(".")
    path: Sequence[str] = [os.getcwd(), *sys.path]
    spec: ModuleSpec | None = None
    for at, part in enumerate(parts):
        # The last part alone: under its full name, Python's finder of a folder without __init__.py needs
        # the package to be imported.
        spec = PathFinder.find_spec(part, path) if part else None
        if spec is None and part and not at:  # an editable installation can have a finder of its own
            with contextlib.suppress(ImportError, ValueError):
                spec = importlib.util.find_spec(part)
        if spec is None:
            raise InputError(_unknown(name, parts[:at], path))
        path = list(spec.submodule_search_locations or ())
    assert spec is not None
    if spec.submodule_search_locations is None:
        return name, spec
    main = PathFinder.find_spec("__main__", path)
    if main is None:
        example = next(iter(_names(path)), "train")
        raise InputError(
            f"-m {name}: the package {name!r} has no module __main__ that could run. Name one of its "
            f"modules, such as -m {name}.{example}"
        )
    return f"{name}.__main__", main


def _unknown(name: str, within: Sequence[str], path: Sequence[str]) -> str:
    places = path if within else path[:1]
    near = nearest(name.split(".")[len(within)], _names(places))
    meant = f"Did you mean -m {'.'.join((*within, near))}?" if near else "Correct the name"
    package = ".".join(within)
    if within and not path:
        return f"-m {name}: {package!r} is a module, not a package. Write -m {package}"
    where = f"in the package {package!r}" if within else f"in {path[0]!r} or on Python's path"
    return f"-m {name}: there is no such module {where}. {meant}"


def _names(places: Sequence[str]) -> list[str]:
    return sorted({info.name for info in pkgutil.iter_modules(places)})


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
