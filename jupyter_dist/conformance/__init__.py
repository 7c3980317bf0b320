"""What every backend has to do, as tests that a backend joins with one fixture. Needs pytest.

    # test_mine.py
    import pytest
    from jupyter_dist.conformance import BackendConformance, Target

    @pytest.fixture(scope="module")
    def target() -> Target:
        return Target("mine")

    class TestMine(BackendConformance):
        pass

`BackendConformance` is three classes in one: `DeclaredConformance`, which starts nothing, and
`PlatformConformance` and `LinkConformance`, which start real runs on `target.np` ranks. What only some
backends can is asked of those whose `Capabilities` declare it; of the others it is asked that they refuse it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

# Before they are imported, so that a failing assertion shows its values.
pytest.register_assert_rewrite(
    *(f"{__name__}.{path.stem}" for path in Path(__file__).parent.glob("[!_]*.py")),
)

from .suite import (  # noqa: E402
    BackendConformance,
    DeclaredConformance,
    LinkConformance,
    PlatformConformance,
)
from .target import Target  # noqa: E402

__all__ = [
    "BackendConformance",
    "DeclaredConformance",
    "LinkConformance",
    "PlatformConformance",
    "Target",
]
