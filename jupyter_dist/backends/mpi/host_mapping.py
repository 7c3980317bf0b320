"""The hosts and the order of ranks if the user's arguments make mpirun map ranks by node. Pure.

mpirun maps ranks to the hosts that it is given. So these hosts have to be all that the mapping needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["is_ranked_by_node", "mapped_hosts"]

_PER_NODE = ("N", "npernode", "ppn", "perhost")
"""Arguments with the number of ranks on each host."""


def mapped_hosts(
    world_size: int, hosts: Sequence[Mapping[str, Any]], more: Sequence[str]
) -> tuple[dict[str, Any], ...]:
    """Return the hosts that get ranks, each with their number as its slots.

    `more`: the user's arguments for mpirun. Without a mapping by node, or if the hosts have too few slots for
    it, the hosts stay as they are.
    """
    each, by_node = _per_node(more), _is_mapped_by_node(more)
    most = [int(host["slots"]) if each is None else min(each, int(host["slots"])) for host in hosts]
    if (each is None and not by_node) or sum(most) < world_size:
        return tuple(dict(host) for host in hosts)
    slots = [(turn, at) for at, count in enumerate(most) for turn in range(count)]
    taken = [at for _, at in (sorted(slots) if by_node else slots)[:world_size]]
    return tuple({**host, "slots": taken.count(at)} for at, host in enumerate(hosts) if at in taken)


def is_ranked_by_node(more: Sequence[str]) -> bool:
    """Return whether the next rank is on the next host, as in `--map-by node`."""
    ranked = _value(more, ("rank-by",))
    return _is_mapped_by_node(more) if ranked is None else _is_node(ranked)


def _is_mapped_by_node(more: Sequence[str]) -> bool:
    return _is_node(_value(more, ("map-by",)) or "") or _has(more, "bynode")


def _is_node(value: str) -> bool:
    return value.partition(":")[0].lower() == "node"


def _per_node(more: Sequence[str]) -> int | None:
    """Return the largest number of ranks on a host, or None if only its slots limit it."""
    found = re.match(r"ppr:(\d+):node", _value(more, ("map-by",)) or "", re.IGNORECASE)
    count = found[1] if found else _value(more, _PER_NODE)
    if count is None:
        return 1 if _has(more, "pernode") else None
    return int(count) if count.isdecimal() and int(count) else None


def _value(more: Sequence[str], names: Iterable[str]) -> str | None:
    """Return the value of one of these arguments, written as `--map-by node` or `--map-by=node`."""
    for word, following in zip(more, [*more, ""][1:], strict=True):
        name, equals, value = word.lstrip("-").partition("=")
        if word.startswith("-") and name in names:
            return value if equals else following
    return None


def _has(more: Sequence[str], name: str) -> bool:
    return any(word in (f"-{name}", f"--{name}") for word in more)
