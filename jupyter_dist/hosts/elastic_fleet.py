"""Hosts of an elastic run. They join and leave during the run, and any host may fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..folder import RunFolder
from ..job import Job
from .fleet import Fleet
from .host import Host
from .links.link import Reach
from .settings import HostSettings

__all__ = ["ElasticFleet", "ElasticHost"]


class ElasticHost(Host):
    """A host of an elastic run. After a lost connection it receives its ranks' notices again."""

    _notices: Mapping[str, str] = {}

    def tell(self, path: str, text: str) -> None:
        """Replace a small file on the host. `path`: relative to the run's folder."""
        self._notices = {**self._notices, path: text}
        self.link.send({"do": "tell", "path": path, "text": text})

    def end(self, ids: Sequence[str], *, kill: bool) -> None:
        """Signal some of the host's processes. The request is lost if the connection is down."""
        self.link.send({"do": "signal", "kill": kill, "only": list(ids)})

    def _resend(self, known: set[str]) -> None:
        for path, text in self._notices.items():
            self.link.send({"do": "tell", "path": path, "text": text})
        super()._resend(known)


class ElasticFleet(Fleet):
    """All hosts that a run has had. Not thread-safe."""

    def __init__(
        self, job: Job, folder: RunFolder, settings: HostSettings, reach: Reach | None = None
    ) -> None:
        super().__init__(job, folder, (), settings, reach)
        self._members: list[ElasticHost] = []

    @property
    def members(self) -> Sequence[ElasticHost]:
        """Return the hosts in the order in which they were added."""
        return self._members

    def add(self, name: str, slots: int, *, ports: int = 1, resume: bool = False) -> None:
        """Begin to set up another host. `resume`: connect to the agent that already runs there."""
        self._put(len(self._hosts), name, slots)
        self._open(self._hosts[-1], ports, resume=resume)

    def again(self, old: Host, *, ports: int = 1) -> None:
        """Begin to set up a failed or lost host again."""
        old.close()
        self._put(old.node, old.name, old.slots)
        self._open(self._hosts[old.node], ports, resume=False)

    def renew(self) -> None:
        """Do nothing. The elastic run itself replaces hosts, and it does so at any time."""

    def give_up(self, gone: Mapping[str, str]) -> None:
        """Give up the hosts that were added. Some hosts may have ended before they were added."""
        there = {host.name for host in self._hosts}
        super().give_up({name: why for name, why in gone.items() if name in there})

    def _put(self, node: int, name: str, slots: int) -> None:
        made = ElasticHost(
            name, node, slots, self._job, self._settings, self._reach, self._files, self._arrivals
        )
        self._hosts[node:] = [made, *self._hosts[node + 1 :]]
        self._members[node:] = [made, *self._members[node + 1 :]]

    @staticmethod
    def _open(host: Host, ports: int, *, resume: bool) -> None:
        if ports:
            host.ask_for_ports(ports)
        host.open(resume=resume)

    def _judge_failures(self) -> None:
        """Do nothing. An elastic run continues without a failed host."""
