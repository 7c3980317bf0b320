"""A notebook whose kernel is a pod itself, as with JupyterHub: its ranks are pods beside it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.rigs.kubernetes.control_plane import IN_SHARED, NAMESPACE, Plane
from tests.rigs.kubernetes.fixtures import plane  # noqa: F401  the fixture

pytestmark = pytest.mark.xdist_group(IN_SHARED)

CORE = f"/api/v1/namespaces/{NAMESPACE}"
MOUNTED = "/var/run/secrets/kubernetes.io/serviceaccount"
NOTEBOOK = """
import json, os
import jupyter_dist as dist


def train():
    print("here", flush=True)
    return dist.rank(), os.uname().nodename


if __name__ == "__main__":
    run = dist.run(train, backend="kubernetes", np=2, options={"image": "any"})
    print("RESULTS", json.dumps(list(run.results)))
"""


@pytest.fixture
def account(plane: Plane) -> Iterator[str]:
    """The name of a Secret that holds what a cluster mounts into each pod."""
    told = {
        "token": plane.account_token("of-the-notebook"),
        "ca.crt": plane.certificate.read_text(),
        "namespace": NAMESPACE,
    }
    data = {name: base64.b64encode(text.encode()).decode() for name, text in told.items()}
    plane.api.post(f"{CORE}/secrets", {"metadata": {"name": "account"}, "data": data})
    yield "account"
    for name in ("account", "of-the-notebook"):
        plane.api.delete(f"{CORE}/secrets/{name}")


def test_the_pods_account_and_namespace_are_used(
    plane: Plane, account: str, wait_for: Callable[..., Any]
) -> None:
    container = {
        "name": "notebook",
        "image": "any",
        "command": ["python3", "-c", NOTEBOOK],
        "env": [{"name": "KUBECONFIG", "value": "/none"}],
        "volumeMounts": [{"name": "account", "mountPath": MOUNTED}],
    }
    spec = {
        "containers": [container],
        "volumes": [{"name": "account", "secret": {"secretName": account}}],
        "restartPolicy": "Never",
    }
    plane.api.post(f"{CORE}/pods", {"metadata": {"name": "notebook"}, "spec": spec})

    def ended() -> bool:
        phase = plane.api.get(f"{CORE}/pods/notebook")["status"].get("phase")
        return phase in ("Succeeded", "Failed")

    try:
        wait_for(ended, what="the notebook's pod to end")
        said = plane.api.text(f"{CORE}/pods/notebook/log")
    finally:
        plane.api.delete(f"{CORE}/pods/notebook")
    results = [line.partition(" ")[2] for line in said.splitlines() if line.startswith("RESULTS")]
    assert len(results) == 1, said
    found = json.loads(results[0])
    assert [rank for rank, _ in found] == [0, 1], said
    assert len({name for _, name in found} - {"notebook"}) == 2, said
    assert plane.api.get(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs")["items"] == []
    wait_for(lambda: not plane.pods(), what="the end of all pods")
