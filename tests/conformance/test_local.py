"""The backend `local` does what every backend has to: as forks of the template, and from scratch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_dist.conformance import LinkConformance, PlatformConformance, SessionConformance, Target
from jupyter_dist.conformance.successful_runs import GoodRun
from tests.rigs.warm_ranks import warm_starts


@pytest.fixture(scope="module", params=["cold", "warm"])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    with warm_starts():
        yield Target("local", startup_s=1.0, cold=request.param == "cold")


class TestLocalPlatform(PlatformConformance):
    def test_the_run_folder_is_private(self, good: GoodRun) -> None:
        """The same code makes it for every backend."""
        places = [good.run.folder.path, *good.run.folder.path.rglob("*")]
        assert [place for place in places if place.stat().st_mode & 0o077] == []


class TestLocalLink(LinkConformance):
    pass


class TestLocalSession(SessionConformance):
    pass
