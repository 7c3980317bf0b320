"""The backend `sagemaker` does what every backend has to, in training jobs that really run.

AWS's own toolkits start the containers' processes: torchrun, beside whose processes the ranks are.
JUPYTER_DIST_CONFORMANCE=whole also tries all with mpirun, whose places they take, and with the agent alone:
eight minutes more. What differs there is tried in tests/test_sagemaker.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from fakes.sagemaker import SageMakerPlane

from jupyter_dist.conformance import BackendConformance, Target

pytestmark = [pytest.mark.needs("boto3", "moto"), pytest.mark.timeout(300)]

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


_FLAGS: dict[str, dict[str, Any]] = {
    "torchrun": {"np": 3, "distribution": "torchrun"},
    "mpi": {"np": 4, "distribution": "mpi"},
    "agent alone": {"np": 3},
}


_TRIED = list(_FLAGS) if os.environ.get("JUPYTER_DIST_CONFORMANCE") == "whole" else ["torchrun"]


@pytest.fixture(scope="module", params=_TRIED)
def target(request: pytest.FixtureRequest, plane: SageMakerPlane) -> Target:
    flags = {"role": plane.role, "instance_type": "ml.c5.xlarge", "instance_count": 2, "image": _IMAGE}
    own = dict(_FLAGS[request.param])
    np = own.pop("np")
    return Target("sagemaker", np=np, flags={**flags, **own}, startup_s=12.0, lives=plane.lives)


class TestSageMaker(BackendConformance):
    pass
