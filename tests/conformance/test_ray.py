"""The backend `ray` does what every backend has to, on two nodes of a Ray that share no disk with us.

`JUPYTER_DIST_RAY_NODES=1` has it do so on one; the test suite has time for one of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from ray_nodes import IN_SHARED, ray_nodes, shared_ray

from jupyter_dist.conformance import BackendConformance, Target

pytestmark = [
    pytest.mark.xdist_group(IN_SHARED),
    pytest.mark.timeout(600),  # a Ray that starts on a loaded machine is slow
]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    alone = os.environ.get("JUPYTER_DIST_RAY_NODES") == "1"
    with ray_nodes(tmp_path_factory.mktemp("ray"), 1) if alone else shared_ray(tmp_path_factory) as ray:
        flags = {"address": ray.address, "placement_strategy": "SPREAD", "gpus_per_worker": 0, "grace": 60}
        yield Target("ray", np=3, flags=flags, startup_s=12.0, lives=ray.lives)


class TestRay(BackendConformance):
    pass
