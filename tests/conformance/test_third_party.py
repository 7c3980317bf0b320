"""A backend that another package brings does what every backend has to, and is found like our own."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from inspect import get_annotations
from pathlib import Path

import pytest

from jupyter_dist import backends
from jupyter_dist.conformance import BackendConformance, Target

# Holds the module and its dist-info, as site-packages would.
INSTALLED = Path(__file__).parents[1] / "rigs" / "packages" / "nice_backend"


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(INSTALLED))
        patch.setenv("PYTHONPATH", str(INSTALLED), prepend=os.pathsep)  # for the supervisor
        backends._table.cache_clear()
        yield Target("nice", np=3, flags={"niceness": 7}, startup_s=1.0)
    # The other tests' table has no such backend.
    backends._table.cache_clear()


class TestThirdParty(BackendConformance):
    def test_its_package_is_named_where_it_cannot_be_loaded(self, target: Target) -> None:
        assert backends.install_hint("nice") == "pip install --upgrade nice-backend"


def test_the_documentation_names_what_there_is() -> None:
    text = (Path(__file__).parents[2] / "docs" / "backends.md").read_text()
    tables = [
        re.findall(r"^\| `([\w.]+)", table, re.MULTILINE)
        for table in re.split(r"^\|(?:---\|)+$", text, flags=re.MULTILINE)[1:]
    ]
    members, more, capabilities, variables, fields = (set(names) for names in tables[:5])
    assert members == {name for name in dir(backends.Backend) if not name.startswith("_")} | set(
        get_annotations(backends.Backend)
    )
    of_options = {"meant_by", "named_by", "no_session", "instead_of"}
    of_backends = {f"extensions.{field.name}" for field in dataclasses.fields(backends.Extensions)}
    of_search = {f"extensions.search.{field.name}" for field in dataclasses.fields(backends.PlatformSearch)}
    assert more == of_backends | of_search | {f"options.{name}" for name in of_options}
    assert all(hasattr(backends.Options, name) for name in of_options)
    assert capabilities == {field.name for field in dataclasses.fields(backends.Capabilities)}
    assert fields == {field.name for field in dataclasses.fields(Target)}
    assert {"RANK", "MASTER_ADDR", "JUPYTER_DIST_RUN"} < variables
    sample = INSTALLED / "nice_backend-1.0.dist-info" / "entry_points.txt"
    assert 'nice = "nice_backend:Nice"' in text
    assert "nice = nice_backend:Nice" in sample.read_text()
