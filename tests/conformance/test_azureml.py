"""The backend `azureml` does what every backend has to, in command jobs that really run.

Their processes are started as for PyTorch, one on each machine, or by mpirun, whose places the ranks take.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_dist.conformance import LinkConformance, PlatformConformance, SessionConformance, Target
from tests.rigs.azureml import AzurePlane

pytestmark = [
    pytest.mark.needs("azure.identity", "azure.storage.blob"),
    pytest.mark.xdist_group("azureml-conformance"),
]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzurePlane]:
    with AzurePlane(tmp_path_factory.mktemp("azureml")) as plane, pytest.MonkeyPatch.context() as patch:
        for name, value in plane.environment(os.environ["PATH"]).items():
            patch.setenv(name, value)
        yield plane
        plane.own_faults.tell()


_FLAGS: dict[str, dict[str, Any]] = {
    "pytorch": {"np": 3},
    "mpi": {"np": 4, "distribution": "mpi"},
}


@pytest.fixture(scope="module", params=list(_FLAGS))
def target(request: pytest.FixtureRequest, plane: AzurePlane) -> Target:
    own = dict(_FLAGS[request.param])
    np = own.pop("np")
    flags = {**plane.flags, "instance_count": 2, **own}
    return Target("azureml", np=np, flags=flags, startup_s=6.0, lives=plane.lives)


class TestAzureMlPlatform(PlatformConformance):
    pass


class TestAzureMlLink(LinkConformance):
    pass


class TestAzureMlSession(SessionConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, plane: AzurePlane) -> Target:
        flags = {**plane.flags, "instance_count": 2}
        return Target("azureml", np=2, flags=flags, startup_s=6.0, lives=plane.lives)
