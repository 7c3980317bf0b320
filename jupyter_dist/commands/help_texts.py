"""Help texts, built from the flags themselves."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from ..flags import Flag

__all__ = ["entry", "help_text"]

_WIDTH = 96
_INDENT = 26


def help_text(usage: str, about: str, groups: Iterable[tuple[str, Sequence[Flag]]]) -> str:
    """Return the usage line, what the command does, and each group's flags with their descriptions."""
    parts = [f"usage: {usage}", "", *textwrap.wrap(about, _WIDTH)]
    for title, flags in groups:
        if flags:
            parts += ["", f"{title}:"]
            parts += [line for flag in flags for line in entry(_spelling(flag), flag.help)]
    return "\n".join(parts)


def entry(name: str, about: str) -> list[str]:
    """Return a name and its description, in two columns."""
    lines = textwrap.wrap(about, _WIDTH - _INDENT) or [""]
    head = f"  {name}"
    if len(head) > _INDENT - 2:
        return [head, *(" " * _INDENT + line for line in lines)]
    return [head.ljust(_INDENT) + lines[0], *(" " * _INDENT + line for line in lines[1:])]


def _spelling(flag: Flag) -> str:
    return ", ".join(flag.names) + (f" {flag.metavar}" if flag.metavar else "")
