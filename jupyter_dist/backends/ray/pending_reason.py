"""The reason why a run is pending on Ray: its request, the cluster's resources, the autoscaler's plans.

Everything here is computed from a cluster's state (cluster_state.py) and from the bundles of the run's
placement group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...text.format import count, size

__all__ = ["PendingReason", "lack"]

Amounts = Mapping[str, float]
_UNITS = ("CPU", "GPU")
_SLACK = 1e-6
"""Tolerance of comparisons. Ray counts in ten-thousandths, and sums of fractions are not exact."""
_LONGEST = 160


@dataclass(frozen=True)
class PendingReason:
    """Why a placement group is pending. `told`: one line for the user."""

    told: str
    hopeless: bool
    """Whether the group can never be placed: no node has the resources, and no autoscaler can add one."""


def lack(
    bundles: Sequence[Amounts], census: Mapping[str, Any], *, strategy: str = "PACK", waiting: bool = True
) -> PendingReason | None:
    """Return why a placement group of these bundles is pending. None if it fits now, and nobody waits for it.

    `strategy` is the placement group's. `waiting`: the group was requested and is not ready yet. If the
    cluster then has all resources, the line reports that Ray is placing the group. Pure.
    """
    nodes: Sequence[Mapping[str, Any]] = census["nodes"]
    short = _short(bundles, nodes, census["free"]) or _unplaceable(bundles, nodes, strategy)
    if short is None:
        if not waiting:
            return None
        return PendingReason("everything that is asked for is free: Ray is placing it", False)
    text, never = short
    added = _added(census.get("autoscaler"), bundles)
    if not never and added is None:
        return PendingReason(text, False)
    hope, coming = added if added is not None else ("no autoscaler runs there that could add a node", False)
    return PendingReason(f"{text}; {hope}", never and not coming)


def _short(
    bundles: Sequence[Amounts], nodes: Sequence[Mapping[str, Any]], free: Amounts
) -> tuple[str, bool] | None:
    """Return what the cluster as a whole lacks, and whether its nodes lack it for good."""
    asked = _sum(bundles)
    has = _sum([node["total"] for node in nodes])
    never = [name for name, amount in asked.items() if amount > has.get(name, 0.0) + _SLACK]
    if never:
        said = [f"{_amount(name, asked[name])}, the cluster has {_count(name, has)}" for name in never]
        return f"asks {'; asks '.join(said)}", True
    now = [name for name, amount in asked.items() if amount > free.get(name, 0.0) + _SLACK]
    if not now:
        return None
    said = [f"{_amount(name, asked[name])}, {_free(name, free, has)}" for name in now]
    return f"asks {'; asks '.join(said)}: others hold the rest", False


def _unplaceable(
    bundles: Sequence[Amounts], nodes: Sequence[Mapping[str, Any]], strategy: str
) -> tuple[str, bool] | None:
    """Return why the bundles do not fit onto the nodes although the total is sufficient. None if they fit.

    A bundle must fit onto one node. Under STRICT_PACK all bundles must fit onto one node. Under STRICT_SPREAD
    each node can have one bundle at most.
    """
    if strategy == "STRICT_PACK" and bundles:
        bundles = [_sum(bundles)]
    if strategy == "STRICT_SPREAD" and len(bundles) > len(nodes):
        return f"asks {count(len(bundles), 'node')} (STRICT_SPREAD), the cluster has {len(nodes)}", True
    for kind, never in (("total", True), ("free", False)):
        amounts = [node[kind] for node in nodes]
        if any(one is None for one in amounts):
            continue  # a client cannot read what is free on each node
        placed, stuck = _fill(bundles, amounts, apart=strategy == "STRICT_SPREAD")
        if stuck is None:
            continue
        now = "" if never else " now"
        if len(bundles) == 1:
            return (
                f"asks {_told(stuck)} on one node, and no node has that{'' if never else ' free'}{now}",
                never,
            )
        return f"asks {_shapes(bundles)}, each on one node, and the nodes have room for {placed}{now}", never
    return None


def _fill(bundles: Sequence[Amounts], nodes: Sequence[Amounts], *, apart: bool) -> tuple[int, Amounts | None]:
    """Return how many bundles can be placed, largest first, and one that cannot be placed."""
    room = [dict(node) for node in nodes]
    placed, stuck = 0, None
    for bundle in sorted(bundles, key=lambda one: sorted(one.values()), reverse=True):
        for node in room:
            if all(node.get(name, 0.0) + _SLACK >= amount for name, amount in bundle.items()):
                for name, amount in bundle.items():
                    node[name] = node.get(name, 0.0) - amount
                if apart:
                    room.remove(node)
                placed += 1
                break
        else:
            stuck = stuck or bundle
    return placed, stuck


def _shapes(bundles: Sequence[Amounts]) -> str:
    counted = Counter(_told(bundle) for bundle in bundles)
    return ", ".join(f"{count} × ({shape})" for shape, count in counted.items())


def _added(autoscaler: Mapping[str, Any] | None, bundles: Sequence[Amounts]) -> tuple[str, bool] | None:
    """Return what the autoscaler will add, and whether that can help. None if no autoscaler runs."""
    if autoscaler is None:
        return None
    launching: Counter[str] = Counter()
    for one in autoscaler["launching"]:
        launching[one["type"]] += one["count"]
    if launching:
        kinds = ", ".join(f"{count} × {name}" for name, count in launching.items())
        return f"the autoscaler adds {kinds}", True
    for one in autoscaler["failed"]:
        why = " ".join(str(one["details"]).split())[:_LONGEST]
        return (
            f"the autoscaler could not add {one['count']} × {one['type']}: {why or 'no reason given'}",
            True,
        )
    refused = [request for request in autoscaler["infeasible"] if any(_same(request, b) for b in bundles)]
    if refused:
        return f"the autoscaler has no kind of node with {_told(refused[0])}", False
    return "the autoscaler has not added anything yet", True


def _same(request: Amounts, bundle: Amounts) -> bool:
    asked = {name: amount for name, amount in bundle.items() if amount}
    return request.keys() >= asked.keys() and all(
        abs(request[name] - amount) < _SLACK for name, amount in asked.items()
    )


def _sum(parts: Sequence[Amounts]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0.0) + amount
    return {name: amount for name, amount in total.items() if amount}


def _told(amounts: Amounts) -> str:
    return " and ".join(_amount(name, amount) for name, amount in amounts.items() if amount)


def _amount(name: str, amount: float) -> str:
    """Return an amount as text: `4 GPUs`, `8 GB of memory`, `2 of TPU`."""
    if name == "memory":
        return f"{size(amount)} of memory"
    if name in _UNITS:
        return f"{amount:g} {name}{'' if amount == 1 else 's'}"
    if name.startswith("accelerator_type:"):
        return f"a GPU of type {name.partition(':')[2]}"
    return f"{amount:g} of {name!r}"


def _count(name: str, has: Amounts) -> str:
    if not has.get(name):
        return "none"
    return size(has[name]) if name == "memory" else f"{has[name]:g}"


def _free(name: str, free: Amounts, has: Amounts) -> str:
    return f"{_count(name, free)} of {_count(name, has)} {'is' if free.get(name) == 1 else 'are'} free"
