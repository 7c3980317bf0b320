"""Hosts and their slots, from a flag or a file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from .flags import shown

__all__ = ["Host", "parse_hosts", "read_hostfile"]

_HOST = re.compile(r"((?:[\w.-]+@)?(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]))(?::(\d+))?")
_HOST_LINE = re.compile(r"(\S+)(?:\s+slots\s*=\s*(\d+))?(?:\s+max[_-]slots\s*=\s*\d+)?")


@dataclass(frozen=True)
class Host:
    """A machine and how many workers it takes."""

    name: str
    slots: int


def parse_hosts(text: str) -> tuple[Host, ...]:
    """Hosts from `a:4,me@b:4,[fd00::1]:4`; without a number a host takes one worker."""
    found = []
    for part in text.split(","):
        match = _HOST.fullmatch(part.strip())
        if match is None or match[2] == "0" or match[1].startswith("-"):
            raise ValueError(f"needs hosts such as node1:4,node2:4, got {shown(text)}")
        found.append(Host(match[1], int(match[2] or 1)))
    names = [host.name for host in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"names the host {name!r} twice. Write each host once, with all its slots")
    return tuple(found)


def read_hostfile(path: str) -> tuple[Host, ...]:
    """Hosts from a file as mpirun and horovodrun read it: `NAME slots=N` or `NAME:N`, one per line.

    A host that stands there several times has the slots of all its lines, as in a scheduler's node file."""
    try:
        lines = Path(path).expanduser().read_text("utf-8").splitlines()
    except RuntimeError:  # of `expanduser`
        raise ValueError(
            f"cannot read {shown(path)}: this machine has no such user. Write the path"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise ValueError(f"cannot read {shown(path)}: {reason}") from None
    found: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = _HOST_LINE.fullmatch(text)
        try:
            (host,) = parse_hosts(":".join(filter(None, match.groups())) if match else "")
        except ValueError:
            raise ValueError(
                f"{shown(path)}, line {number}: expected `NAME slots=N`, got {shown(line.strip())}"
            ) from None
        found[host.name] = found.get(host.name, 0) + host.slots
    if not found:
        raise ValueError(f"{shown(path)} names no host. Add lines such as `node1 slots=4`")
    return tuple(Host(name, slots) for name, slots in found.items())
