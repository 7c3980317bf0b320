"""The backend `torchrun` does what every backend has to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_dist.conformance import LinkConformance, PlatformConformance, Target
from tests.rigs.warm_ranks import warm_starts

pytestmark = pytest.mark.needs("torch")


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with warm_starts():
        yield Target("torchrun", startup_s=10.0, cold=False)


class TestTorchrunPlatform(PlatformConformance):
    pass


class TestTorchrunLink(LinkConformance):
    pass
