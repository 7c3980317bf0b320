"""The suite as classes: all its tests over one target and one folder of runs, or one part of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .declarations import Declared
from .failed_runs import Failed, Raised
from .run_control import Runs
from .stopped_runs import Ended, Stopped
from .successful_runs import Good, Worked
from .target import Target

__all__ = ["BackendConformance", "DeclaredConformance", "LinkConformance", "PlatformConformance"]


class _Suite:
    @pytest.fixture(scope="class")
    @classmethod
    def runs(cls, target: Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
        runs = Runs(target, tmp_path_factory.mktemp(f"conformance-{target.backend}"))
        yield runs
        runs.close()


class DeclaredConformance(_Suite, Declared):
    """What a backend says of itself. No run is started."""


class PlatformConformance(_Suite, Stopped, Raised, Good):
    """What each platform has to do itself: a run that ends well, one that raises, and one that is stopped."""


class LinkConformance(_Suite, Ended, Failed, Worked):
    """What hangs on the link to the ranks rather than on what starts them.

    Ranks that are killed, exit, ignore SIGTERM or start again; a killed supervisor; much data; odd paths."""


class BackendConformance(LinkConformance, PlatformConformance, DeclaredConformance):
    """All of them. Subclass it as `TestMine`, and give it a fixture `target` of module or session scope.

    Tests share runs where they only read what a run left. At the end of the class no process of
    a run may be left on this machine.
    """
