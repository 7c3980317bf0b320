"""Flags of a cell as a run stores them, to run it again: as they were typed, but without secrets."""

from __future__ import annotations

import functools
import shlex

from ..errors import InputError
from ..flags import split_line
from ..text.confidential import is_confidential

__all__ = ["LEFT_OUT", "flags_to_keep"]

LEFT_OUT = "…"
"""Placeholder for a removed value. A line that contains it cannot be run unchanged."""
_MOST = 2000


@functools.lru_cache(16)
def flags_to_keep(line: str) -> str:
    """Return the line without the values of `--env`, and without values that look like secrets.

    A variable instead of a value, such as `--env TOKEN=$token`, stays, because it reveals nothing.
    """
    try:
        tokens = split_line(line)
    except InputError:
        return ""
    kept = []
    before = ""
    for token in tokens:
        kept.append(_kept(token, before))
        before = token
    if kept == tokens:
        return line if len(line) <= _MOST else ""
    return shlex.join(kept)[:_MOST]


def _kept(token: str, before: str) -> str:
    if token.startswith("--env="):
        return f"--env={_kept(token.removeprefix('--env='), '--env')}"
    name, equals, value = token.partition("=")
    if not equals:
        name, value = before, token
    is_flag = token.startswith("-") and not equals
    if is_flag or _is_variable(value):
        return token
    if before == "--env" or is_confidential(name.lstrip("-"), value):
        return f"{name}={LEFT_OUT}" if equals else LEFT_OUT
    return token


def _is_variable(value: str) -> bool:
    if value.startswith("{") and value.endswith("}"):
        return all(part.isidentifier() for part in value[1:-1].split("."))
    return value.startswith("$") and value[1:].isidentifier()  # what follows a dot may be text
