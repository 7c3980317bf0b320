"""The backend `ray` does what every backend has to, on one node of a Ray or two, and no disk is shared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_dist.conformance import LinkConformance, PlatformConformance, SessionConformance, Target
from tests.rigs.ray.nodes import IN_SHARED, ray_nodes, shared_ray

pytestmark = pytest.mark.xdist_group(IN_SHARED)


@pytest.fixture(scope="module", params=["two nodes", "one node"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    alone = request.param == "one node"
    with ray_nodes(tmp_path_factory.mktemp("ray"), 1) if alone else shared_ray(tmp_path_factory) as ray:
        flags = {"address": ray.address, "placement_strategy": "SPREAD", "gpus_per_worker": 0, "grace": 60}
        yield Target("ray", np=3, flags=flags, startup_s=12.0, lives=ray.lives)


class TestRayPlatform(PlatformConformance):
    pass


class TestRayLink(LinkConformance):
    pass


class TestRaySession(SessionConformance):
    pass
