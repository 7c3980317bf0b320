"""A stranger's backend whose hosts are reached only through a store that has every fault."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty_store import FaultyStore
from hosts import Hosts, missing

from jupyter_dist import backends
from jupyter_dist.conformance import BackendConformance, Target

INSTALLED = Path(__file__).parents[1] / "sample_mailbox_backend"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    lacking = missing()
    if lacking:
        pytest.skip(lacking)
    folder = tmp_path_factory.mktemp("tents")
    with (
        pytest.MonkeyPatch.context() as patch,
        FaultyStore() as store,
        Hosts(folder / "hosts", ("h1", "h2"), home_mb=512) as hosts,
    ):
        patch.syspath_prepend(str(INSTALLED))
        patch.setenv("PYTHONPATH", str(INSTALLED), prepend=os.pathsep)  # for the supervisor
        backends._table.cache_clear()
        patch.setenv("AWS_ENDPOINT_URL", f"http://{hosts.driver_address}:{store.port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "tents")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "conformance")

        def lives(host: str, pid: int) -> bool:
            return any(process.own_pid == pid for process in hosts.pids(host))

        platform = folder / "platform.json"
        platform.write_text(json.dumps({name: hosts.inside(name, []) for name in hosts.names}))
        flags = {"platform": str(platform), "store": "s3://mail/runs", "slots": 2, "python": sys.executable}
        yield Target("tents", np=3, flags=flags, startup_s=12.0, lives=lives)
    backends._table.cache_clear()


class TestMailbox(BackendConformance):
    pass
