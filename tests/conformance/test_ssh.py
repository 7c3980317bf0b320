"""The backend `ssh` does what every backend has to, on three hosts with sshd."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_dist.conformance import LinkConformance, PlatformConformance, SessionConformance, Target
from tests.rigs.hosts import Hosts, missing
from tests.rigs.warm_ranks import warm_starts


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    lacking = missing()
    if lacking:
        pytest.skip(lacking)
    with warm_starts(), Hosts(tmp_path_factory.mktemp("hosts") / "hosts") as hosts:

        def lives(host: str, pid: int) -> bool:
            return any(process.own_pid == pid for process in hosts.pids(host))

        flags = {"hosts": "h1:2,h2:1,h3:1", "ssh_config": str(hosts.ssh_config)}
        yield Target("ssh", np=4, flags=flags, startup_s=8.0, cold=False, lives=lives)


class TestSshPlatform(PlatformConformance):
    pass


class TestSshLink(LinkConformance):
    pass


class TestSshSession(SessionConformance):
    pass
