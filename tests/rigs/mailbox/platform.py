"""The sample backend `tents`: two hosts without a common disk, reached through a store with every fault."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist import backends
from tests.rigs.hosts import Hosts, missing
from tests.rigs.mailbox.faulty_store import FaultyStore

__all__ = ["Camp", "camp"]

INSTALLED = Path(__file__).parents[1] / "packages" / "mailbox_backend"


@dataclass(frozen=True)
class Camp:
    """What there is."""

    hosts: Hosts
    store: FaultyStore
    flags: dict[str, Any]
    """For runs there, by field name."""

    def lives(self, host: str, pid: int) -> bool:
        """Whether a process of a host still runs, by the number that it has there."""
        return any(process.own_pid == pid for process in self.hosts.pids(host))

    def left(self) -> list[str]:
        """What still runs on the hosts."""
        return [" ".join(process.argv)[:80] for name in self.hosts.names for process in self.hosts.pids(name)]


@contextlib.contextmanager
def camp(folder: Path) -> Iterator[Camp]:
    """Install the backend, for this process and the supervisors, and have its platform and its store run."""
    lacking = missing()
    if lacking:
        pytest.skip(lacking)
    with (
        pytest.MonkeyPatch.context() as patch,
        FaultyStore() as store,
        Hosts(folder / "hosts", ("h1", "h2")) as hosts,
    ):
        patch.syspath_prepend(str(INSTALLED))
        patch.setenv("PYTHONPATH", str(INSTALLED), prepend=os.pathsep)
        backends._table.cache_clear()
        patch.setenv("AWS_ENDPOINT_URL", f"http://{hosts.driver_address}:{store.port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "tents")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "conformance")
        platform = folder / "platform.json"
        platform.write_text(json.dumps({name: hosts.inside(name, []) for name in hosts.names}))
        flags = {"platform": str(platform), "store": "s3://mail/runs", "slots": 2, "python": sys.executable}
        yield Camp(hosts, store, flags)
    backends._table.cache_clear()
