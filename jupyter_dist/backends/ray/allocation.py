"""The allocation of a run on a Ray cluster: requested, awaited, connected, watched and released.

The attempt's folder records the allocation, before the request and again when it is ready. Another of our
processes finds the allocation by that record. Ray itself moves the bundles of a lost node elsewhere.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Sequence
from typing import Any

from ...errors import DistError, LaunchError
from ...folder import RunFolder, write_json
from ...job import Job
from ...worker import layout
from ..hosted import Hosting, by_pipe
from ..interface import Handle
from .actor_transport import ActorTransport, ending_of
from .connection import check_listening, connect
from .node_watch import NodeWatch
from .options import RayOptions
from .placement_group import PlacementGroup, Site

__all__ = ["RayAllocation"]

_LOOK_EVERY_S = 1.0
_WHY_S = 5.0
"""Time in seconds after the ranks' end within which the reason for a node's loss may appear."""
_RECORD = layout.hidden("ray.json")


class RayAllocation:
    """The allocation of one attempt, or of several successive attempts. Not for several threads.

    Methods may block on Ray, for some seconds if this process is not connected yet. They raise Unreachable if
    Ray does not answer.
    """

    def __init__(self, handle: Handle, job: Job, folder: RunFolder) -> None:
        self.handle, self._job, self._folder = handle, job, folder
        self._asked = RayOptions(**job.options)
        self._group: PlacementGroup | None = None
        self._sites: list[Site] = []
        self._wires: dict[str, ActorTransport] = {}
        self._watch: NodeWatch | None = None
        self._told, self._looked = "Ray is asked for room", time.monotonic()

    @classmethod
    def recall(cls, folder: RunFolder, job: Job, attempt: int) -> RayAllocation | None:
        """Return the recorded allocation of an attempt, or None if Ray was not asked for one."""
        try:
            known = json.loads((folder.attempt(attempt) / _RECORD).read_bytes())
        except FileNotFoundError:
            return None
        allocation = cls(known["handle"], job, folder)
        if known["sites"]:
            allocation._settle([Site(**site) for site in known["sites"]])
        return allocation

    @property
    def connected(self) -> bool:
        """Whether the allocation is ready and has our node actors.

        Afterwards only agents and driver communicate.
        """
        return self._watch is not None

    @property
    def gone(self) -> dict[str, str]:
        """Return the hosts that have ended, each with the reason."""
        return {} if self._watch is None else dict(self._watch.gone)

    @property
    def trouble(self) -> str | None:
        """Return what currently hinders the run, for the user."""
        return None if self._watch is None else self._watch.trouble

    def whole(self) -> bool:
        """Return whether another attempt can use the allocation."""
        if not self.connected or self.gone:
            return False
        try:
            for site in self._sites:
                self._ray().actor(site)
        except (DistError, ValueError):
            return False
        return True

    def write_down(self, attempt: int) -> None:
        """Record the allocation as the allocation of an attempt."""
        self.handle = {**self.handle, "attempt": attempt}
        path = self._folder.attempt(attempt)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        sites = [dataclasses.asdict(site) for site in self._sites] if self.connected else []
        write_json(path / _RECORD, {"handle": self.handle, "sites": sites})

    def ask(self) -> None:
        """Request the allocation from Ray, unless that was done before."""
        self._ray().ask(self._bundle, self._asked.placement_strategy.value)

    def asked(self) -> bool:
        """Return whether Ray has the allocation, as far as the driver can find out."""
        return self.connected or self._ray().exists()

    def wait(self, seconds: float) -> str | None:
        """Advance the allocation as far as possible without blocking.

        Returns what is still missing, or None if the allocation is connected. Raises LaunchError.
        """
        if not self._sites:
            self._look_for_room()
        elif not self._wires:
            self._look_at_footholds()
        elif all(transport.ready for transport in self._wires.values()):
            self._settle(self._sites)
            return None
        else:
            for transport in self._wires.values():
                transport.dial()
            hindered = [
                f"host {name}: {transport.why}" for name, transport in self._wires.items() if transport.why
            ]
            self._told = "; ".join(hindered) or "the nodes are being connected to"
        return self._told

    def _look_for_room(self) -> None:
        group = self._ray()
        if group.is_there():
            self._sites = group.sites()
            group.begin(self._sites, self.handle["gpus"], self._asked.environment())
        elif time.monotonic() - self._looked > _LOOK_EVERY_S:
            strategy = self._asked.placement_strategy.value
            self._told = group.lacks(self._bundle, strategy, self.handle["address"])
            self._looked = time.monotonic()

    def _look_at_footholds(self) -> None:
        group = self._ray()
        try:
            waits = group.started()
        except Exception as error:
            group.remove()
            raise LaunchError(f"Ray could not start our actor: {ending_of(error)}") from error
        if waits is None:
            self._connect()
        else:
            self._told = f"Ray is starting our actor on {waits}"

    def _connect(self) -> None:
        def node_actor(site: Site) -> Any:
            return self._ray().actor(site)

        self._wires = {
            site.name: ActorTransport(site.name, functools.partial(node_actor, site)) for site in self._sites
        }
        for transport in self._wires.values():
            transport.dial()

    def _settle(self, sites: Sequence[Site]) -> None:
        self._sites = list(sites)
        if not self._wires:
            self._connect()
        self._watch = NodeWatch(self.handle["address"], self._ray, sites)

    def hosting(self) -> Hosting:
        """Return the allocation's hosts for our agents. The allocation must be connected."""
        return Hosting(
            hosts=[{"name": site.name, "slots": site.slots} for site in self._sites],
            settings=self._asked.agent_settings(),
            reach=by_pipe(lambda host: self._wires[host].take()),
            wanted=self._asked.wanted(self.handle["gpus"]),
            trouble=lambda: self.trouble,
            gone=lambda: self.gone,
            why_s=_WHY_S,
        )

    def leave(self) -> None:
        """Stop watching the allocation."""
        for transport in self._wires.values():
            transport.close()
        if self._watch is not None:
            self._watch.close()

    def free(self) -> None:
        """Stop watching the allocation, and release it with everything in it. Repeatable."""
        self.leave()
        check_listening(self.handle["address"])  # Ray's client would block for a minute, and end this process
        self._ray().remove()

    def _ray(self) -> PlacementGroup:
        """Return Ray's view of the allocation, after connecting to it."""
        connect(self.handle["address"], self._asked.read_runtime_env)
        if self._group is None:
            self._group = PlacementGroup(self.handle["group"], self._job.world_size)
        return self._group

    @property
    def _bundle(self) -> dict[str, float]:
        return self._asked.bundle(self.handle["gpus"])
