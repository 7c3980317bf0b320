"""The number of threads of ranks on Ray nodes, without Ray."""

from __future__ import annotations

import pytest

from jupyter_dist.backends.ranks.placement import RankPlacement, host_environment
from jupyter_dist.backends.ray.options import RayOptions
from jupyter_dist.hosts.facts import HostFacts

NODE = HostFacts(
    name="node1",
    node=0,
    slots=2,
    hostname="node1",
    address="10.0.0.1",
    client=None,
    interface="eth0",
    python="/py",
    version="3.11.0",
    cores=64,
    gpus=(),
    stage="/stage",
    home="/home",
    free_disk=0,
    machine="m",
)


@pytest.mark.parametrize(
    ("cpus", "threads"), [(1, "32"), (0, "32"), (0.5, "32"), (4, "4"), (2.5, "3"), (100, "32")]
)
def test_a_rank_has_as_many_threads_as_ray_has_reserved_cpus(cpus: float, threads: str) -> None:
    asked = RayOptions(cpus_per_worker=cpus).wanted(0)
    found = host_environment(RankPlacement(0, "node1", 0, 0, 2), asked, NODE, "10.0.0.1", ())
    assert found["OMP_NUM_THREADS"] == threads
