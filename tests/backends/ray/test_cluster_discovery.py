"""Which Rays there are to be asked; what one has that runs is in test_cluster_state.py."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.backends.ray import cluster_discovery, cluster_state


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_discovery, "_questions", {})
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:1", "nobody answers at 127.0.0.1:1 (Connection refused)"),
        ("ray://127.0.0.1:1", "nobody answers at 127.0.0.1:1 (Connection refused)"),
        ("nonsense", "'nonsense' is not an address such as"),
        ("http://127.0.0.1:8265", "is not an address such as"),
        ("127.0.0.1:99999", "is not an address such as"),
    ],
)
def test_an_address_that_leads_nowhere_says_so(
    address: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_discovery, "of_this_machine", list)
    monkeypatch.setenv("RAY_ADDRESS", address)
    (site,) = cluster_discovery.detect()["sites"]
    assert said in site["problem"]


@pytest.mark.parametrize("address", ["", "auto", "local"])
def test_where_none_runs_that_is_told(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_discovery, "of_this_machine", list)
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert cluster_discovery.detect() == {
        "Ray": importlib.metadata.version("ray"),
        "no_site": "no Ray runs on this machine, and RAY_ADDRESS is not set: "
        "a run starts a Ray of its own here",
    }


def test_without_ray_there_is_nothing_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert cluster_discovery.detect() == {}


def test_rays_of_other_networks_are_left_out(tmp_path: Path) -> None:
    raylet = "/x/raylet\0--node_id=1\0--gcs-address=10.0.0.2:6379\0"
    for pid, network, command in (
        ("self", "net:[1]", ""),
        ("7", "net:[1]", raylet),
        ("8", "net:[1]", raylet),
        ("9", "net:[2]", raylet.replace("0.2", "0.9")),
        ("10", "net:[1]", "/bin/cat\0--gcs-address=10.0.0.3:6379\0"),
        ("11", "net:[1]", ""),
    ):
        (tmp_path / pid / "ns").mkdir(parents=True)
        (tmp_path / pid / "ns" / "net").symlink_to(network)
        (tmp_path / pid / "cmdline").write_text(command)
    assert cluster_discovery.of_this_machine(tmp_path) == ["10.0.0.2:6379"]


@pytest.mark.parametrize(
    ("kinds", "reports", "before", "adds"),
    [
        (["", ""], 0, None, False),
        (["", ""], 3, None, False),
        (["ray.head.default", "gpu"], 3, None, True),
        (["", ""], 0, {"time": 1.0}, False),
        (["", ""], 0, {"autoscaler_report": {"active_nodes": {f"node_{'8c2e' * 14}": 1}}}, False),
        (["", ""], 0, {"autoscaler_report": {"active_nodes": {"ray.head.default": 1}}}, True),
    ],
)
def test_an_autoscaler_that_only_watches_is_none(
    kinds: list[str], reports: int, before: dict[str, Any] | None, adds: bool
) -> None:
    """One runs on every head. `reports`: a number that only the present one gives its reports."""
    pytest.importorskip("ray")
    from ray.core.generated import autoscaler_pb2

    class Client:
        def internal_kv_get(self, key: bytes, namespace: bytes, timeout: float) -> bytes | None:
            return json.dumps(before).encode() if before and key == b"__autoscaling_status" else None

    nodes = [autoscaler_pb2.NodeState(ray_node_type_name=kind) for kind in kinds]
    state = autoscaler_pb2.AutoscalingState(autoscaler_state_version=reports)
    assert (cluster_state._autoscaler(Client(), nodes, state, 1.0) is not None) is adds
