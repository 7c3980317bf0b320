"""What a Ray that runs has, told without an `import ray` in this process."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_dist.backends.ray import cluster_discovery
from jupyter_dist.backends.ray.pending_reason import lack
from jupyter_dist.conformance.deadlines import PATIENCE_S, Deadline
from tests.rigs.ray.nodes import IN_SHARED, RayNodes, shared_ray

pytestmark = pytest.mark.xdist_group(IN_SHARED)

HOLD = """
import sys, ray
ray.init(sys.argv[1], log_to_driver=False)
group = ray.util.placement_group([{"CPU": 1, "GPU": 1}])
ray.get(group.ready())
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayNodes]:
    with shared_ray(tmp_path_factory) as found:
        yield found


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_discovery, "_questions", {})
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def look_until_it_answers() -> dict[str, Any]:
    deadline = Deadline()
    while True:
        found = cluster_discovery.detect()
        if not any("list the Rays again later" in str(site["problem"]) for site in found["sites"]):
            return found
        assert not deadline.passed(), found


def test_a_ray_is_found_and_told_with_what_is_free(there: RayNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", HOLD, there.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        try:
            assert any(line == "held\n" for line in driver.stdout)
            # Another name for the same Ray is no other one.
            monkeypatch.setenv("RAY_ADDRESS", there.address)
            found = look_until_it_answers()
        finally:
            driver.stdin.close()
    json.dumps(found, allow_nan=False)
    assert found["Ray"] == importlib.metadata.version("ray")
    (site,) = [site for site in found["sites"] if site["name"] == there.address]
    assert site["options"] == {"address": there.address}
    assert (site["problem"], site["nodes"]) == (None, 3)
    assert (site["cpus"], site["gpus"]) == ({"free": 3, "total": 4}, {"free": 1, "total": 2})
    assert 0 < site["memory_bytes"]["free"] <= site["memory_bytes"]["total"]
    assert site["told"].startswith("3 nodes, 3 of 4 CPUs free, 1 of 2 GPUs free, ")


def test_a_ray_is_told_through_its_client_port_by_the_time_of_a_later_look(
    there: RayNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # whoever imports it in this process fails
    address = there.client_address
    first = cluster_discovery.ask([address], patience_s=0.1)[address]
    assert "list the Rays again later" in first["problem"]
    census = cluster_discovery.ask([address], patience_s=PATIENCE_S)[address]
    site = cluster_discovery.site(address, census)
    assert site["problem"] is None
    assert site["cpus"]["total"] == 4


def test_what_it_lacks_for_a_run_is_told(there: RayNodes) -> None:
    census = cluster_discovery.ask([there.address], patience_s=PATIENCE_S)[there.address]
    found = lack([{"CPU": 0.5, "GPU": 1.0}] * 4, census)
    assert found is not None
    assert found.told.startswith("asks 4 GPUs, the cluster has 2; no autoscaler runs there")
    assert found.hopeless
    assert census["ray"] == importlib.metadata.version("ray")
    assert census["python"].split(".")[:2] == [str(part) for part in sys.version_info[:2]]
