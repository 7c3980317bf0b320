"""The backend `kubernetes` does what every backend has to, on two nodes that share no disk with us.

The control plane is Kubernetes' own, and the user may do no more than docs/kubernetes.md says.
The pods are those of a Job, of a PyTorchJob, of an elastic one, of an MPIJob, or are reached by a mailbox.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_dist.conformance import LinkConformance, PlatformConformance, SessionConformance, Target
from tests.rigs.kubernetes.control_plane import IN_SHARED, Plane, shared_folder, shared_plane

pytestmark = pytest.mark.xdist_group(IN_SHARED)

_KINDS: dict[str, dict[str, Any]] = {
    "job": {"kind": "job"},
    "pytorchjob": {"kind": "pytorchjob"},
    "elastic": {"kind": "pytorchjob", "min_np": 1},
    "mpijob": {"kind": "mpijob"},
    "mailbox": {},
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with shared_plane(tmp_path_factory) as plane, plane.as_user():
        yield plane


@pytest.fixture(scope="module", params=list(_KINDS))
def target(request: pytest.FixtureRequest, plane: Plane) -> Iterator[Target]:
    flags = {"image": "any", "processes_per_host": 2, "grace": 60, **_KINDS[request.param]}
    if request.param != "mailbox":
        yield Target("kubernetes", np=3, flags=flags, startup_s=8.0, lives=plane.lives)
        return
    with shared_folder() as given:
        yield Target("kubernetes", np=3, flags=flags | given, startup_s=15.0, lives=plane.lives)


class TestKubernetesPlatform(PlatformConformance):
    pass


class TestKubernetesLink(LinkConformance):
    pass


class TestKubernetesSession(SessionConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, plane: Plane) -> Target:
        flags = {"image": "any", "processes_per_host": 2, "grace": 60, "kind": "job"}
        return Target("kubernetes", np=3, flags=flags, startup_s=8.0, lives=plane.lives)
