"""The backend `kubernetes` does what every backend has to, on two nodes that share no disk with us.

The control plane is Kubernetes' own, and the user may do no more than docs/kubernetes.md says.
JUPYTER_DIST_CONFORMANCE=whole also tries all with a PyTorchJob, an elastic one and an MPIJob, and by a
mailbox: eight minutes more. What differs there is in tests/test_kubeflow*.py and test_kubernetes_mailbox.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from kube_plane.plane import IN_SHARED, Plane, shared_folder, shared_plane

from jupyter_dist.conformance import BackendConformance, Target

pytestmark = [
    pytest.mark.xdist_group(IN_SHARED),
    pytest.mark.timeout(300),  # a plane that starts on a loaded machine is slow
]


_WHOLE = os.environ.get("JUPYTER_DIST_CONFORMANCE") == "whole"
_KINDS: dict[str, dict[str, Any]] = {
    "job": {"kind": "job"},
    "pytorchjob": {"kind": "pytorchjob"},
    "elastic": {"kind": "pytorchjob", "min_np": 1},
    "mpijob": {"kind": "mpijob"},
    "mailbox": {},
}
_TRIED = list(_KINDS) if _WHOLE else ["job"]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with shared_plane(tmp_path_factory) as plane, plane.as_user():
        yield plane


@pytest.fixture(scope="module", params=_TRIED)
def target(request: pytest.FixtureRequest, plane: Plane) -> Iterator[Target]:
    flags = {"image": "any", "processes_per_host": 2, "grace": 60, **_KINDS[request.param]}
    if request.param != "mailbox":
        yield Target("kubernetes", np=3, flags=flags, startup_s=8.0, lives=plane.lives)
        return
    with shared_folder() as given:
        yield Target("kubernetes", np=3, flags=flags | given, startup_s=15.0, lives=plane.lives)


class TestKubernetes(BackendConformance):
    pass
