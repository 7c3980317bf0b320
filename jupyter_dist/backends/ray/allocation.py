"""A run's room on a Ray: asked for, waited for, connected to, watched and given back.

What is known of it is written down in the attempt's folder, before it is asked for and once it is there:
another process of ours finds it by that. Ray itself moves the bundles of a lost node elsewhere.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Sequence
from pathlib import Path
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
"""So long after its ranks' end it may become known why a node was lost."""
_RECORD = layout.hidden("ray.json")


class RayAllocation:
    """The room of one attempt, or of several that follow each other in it. Not for several threads.

    What its methods ask of Ray they may wait for, some seconds where this process has no connection yet; they
    raise Unreachable where Ray does not answer.
    """

    def __init__(self, handle: Handle, job: Job) -> None:
        self.handle, self._job = handle, job
        self._asked = RayOptions(**job.options)
        self._group: PlacementGroup | None = None
        self._sites: list[Site] = []
        self._wires: dict[str, ActorTransport] = {}
        self._watch: NodeWatch | None = None
        self._told, self._looked = "Ray is asked for room", time.monotonic()

    @classmethod
    def recall(cls, folder: RunFolder, job: Job, attempt: int) -> RayAllocation | None:
        """What is known of an attempt's room; None where Ray was not asked for one."""
        try:
            known = json.loads((folder.attempt(attempt) / _RECORD).read_bytes())
        except FileNotFoundError:
            return None
        allocation = cls(known["handle"], job)
        if known["sites"]:
            allocation._settle([Site(**site) for site in known["sites"]])
        return allocation

    @property
    def connected(self) -> bool:
        """Whether it is there, and our footholds in it: what follows is between the agents and us."""
        return self._watch is not None

    @property
    def gone(self) -> dict[str, str]:
        """The hosts that have ended, and why."""
        return {} if self._watch is None else dict(self._watch.gone)

    @property
    def trouble(self) -> str | None:
        """What hinders us at the moment, for the user."""
        return None if self._watch is None else self._watch.trouble

    def whole(self) -> bool:
        """Whether another attempt can be made in it."""
        if not self.connected or self.gone:
            return False
        try:
            for site in self._sites:
                self._ray().actor(site)
        except (DistError, ValueError):
            return False
        return True

    def write_down(self, attempt: int) -> None:
        """Have it known, as that of an attempt."""
        self.handle = {**self.handle, "attempt": attempt}
        path = RunFolder(Path(self.handle["folder"])).attempt(attempt)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        sites = [dataclasses.asdict(site) for site in self._sites] if self.connected else []
        write_json(path / _RECORD, {"handle": self.handle, "sites": sites})

    def ask(self) -> None:
        """Ask Ray for it, where that was not done before."""
        self._ray().ask(self._bundle, self._asked.placement_strategy.value)

    def asked(self) -> bool:
        """Whether Ray knows of it, as far as we know."""
        return self.connected or self._ray().exists()

    def wait(self, seconds: float) -> str | None:
        """Go on with what can go on; what is waited for, or None: it is settled. Waits for nothing itself.
        Raises LaunchError."""
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
        """The hosts that it is, for our agents; it is settled."""
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
        """Look after it no longer."""
        for transport in self._wires.values():
            transport.close()
        if self._watch is not None:
            self._watch.close()

    def free(self) -> None:
        """Leave it, and have Ray take it back with all that is still there. Repeatable."""
        self.leave()
        check_listening(self.handle["address"])  # Ray's client would wait for a minute, and end this process
        self._ray().remove()

    def _ray(self) -> PlacementGroup:
        """Ray's view of it, connected to."""
        connect(self.handle["address"], self._asked.read_runtime_env)
        if self._group is None:
            self._group = PlacementGroup(self.handle["group"], self._job.world_size)
        return self._group

    @property
    def _bundle(self) -> dict[str, float]:
        return self._asked.bundle(self.handle["gpus"])
