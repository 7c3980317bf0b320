"""Advice on a module that a rank does not find."""

from __future__ import annotations

import difflib
import pkgutil
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from ...job import Job
from ...text.safe import one_line

__all__ = ["missing_module"]

_ALIKE = 0.75
"""From this similarity on, a name counts as another name with a typo."""


def missing_module(name: str, job: Job, host: str | None) -> tuple[str, bool]:
    """Return the advice, and whether it is certain."""
    top = name.partition(".")[0]
    places = [Path(job.cwd), *([Path(job.notebook).parent] if job.notebook else [])]
    if any((place / f"{top}.py").is_file() or (place / top / "__init__.py").is_file() for place in places):
        return f"{top!r} lies beside the notebook: --ship-modules {top} sends it along", name == top
    remote = bool(job.options.get("hosts"))
    python = "the Python that runs the ranks" if remote else one_line(job.python, 200)
    meant = _meant(name, places)
    question = f"did you mean {meant!r}? " if meant else ""
    if name != top:
        # The package is there, and its submodule is not: another version, or another module of the same name.
        return f"{question}{top!r} is there for {python}, in a version that has no {name!r}", False
    if remote:
        return (
            f"{question}{top!r} is not installed for the Python that runs the ranks on host {host}: install "
            "it there, or name a Python that has it with --python"
        ), True
    if job.python == sys.executable and _is_here(top):
        return f"{top!r} is installed for {python}, and something on the rank hides it", False
    return f"{question}{top!r} is not installed for {python}, which runs the ranks", True


def _meant(name: str, places: list[Path]) -> str:
    """Return the module here, or beside the notebook, whose name is most alike. Empty if none is."""
    package, _, last = name.rpartition(".")
    if package:
        known = _modules_in(package)
    else:
        paths = [str(place) for place in places]
        known = {module.name for module in pkgutil.iter_modules([*sys.path, *paths])}
        known |= set(sys.stdlib_module_names)
    others = [one for one in known if one[:1] != "_" and one != last]  # the machine of the notebook has it
    alike = difflib.get_close_matches(last, others, 1, _ALIKE)
    return ".".join(filter(None, (package, *alike))) if alike else ""


def _modules_in(package: str) -> set[str]:
    """Return the modules in a package. Imports nothing, so only packages of the first level have them."""
    try:
        spec = PathFinder.find_spec(package) if "." not in package else None
    except Exception:  # a third-party finder may raise anything
        return set()
    places = [] if spec is None else spec.submodule_search_locations or []
    return {module.name for module in pkgutil.iter_modules(places)}


def _is_here(top: str) -> bool:
    try:
        return PathFinder.find_spec(top) is not None
    except Exception:  # a third-party finder on sys.path_hooks may raise anything
        return False
