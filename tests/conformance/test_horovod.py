"""The backend `horovod` does what every backend has to, over Gloo and over MPI."""

from __future__ import annotations

import pytest

from jupyter_dist.conformance import LinkConformance, PlatformConformance, Target

pytestmark = pytest.mark.needs("horovod")


@pytest.fixture(
    scope="module", params=["gloo", pytest.param("mpi", marks=pytest.mark.needs("horovod with MPI"))]
)
def target(request: pytest.FixtureRequest) -> Target:
    return Target("horovod", flags={request.param: True}, startup_s=8.0)


class TestHorovodPlatform(PlatformConformance):
    pass


class TestHorovodLink(LinkConformance):
    pass
