"""The suite as one class: all its tests over one target and one folder of runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .declared import Declared
from .ended import Ended
from .failed import Failed
from .runs import Runs
from .target import Target
from .worked import Worked

__all__ = ["BackendConformance"]


class BackendConformance(Ended, Failed, Worked, Declared):
    """Subclass it as `TestMine`, and give it a fixture `target` of module or session scope.

    Tests share runs where they only read what a run left. At the end of the class no process of
    a run may be left on this machine.
    """

    @pytest.fixture(scope="class")
    @classmethod
    def runs(cls, target: Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
        runs = Runs(target, tmp_path_factory.mktemp(f"conformance-{target.backend}"))
        yield runs
        runs.close()
