"""What Horovod finds in the environment of ranks that horovodrun has not started. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...worker.horovod_meeting import HOW

if TYPE_CHECKING:
    from .places import Place

__all__ = ["horovod_environments", "horovod_network"]

_TIMEOUT_S = "300"
"""Horovod's 30 s would be over before a rank has imported its framework on a busy machine."""


def horovod_network(network: Mapping[str, str]) -> dict[str, str]:
    """What is the same for all ranks of a host. `network`: what gloo is told there (places.network)."""
    interface = network.get("GLOO_SOCKET_IFNAME")
    return {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": _TIMEOUT_S,
        **({} if interface is None else {"HOROVOD_GLOO_IFACE": interface}),
    }


def horovod_environments(where: Sequence[Place], address: str, port: str) -> list[dict[str, str]]:
    """Of each rank, in the words of horovodrun. `address`, `port`: where rank 0 serves the store.

    https://github.com/horovod/horovod/blob/v0.28.1/horovod/runner/gloo_run.py
    """
    across: dict[int, list[int]] = {}
    for place in where:
        across.setdefault(place.local_rank, []).append(place.node)
    return [
        {
            HOW: "static",
            # Only to tell hosts apart: their own names may hold what has no place in a URL.
            "HOROVOD_HOSTNAME": f"host{place.node}",
            "HOROVOD_RANK": str(place.rank),
            "HOROVOD_SIZE": str(len(where)),
            "HOROVOD_LOCAL_RANK": str(place.local_rank),
            "HOROVOD_LOCAL_SIZE": str(place.local_size),
            "HOROVOD_CROSS_RANK": str(across[place.local_rank].index(place.node)),
            "HOROVOD_CROSS_SIZE": str(len(across[place.local_rank])),
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": address,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": port,
        }
        for place in where
    ]
