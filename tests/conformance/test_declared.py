"""What each backend says of itself, and what it would start. No engine is started for it."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_dist import backends
from jupyter_dist.conformance import DeclaredConformance, Target

_FLAGS: dict[str, dict[str, Any]] = {
    "azureml": {
        "compute": "cpu",
        "environment": "any:1",
        "subscription": "s",
        "resource_group": "g",
        "workspace": "w",
    },
    "databricks": {"cluster_id": "c1", "volume": "/Volumes/main/default/jd", "host": "https://none.example"},
    "kubernetes": {"image": "any", "kind": "job"},
    "mpi": {"mpirun": "mpirun.openmpi"},
    "sagemaker": {
        "region": "us-east-1",
        "role": "arn:aws:iam::123456789012:role/any",
        "instance_type": "ml.c5.xlarge",
        "image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/any:1",
    },
    "ssh": {"hosts": "h1:1,h2:1"},
}
"""Without these a run is refused."""


def _params() -> list[Any]:
    needs = {
        "azureml": ("azure.identity", "azure.storage.blob"),
        "databricks": ("databricks.sdk",),
        "horovod": ("horovod",),
        "ray": ("ray",),
        "sagemaker": ("boto3",),
        "spark": ("pyspark",),
        "torchrun": ("torch",),
    }
    return [pytest.param(name, marks=pytest.mark.needs(*needs.get(name, ()))) for name in backends.built_in()]


@pytest.fixture(scope="module", params=_params())
def target(request: pytest.FixtureRequest) -> Target:
    return Target(request.param, flags=_FLAGS.get(request.param, {}))


class TestDeclared(DeclaredConformance):
    pass
