"""Ranks that are forks of one template for all tests of a module, as those of a notebook are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from jupyter_dist.launch import template

__all__ = ["end_template", "preloaded", "warm", "warm_starts"]


@pytest.fixture(scope="module")
def preloaded(request: pytest.FixtureRequest) -> Iterator[None]:
    """A template for the tests of a module, which has imported the libraries in its PRELOADED once.

    Modules without PRELOADED that follow each other share one: see `end_template`.
    """
    libraries = getattr(request.module, "PRELOADED", ())
    template.prepare(libraries)
    yield
    if libraries:
        template.close()


def end_template(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the template after a test that has used it, unless the next test uses it as well."""
    used, wanted = ("preloaded" in getattr(each, "fixturenames", ()) for each in (item, nextitem))
    if used and not wanted:
        template.close()


@contextlib.contextmanager
def warm_starts() -> Iterator[None]:
    """Runs start warm meanwhile. Those whose backend starts the ranks have a forked supervisor."""
    with pytest.MonkeyPatch.context() as patch:
        # Otherwise only a notebook has a template.
        patch.setattr(template, "wanted", lambda: True)
        yield
        template.close()


@pytest.fixture
def warm(preloaded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs start warm unless they ask for `cold`, although a test is no notebook."""
    monkeypatch.setattr(template, "wanted", lambda: True)
