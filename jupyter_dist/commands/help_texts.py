"""Help texts, made from the flags themselves."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from ..flags import Flag

__all__ = ["entry", "help_text"]

_WIDTH = 96
_INDENT = 26


def help_text(usage: str, about: str, groups: Iterable[tuple[str, Sequence[Flag]]]) -> str:
    """A usage line, what it does, and each group's flags with what they are for."""
    parts = [f"usage: {usage}", "", *textwrap.wrap(about, _WIDTH)]
    for title, flags in groups:
        if flags:
            parts += ["", f"{title}:"]
            parts += [line for flag in flags for line in entry(_spelling(flag), flag.help)]
    return "\n".join(parts)


def entry(name: str, about: str) -> list[str]:
    """One thing and what it does, in two columns."""
    lines = textwrap.wrap(about, _WIDTH - _INDENT) or [""]
    head = f"  {name}"
    if len(head) > _INDENT - 2:
        return [head, *(" " * _INDENT + line for line in lines)]
    return [head.ljust(_INDENT) + lines[0], *(" " * _INDENT + line for line in lines[1:])]


def _spelling(flag: Flag) -> str:
    return ", ".join(flag.names) + (f" {flag.metavar}" if flag.metavar else "")
