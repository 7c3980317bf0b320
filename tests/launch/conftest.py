"""A template process of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_dist.launch import template


@pytest.fixture
def own_template(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test starts without a template, in what looks like a notebook, and leaves none behind."""
    template.close()
    monkeypatch.setattr(template, "_poisoned", {})
    monkeypatch.setattr(template, "wanted", lambda: True)
    yield
    template.close()
