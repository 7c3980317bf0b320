"""The backend `mpi` does what every backend has to: with Open MPI's mpirun, and with MPICH's."""

from __future__ import annotations

import shutil

import pytest

from jupyter_dist.conformance import LinkConformance, PlatformConformance, Target


@pytest.fixture(scope="module", params=["openmpi", "mpich"])
def target(request: pytest.FixtureRequest) -> Target:
    program = shutil.which(f"mpirun.{request.param}")
    if program is None:
        package = {"openmpi": "openmpi-bin", "mpich": "mpich"}[request.param]
        pytest.skip(f"needs mpirun.{request.param}: apt-get install {package}")
    return Target("mpi", flags={"mpirun": program}, startup_s=4.0)


class TestMpiPlatform(PlatformConformance):
    pass


class TestMpiLink(LinkConformance):
    pass
