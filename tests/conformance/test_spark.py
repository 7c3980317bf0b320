"""The backend `spark` does what every backend has to, on two executors.

Once they are those of the notebook's session, once those of a standalone cluster, by way of Spark Connect.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.backends.spark import notebook_session
from jupyter_dist.conformance import LinkConformance, PlatformConformance, SessionConformance, Target
from jupyter_dist.record.reader import start_ticks
from tests.rigs import spark_rig

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.skipif(spark_rig.missing() is not None, reason=str(spark_rig.missing())),
]


@pytest.fixture(scope="module", params=["session", "connect"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with contextlib.ExitStack() as stack:
        flags: dict[str, Any] = {}
        if request.param == "connect":
            flags["master"] = stack.enter_context(_connect(tmp_path_factory.mktemp("spark")))
        else:
            request.getfixturevalue("spark_context")
            # The suite starts runs in other processes, too: one session is enough for all.
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            for name, value in notebook_session.inherited().items():
                patch.setenv(name, value)
        # Workers and executors are processes of this machine.
        yield Target("spark", flags=flags, startup_s=15.0, lives=lambda _, pid: start_ticks(pid) is not None)


@contextlib.contextmanager
def _connect(folder: Path) -> Iterator[str]:
    with spark_rig.standalone(folder) as master, spark_rig.connect(folder, master) as url:
        yield url


class TestSparkPlatform(PlatformConformance):
    pass


class TestSparkLink(LinkConformance):
    pass


class TestSparkSession(SessionConformance):
    pass
