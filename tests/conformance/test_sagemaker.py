"""The backend `sagemaker` does what every backend has to, in training jobs that really run.

AWS's own toolkits start the containers' processes: torchrun, beside whose processes the ranks are, or mpirun,
whose places they take, or nothing but the agent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_dist.conformance import LinkConformance, PlatformConformance, SessionConformance, Target
from tests.rigs.sagemaker import SageMakerPlane

pytestmark = pytest.mark.needs("boto3", "moto")

_IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/my-pytorch-training:1"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SageMakerPlane]:
    with (
        SageMakerPlane(tmp_path_factory.mktemp("sagemaker")) as plane,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in plane.environment.items():
            patch.setenv(name, value)
        yield plane
        plane.own_faults.tell()


_FLAGS: dict[str, dict[str, Any]] = {
    "torchrun": {"np": 3, "distribution": "torchrun"},
    "mpi": {"np": 4, "distribution": "mpi"},
    "agent alone": {"np": 3},
}


@pytest.fixture(scope="module", params=list(_FLAGS))
def target(request: pytest.FixtureRequest, plane: SageMakerPlane) -> Target:
    flags = {"role": plane.role, "instance_type": "ml.c5.xlarge", "instance_count": 2, "image": _IMAGE}
    own = dict(_FLAGS[request.param])
    np = own.pop("np")
    return Target("sagemaker", np=np, flags={**flags, **own}, startup_s=12.0, lives=plane.lives)


class TestSageMakerPlatform(PlatformConformance):
    pass


class TestSageMakerLink(LinkConformance):
    pass


class TestSageMakerSession(SessionConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, plane: SageMakerPlane) -> Target:
        flags = {"role": plane.role, "instance_type": "ml.c5.xlarge", "instance_count": 2, "image": _IMAGE}
        return Target("sagemaker", np=2, flags=flags, startup_s=12.0, lives=plane.lives)
