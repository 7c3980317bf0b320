"""Hosts that come and go while a run goes on: added one by one, and any of them may fail."""

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
    """One of them. What its ranks are told while they run is kept for the time when it is there again."""

    _notices: Mapping[str, str] = {}

    def tell(self, path: str, text: str) -> None:
        """Have a small file written there, in place of what it held. `path`: below the run's folder."""
        self._notices = {**self._notices, path: text}
        self.link.send({"do": "tell", "path": path, "text": text})

    def end(self, ids: Sequence[str], *, kill: bool) -> None:
        """Ask some of its processes to end. Not said again where the host does not hear it."""
        self.link.send({"do": "signal", "kill": kill, "only": list(ids)})

    def _resend(self, known: set[str]) -> None:
        for path, text in self._notices.items():
            self.link.send({"do": "tell", "path": path, "text": text})
        super()._resend(known)


class ElasticFleet(Fleet):
    """All hosts that there were. Not for several threads."""

    def __init__(
        self, job: Job, folder: RunFolder, settings: HostSettings, reach: Reach | None = None
    ) -> None:
        super().__init__(job, folder, (), settings, reach)
        self._members: list[ElasticHost] = []

    @property
    def members(self) -> Sequence[ElasticHost]:
        """In the order in which they were added."""
        return self._members

    def add(self, name: str, slots: int, *, ports: int = 1, resume: bool = False) -> None:
        """Begin to set another host up, or, with `resume`, to find the agent that is there."""
        self._put(len(self._hosts), name, slots)
        self._open(self._hosts[-1], ports, resume=resume)

    def again(self, old: Host, *, ports: int = 1) -> None:
        """Begin anew with a host that has failed or was lost."""
        old.close()
        self._put(old.node, old.name, old.slots)
        self._open(self._hosts[old.node], ports, resume=False)

    def renew(self) -> None:
        """Whoever looks after the hosts does so at any time."""

    def give_up(self, gone: Mapping[str, str]) -> None:
        """Those that are known, as some may have ended before they were added."""
        there = {host.name for host in self._hosts}
        super().give_up({name: why for name, why in gone.items() if name in there})

    def _put(self, node: int, name: str, slots: int) -> None:
        made = ElasticHost(
            name, node, slots, self._run, self._settings, self._reach, self._files, self._arrivals
        )
        self._hosts[node:] = [made, *self._hosts[node + 1 :]]
        self._members[node:] = [made, *self._members[node + 1 :]]

    @staticmethod
    def _open(host: Host, ports: int, *, resume: bool) -> None:
        if ports:
            host.ask_for_ports(ports)
        host.open(resume=resume)

    def _judge_failures(self) -> None:
        """The run goes on without it."""
