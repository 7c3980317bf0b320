"""What hosts are asked to start for ranks whose environments are known. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...hosts.facts import HostFacts
from ...hosts.fleet import Start
from .places import Place

__all__ = ["rank_starts"]

_READ_AT_START = ("DYLD_", "GLIBC_", "LD_", "MALLOC_", "PYTHON")
"""Variables that are read when a program starts, which a fork does not."""


def rank_starts(
    where: Sequence[Place], facts: Mapping[str, HostFacts], envs: Sequence[Mapping[str, str]]
) -> list[Start]:
    """One process for each rank. `envs`: as their places are."""
    fork = not any(name.startswith(_READ_AT_START) for env in envs for name in env)
    return [
        Start(place.host, (facts[place.host].python, "-m", "jupyter_dist.worker"), env, place.rank, fork)
        for place, env in zip(where, envs, strict=True)
    ]
