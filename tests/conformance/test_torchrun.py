"""The backend `torchrun` does what every backend has to."""

from __future__ import annotations

import pytest

from jupyter_dist.conformance import LinkConformance, PlatformConformance, Target

pytestmark = pytest.mark.needs("torch")


@pytest.fixture(scope="module")
def target() -> Target:
    return Target("torchrun", startup_s=10.0)


class TestTorchrunPlatform(PlatformConformance):
    pass


class TestTorchrunLink(LinkConformance):
    pass
