"""The backend `spark` does what every backend has to, in a notebook's session on two executors.

`JUPYTER_DIST_SPARK=connect` has it do so by way of Spark Connect on a standalone cluster. The test suite has
time for one of them: what differs there is in tests/test_spark.py.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import spark_rig

from jupyter_dist.backends.on_spark import notebook_session
from jupyter_dist.conformance import BackendConformance, Target
from jupyter_dist.record.reader import start_ticks

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.skipif(spark_rig.missing() is not None, reason=str(spark_rig.missing())),
]


@pytest.fixture(scope="module")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with contextlib.ExitStack() as stack:
        flags: dict[str, Any] = {}
        if os.environ.get("JUPYTER_DIST_SPARK") == "connect":
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


class TestSpark(BackendConformance):
    pass
