"""The backend `ssh`: ranks on any hosts with an ssh login. The hosts need nothing but Python."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ...errors import InputError
from ...folder import RunFolder
from ...hosts import openssh
from ...job import Job, Poll
from ..hosted import Hosted, Hosting
from ..interface import Capabilities, Handle, Options
from ..ranks.placement import environments, places
from ..shared_options.hosts import check_hosts
from .options import SshOptions

__all__ = ["Ssh"]


class Ssh:
    """An agent on each host starts the ranks and forwards their output.

    It survives its driver for a while.
    """

    name: ClassVar[str] = "ssh"
    options: ClassVar[type[Options]] = SshOptions
    capabilities: ClassVar[Capabilities] = Capabilities(
        hosts=True, outlives=True, interrupts=True, sessions=True
    )
    poll_interval_s: ClassVar[float] = 0.05

    def __init__(self) -> None:
        self._hosted = Hosted(_hosting)

    def default_np(self) -> int:
        return 1

    def check(self, world_size: int, options: Mapping[str, Any]) -> list[str]:
        asked = SshOptions(**options)
        if not asked.hosts:
            raise InputError(
                "the backend 'ssh' needs hosts. Name them with -H node1:4,node2:4 (the number of "
                "workers on each host), or with --hostfile FILE"
            )
        check_hosts(asked)
        asked.check_roles(world_size)
        asked.check_elastic(world_size)
        slots = sum(int(host["slots"]) for host in asked.hosts)
        if world_size > slots:
            raise InputError(
                f"{world_size} workers need more slots than the {slots} of the hosts. Name more slots "
                "with -H, such as node1:8"
            )
        return []

    def detect(self) -> dict[str, Any]:
        version = openssh.version()
        return {} if version is None else {"OpenSSH": version.removeprefix("OpenSSH_").split()[0]}

    def request(self, job: Job, attempt: int = 0) -> dict[str, Any]:
        asked = SshOptions(**job.options)
        settings = asked.settings()
        where = places(job.world_size, asked.hosts)
        envs = environments(job, attempt, asked.wanted(), where, None, {})
        return {
            "hosts": [
                {**host, "argv": openssh.command(str(host["name"]), settings)[:-1]}
                for host in asked.hosts
                if any(place.host == host["name"] for place in where)
            ],
            "pythons": list(openssh.pythons(settings)),
            "argv": [settings.python or sys.executable, "-m", "jupyter_dist.worker"],
            "ranks": [
                {"rank": place.rank, "host": place.host, "env": env}
                for place, env in zip(where, envs, strict=True)
            ],
        }

    def submit(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        return self._hosted.submit(job, folder, attempt)

    def find(self, job: Job, folder: RunFolder, attempt: int) -> Handle | None:
        return self._hosted.find(job, folder, attempt)

    def poll(self, job: Job, folder: RunFolder, handle: Handle, cursor: Any) -> Poll:
        return self._hosted.poll(job, folder, handle, cursor)

    def stop(self, job: Job, folder: RunFolder, handle: Handle, *, kill: bool) -> None:
        self._hosted.stop(job, folder, handle, kill=kill)

    def ask(self, job: Job, folder: RunFolder, handle: Handle, rank: int | None, verb: str) -> None:
        self._hosted.ask(job, folder, handle, rank, verb)

    def exchange(
        self, job: Job, folder: RunFolder, handle: Handle, wishes: Sequence[Mapping[str, Any]], wait_s: float
    ) -> dict[str, Any]:
        return self._hosted.exchange(job, folder, handle, wishes, wait_s)

    def release(self, job: Job, folder: RunFolder, handle: Handle) -> str | None:
        return self._hosted.release(job, folder, handle)


def _hosting(job: Job, folder: RunFolder) -> Hosting:
    asked = SshOptions(**job.options)
    limits = asked.limits(job.world_size)
    return Hosting(asked.hosts, asked.settings(), wanted=asked.wanted(), elastic=limits)
