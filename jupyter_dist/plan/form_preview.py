"""Meaning of a cluster's form: the line of a cell with the same settings, and the problems.

The line uses the flags of the magic, and is parsed again before it is shown. It is shown only if the parsed
values equal those of the form.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import backends, clusters
from ..backends import Backend
from ..backends.notebook_folder import asked_in
from ..errors import DistError, MissingEngine
from ..flags import Flag, build, flags_of, problems_of, written
from ..options import NOT_SAVED, RunOptions
from ..queries.answers.forms import FieldProblem, FormMeaning
from .run_plan import make_plan, read_command_line, run_flags

__all__ = ["as_line", "meaning"]

_MAGIC = "%%distribute"
_VARIABLE = re.compile(r"\$[A-Za-z_]|\{[A-Za-z_][\w.]*\}")
_FLAG = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")


def meaning(backend: str, options: Mapping[str, Any], folder: Path | None = None) -> FormMeaning:
    """Return what the form with these values means. Never raises. Starts and writes nothing.

    `problems` has at most one problem of each field. If all fields are valid by themselves, there is a line,
    and perhaps one problem of the whole form. A missing engine is not among the problems, because the backend
    reports it. `folder`: the notebook's folder, if this process does not run there.
    """
    given = {key: value for key, value in options.items() if value is not None}
    try:
        found = backends.load(backend)
    except DistError as error:
        return {"line": None, "note": None, "problems": [{"field": "backend", "text": str(error)}]}
    wrong = _wrong_fields(found, given)
    with asked_in(folder):
        problems = wrong or _wrong_together(found, given)
    line, note = (None, None) if wrong else _line(found, given)
    return {"line": line, "note": note, "problems": problems}


def as_line(backend: Backend, given: Mapping[str, Any]) -> str | None:
    """Return the first line of a cell with these values.

    None if no line can have them, such as multi-line text.
    """
    flags = _flags(backend)
    words = ["--backend", backend.name, *written(flags, given)]
    if any("\n" in word or "\r" in word for word in words):
        return None
    line = " ".join(map(shlex.quote, words))
    try:
        read = dict(read_command_line(line).given)
        read.pop("backend")
        if _models(backend, read) != _models(backend, given):
            return None
    except DistError:
        return None
    return f"{_MAGIC} {line}"


def _line(backend: Backend, given: Mapping[str, Any]) -> tuple[str | None, str | None]:
    line = as_line(backend, given)
    if line is None:
        return (
            None,
            "The line of a cell cannot contain these values. Save the cluster, and use it by its name.",
        )
    flags = [flag for flag in _flags(backend) if not flag.verbatim]
    replaced = [flag.names[0] for flag in flags if _has_variable(given.get(flag.field))]
    if not replaced:
        return line, None
    return line, (
        f"A cell replaces $name and {{name}} in {' and '.join(replaced)} with variables of the notebook. "
        "A saved cluster keeps them as text."
    )


def _has_variable(value: object) -> bool:
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else [value]
    return any(isinstance(part, str) and _VARIABLE.search(part) is not None for part in parts)


def _flags(backend: Backend) -> list[Flag]:
    """Return the flags, with the number of workers and the hosts first, as people write them."""
    run = [flag for flag in run_flags() if flag.field not in NOT_SAVED]
    first = [flag for flag in run if flag.field in ("np", "hosts", "hostfile")]
    return [*first, *flags_of(backend.options), *(flag for flag in run if flag not in first)]


def _models(backend: Backend, given: Mapping[str, Any]) -> tuple[Any, Any]:
    run, own = clusters.split(backend, given)
    return build(RunOptions, run, str), build(backend.options, own, str)


def _wrong_fields(backend: Backend, given: Mapping[str, Any]) -> list[FieldProblem]:
    """Return problems of single fields, or within the options of the run or of the backend."""
    run, own = clusters.split(backend, given)
    found = {name: f"{name!r} belongs to one cell and cannot be saved" for name in given if name in NOT_SAVED}
    # For its own secret, a backend's message is more specific.
    found |= clusters.secrets_in(given) | problems_of(RunOptions, run) | problems_of(backend.options, own)
    flags = _flags(backend)
    return [{"field": name or _field_in(text, flags), "text": text} for name, text in found.items()]


def _wrong_together(backend: Backend, given: Mapping[str, Any]) -> list[FieldProblem]:
    """Return a problem that exists although each field is valid."""
    try:
        make_plan({**given, "backend": backend.name}, spelled_as_flags=False, cluster=False, now=False)
    except MissingEngine:
        return []
    except DistError as error:
        return [{"field": _field_in(str(error), _flags(backend)), "text": str(error)}]
    return []


def _field_in(message: str, flags: Sequence[Flag]) -> str | None:
    """Return the field of a message: the one at its beginning, else the first flag in it."""
    [first] = re.findall(r"^\w*", message)
    by_name = {name: flag.field for flag in flags for name in flag.names}
    if any(flag.field == first for flag in flags):
        return str(first)
    return next((by_name[name] for name in _FLAG.findall(message) if name in by_name), None)
