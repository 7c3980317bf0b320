"""What a run is told while it waits for its place in a Ray cluster."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_dist.backends.ray.pending_reason import PendingReason, lack

GPU_RANKS = [{"CPU": 1.0, "GPU": 1.0}] * 4
NONE_ADDED: dict[str, Any] = {"launching": [], "failed": [], "infeasible": [], "types": {}}


def node(free: dict[str, float] | None = None, **total: float) -> dict[str, Any]:
    return {"address": "10.0.0.2", "total": total, "free": total if free is None else {**total, **free}}


def census(*nodes: dict[str, Any], autoscaler: dict[str, Any] | None = None) -> dict[str, Any]:
    free: dict[str, float] = {}
    for one in nodes:
        for name, amount in one["free"].items():
            free[name] = free.get(name, 0.0) + amount
    return {"nodes": nodes, "free": free, "autoscaler": autoscaler}


@pytest.mark.parametrize(
    ("bundles", "there", "strategy", "expected"),
    [
        (
            GPU_RANKS,
            census(node(CPU=8.0, GPU=2.0)),
            "PACK",
            PendingReason(
                "asks 4 GPUs, the cluster has 2; no autoscaler runs there that could add a node",
                hopeless=True,
            ),
        ),
        (
            GPU_RANKS,
            census(node(CPU=2.0)),
            "PACK",
            PendingReason(
                "asks 4 CPUs, the cluster has 2; asks 4 GPUs, the cluster has none; "
                "no autoscaler runs there that could add a node",
                hopeless=True,
            ),
        ),
        (
            GPU_RANKS,
            census(
                node(CPU=8.0, GPU=2.0),
                autoscaler={**NONE_ADDED, "launching": [{"type": "g5", "count": 2, "details": ""}]},
            ),
            "PACK",
            PendingReason("asks 4 GPUs, the cluster has 2; the autoscaler adds 2 × g5", hopeless=False),
        ),
        (
            GPU_RANKS,
            census(
                node(CPU=8.0, GPU=2.0),
                autoscaler={
                    **NONE_ADDED,
                    "failed": [{"type": "g5", "count": 1, "details": "InsufficientInstanceCapacity:\n no"}],
                },
            ),
            "PACK",
            PendingReason(
                "asks 4 GPUs, the cluster has 2; the autoscaler could not add 1 × g5: "
                "InsufficientInstanceCapacity: no",
                hopeless=False,
            ),
        ),
        (
            GPU_RANKS,
            census(node(CPU=8.0), autoscaler={**NONE_ADDED, "infeasible": [{"CPU": 1.0, "GPU": 1.0}]}),
            "PACK",
            PendingReason(
                "asks 4 GPUs, the cluster has none; the autoscaler has no kind of node with 1 CPU and 1 GPU",
                hopeless=True,
            ),
        ),
        (
            GPU_RANKS,
            census(node(CPU=8.0), autoscaler=NONE_ADDED),
            "PACK",
            PendingReason(
                "asks 4 GPUs, the cluster has none; the autoscaler has not added anything yet", hopeless=False
            ),
        ),
        (
            GPU_RANKS,
            census(node({"GPU": 1.0}, CPU=8.0, GPU=4.0)),
            "PACK",
            PendingReason("asks 4 GPUs, 1 of 4 is free: others hold the rest", hopeless=False),
        ),
        (
            [{"CPU": 4.0}],
            census(node(CPU=2.0), node(CPU=2.0)),
            "PACK",
            PendingReason(
                "asks 4 CPUs on one node, and no node has that; "
                "no autoscaler runs there that could add a node",
                hopeless=True,
            ),
        ),
        (
            [{"CPU": 2.0}] * 2,
            census(node({"CPU": 1.0}, CPU=3.0), node({"CPU": 3.0}, CPU=3.0)),
            "PACK",
            PendingReason(
                "asks 2 × (2 CPUs), each on one node, and the nodes have room for 1 now", hopeless=False
            ),
        ),
        (
            [{"CPU": 1.0}] * 3,
            census(node(CPU=2.0), node(CPU=2.0)),
            "STRICT_PACK",
            PendingReason(
                "asks 3 CPUs on one node, and no node has that; "
                "no autoscaler runs there that could add a node",
                hopeless=True,
            ),
        ),
        (
            [{"CPU": 1.0}] * 3,
            census(node(CPU=2.0), node(CPU=2.0)),
            "STRICT_SPREAD",
            PendingReason(
                "asks 3 nodes (STRICT_SPREAD), the cluster has 2; "
                "no autoscaler runs there that could add a node",
                hopeless=True,
            ),
        ),
        (
            [{"CPU": 1.0, "memory": 8e9, "accelerator_type:A100": 0.001, "TPU": 4.0}],
            census(node(CPU=2.0, memory=2.5e9)),
            "PACK",
            PendingReason(
                "asks 8 GB of memory, the cluster has 2.5 GB; asks a GPU of type A100, the cluster has none; "
                "asks 4 of 'TPU', the cluster has none; no autoscaler runs there that could add a node",
                hopeless=True,
            ),
        ),
        (
            [{"CPU": 0.1}] * 10,  # their sum is 0.9999999999999999
            census(node(CPU=1.0)),
            "PACK",
            PendingReason("everything that is asked for is free: Ray is placing it", hopeless=False),
        ),
    ],
)
def test_what_is_lacking_is_told(
    bundles: list[dict[str, float]], there: dict[str, Any], strategy: str, expected: PendingReason
) -> None:
    assert lack(bundles, there, strategy=strategy) == expected


def test_what_fits_lacks_nothing() -> None:
    assert lack([{"CPU": 1.0}] * 2, census(node(CPU=2.0)), waiting=False) is None


def test_a_client_is_not_told_what_each_node_has_free() -> None:
    there = census(node(CPU=2.0), node(CPU=2.0))
    for one in there["nodes"]:
        one["free"] = None
    assert lack([{"CPU": 2.0}] * 2, there, waiting=False) is None
    assert lack([{"CPU": 3.0}], there, waiting=False) is not None
