"""The backend `databricks` does what every backend has to, on real Spark behind an emulated workspace."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_dist.conformance import LinkConformance, PlatformConformance, SessionConformance, Target
from tests.rigs.databricks.workspace import DatabricksWorkspace

pytestmark = [
    pytest.mark.needs("databricks.sdk", "pyspark"),
    pytest.mark.xdist_group("databricks"),  # they share a Spark
]


@pytest.fixture(scope="module")
def target(databricks_workspace: DatabricksWorkspace) -> Iterator[Target]:
    databricks_workspace.heal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATABRICKS_HOST", databricks_workspace.url)
        patch.setenv("DATABRICKS_TOKEN", databricks_workspace.token)
        flags = {"cluster_id": "c1", "volume": "/Volumes/main/default/jd"}
        yield Target("databricks", np=3, flags=flags, startup_s=15.0, lives=databricks_workspace.lives)


class TestDatabricksPlatform(PlatformConformance):
    pass


class TestDatabricksLink(LinkConformance):
    pass


class TestDatabricksSession(SessionConformance):
    pass
