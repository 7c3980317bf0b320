"""Tests of everything that a backend must do. A backend joins them with one fixture. Needs pytest.

    # test_mine.py
    import pytest
    from jupyter_dist.conformance import BackendConformance, Target

    @pytest.fixture(scope="module")
    def target() -> Target:
        return Target("mine")

    class TestMine(BackendConformance):
        pass

`BackendConformance` is three classes in one. `DeclaredConformance` starts nothing. `PlatformConformance` and
`LinkConformance` start real runs on `target.np` ranks.
An optional ability is tested if the backend's `Capabilities` declare it. Otherwise a test checks that the
backend refuses it. A backend that declares `sessions` also joins `SessionConformance`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

# Registered before the modules are imported, so that a failing assertion shows its values.
pytest.register_assert_rewrite(
    *(f"{__name__}.{path.stem}" for path in Path(__file__).parent.glob("[!_]*.py")),
)

from .suite import (  # noqa: E402
    BackendConformance,
    DeclaredConformance,
    LinkConformance,
    PlatformConformance,
    SessionConformance,
)
from .target import Target  # noqa: E402

__all__ = [
    "BackendConformance",
    "DeclaredConformance",
    "LinkConformance",
    "PlatformConformance",
    "SessionConformance",
    "Target",
]
