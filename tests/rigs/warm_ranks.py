"""Ranks that are forks of one template for all tests of a module, as those of a notebook are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_dist.launch import template

__all__ = ["preloaded", "warm"]


@pytest.fixture(scope="module")
def preloaded(request: pytest.FixtureRequest) -> Iterator[None]:
    """A template for the tests of a module, which has imported the libraries in its PRELOADED once."""
    template.prepare(request.module.PRELOADED)
    yield
    template.close()


@pytest.fixture
def warm(preloaded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs start warm unless they ask for `cold`, although a test is no notebook."""
    monkeypatch.setattr(template, "wanted", lambda: True)
