"""The tests of a group (of pytest-xdist) run in one process: they share what is slow to start.

With pytest 9.2 and pytest-xdist 3.8 they did not, and nothing said so.
"""

from __future__ import annotations

import os

import pytest


@pytest.mark.xdist_group("its own")
def test_a_test_is_known_with_its_group(request: pytest.FixtureRequest) -> None:
    """By that the process that gives tests to others tells which belong together."""
    if "PYTEST_XDIST_WORKER" in os.environ and request.config.getvalue("loadgroup"):
        assert request.node.nodeid.endswith("@its own")
