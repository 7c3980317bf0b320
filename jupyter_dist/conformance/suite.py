"""The suite as classes. They have all its tests for one target and one folder of runs, or a part of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .declarations import Declared
from .failed_runs import Failed, Raised
from .kept_ranks import Kept
from .run_control import Runs
from .stopped_runs import Ended, Stopped
from .successful_runs import Good, Worked
from .target import Target

__all__ = [
    "BackendConformance",
    "DeclaredConformance",
    "LinkConformance",
    "PlatformConformance",
    "SessionConformance",
]


class _Suite:
    @pytest.fixture(scope="class")
    @classmethod
    def runs(cls, target: Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
        runs = Runs(target, tmp_path_factory.mktemp(f"conformance-{target.backend}"))
        yield runs
        runs.close()


class DeclaredConformance(_Suite, Declared):
    """Tests of what a backend declares. No run is started."""


class PlatformConformance(_Suite, Stopped, Raised, Good):
    """Tests of what each platform must do itself: successful, failed and stopped runs."""


class LinkConformance(_Suite, Ended, Failed, Worked):
    """Tests of what depends on the link to the ranks rather than on what starts them.

    The ranks are killed, exit, ignore SIGTERM or restart. The supervisor is killed. Data is large, paths are
    odd.
    """


class SessionConformance(_Suite, Kept):
    """Tests of sessions, for a backend that declares `sessions`."""


class BackendConformance(LinkConformance, PlatformConformance, DeclaredConformance):
    """All tests except those of sessions.

    Subclass it as `TestMine`, and provide a fixture `target` of module or session scope.

    Tests share a run if they only read its results. At the end of the class, no process of a run may be left
    on this machine.
    """
