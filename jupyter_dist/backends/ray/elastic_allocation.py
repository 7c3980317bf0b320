"""Allocations of an elastic run: one per rank, requested from Ray while more ranks are wanted.

Each allocation is a placement group with one bundle and one node actor. It counts as a host with one slot.
Ray would move a lost node's bundles to another node, without our actor there. Therefore a lost allocation is
released, and another one is requested.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import LaunchError
from .actor_transport import ActorTransport, ending_of
from .connection import check_listening
from .node_watch import NodeWatch
from .placement_group import PlacementGroup, Site

__all__ = ["PerRankAllocations"]

_LOOK_EVERY_S = 0.5
_LACK_EVERY_S = 2.0


class _At(enum.Enum):
    ASKED = enum.auto()
    STARTING = enum.auto()
    DIALLING = enum.auto()
    OPEN = enum.auto()
    GONE = enum.auto()


@dataclass
class _RankAllocation:
    group: PlacementGroup
    at: _At = _At.ASKED
    site: Site | None = None
    transport: ActorTransport | None = None
    watch: NodeWatch | None = None
    why: str = ""
    """Why the allocation ended."""


class PerRankAllocations:
    """The allocations of one run.

    `turn` calls Ray, which answers in milliseconds, and raises what Ray raises.
    """

    def __init__(
        self,
        called: str,
        wanted: int,
        bundle: Mapping[str, float],
        gpus: float,
        environment: Mapping[str, str],
        address: str,
        connect: Callable[[], None],
    ) -> None:
        """`called`: prefix of the groups' names. `wanted`: the largest number of allocations. `connect`:
        makes this process a driver of that cluster, unless it is one.
        """
        self._called, self._wanted, self._bundle = called, wanted, dict(bundle)
        self._gpus, self._environment, self._address = gpus, dict(environment), address
        self._connect = connect
        self._allocations: list[_RankAllocation] = []
        self._looked = self._asked_why = 0.0
        self.lacks: str | None = None
        """Why Ray cannot place another allocation."""

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {"at": r.at.name, "why": r.why, "site": None if r.site is None else dataclasses.asdict(r.site)}
            for r in self._allocations
        ]

    def recall(self, told: Sequence[Mapping[str, Any]]) -> None:
        """Restore what `to_json` of another process has recorded."""
        self._connect()
        for number, about in enumerate(told):
            allocation = _RankAllocation(self._group(number), _At[about["at"]], why=about["why"])
            if about["site"] is not None:
                allocation.site = Site(**about["site"])
            self._allocations.append(allocation)
            if allocation.at in (_At.DIALLING, _At.OPEN):
                self._open(allocation)
            elif allocation.at is _At.STARTING:
                allocation.at = _At.ASKED  # whatever was started is found by its name

    def hosts(self) -> list[dict[str, Any]]:
        """Return the hosts that have a connection."""
        return [{"name": r.site.name, "slots": 1} for r in self._allocations if r.site and r.at is _At.OPEN]

    def gone(self) -> dict[str, str]:
        """Return the hosts that have ended, each with the reason."""
        return {r.site.name: r.why for r in self._allocations if r.site and r.at is _At.GONE}

    def trouble(self) -> str | None:
        """Return what currently hinders the run."""
        open_ = [r for r in self._allocations if r.at is _At.OPEN and r.watch is not None]
        told = next((r.watch.trouble for r in open_ if r.watch is not None and r.watch.trouble), None)
        return told or self.lacks

    def take(self, host: str) -> Any:
        """Return the pipe to one host. Raises LinkError."""
        allocation = next(r for r in self._allocations if r.site is not None and r.site.name == host)
        assert allocation.transport is not None
        return allocation.transport.take()

    def turn(self) -> bool:
        """Advance every allocation. Returns whether the record has changed."""
        now = time.monotonic()
        before = [allocation.at for allocation in self._allocations]
        for allocation in self._allocations:
            if (
                allocation.at is _At.DIALLING
                and allocation.transport is not None
                and allocation.transport.ready
            ):
                allocation.at = _At.OPEN
            elif allocation.at is _At.OPEN and allocation.watch is not None and allocation.watch.gone:
                self._give_up(allocation, *allocation.watch.gone.values())
        if now - self._looked >= _LOOK_EVERY_S:
            self._looked = now
            check_listening(self._address)  # Ray's client would block for a minute, and end this process
            self._connect()
            for number, allocation in enumerate(self._allocations):
                self._advance(number, allocation)
            while sum(allocation.at is not _At.GONE for allocation in self._allocations) < self._wanted:
                self._allocations.append(_RankAllocation(self._group(len(self._allocations))))
                self._allocations[-1].group.ask(self._bundle, "PACK")
            self._look_for_lack(now)
        return before != [allocation.at for allocation in self._allocations]

    def _group(self, number: int) -> PlacementGroup:
        return PlacementGroup(f"{self._called}-{number}", 1)

    def _advance(self, number: int, allocation: _RankAllocation) -> None:
        if allocation.at is _At.ASKED:
            allocation.group.ask(self._bundle, "PACK")
            try:
                there = allocation.group.is_there()
            except LaunchError:
                return  # somebody has removed it since: the next turn requests it again
            if there:
                (site,) = allocation.group.sites()
                # One node may have several allocations, and another one after a loss.
                allocation.site = dataclasses.replace(site, name=f"{site.name}.{number}")
                allocation.group.begin([allocation.site], self._gpus, self._environment)
                allocation.at = _At.STARTING
        elif allocation.at is _At.STARTING:
            try:
                if allocation.group.started() is None:
                    self._open(allocation)
                    allocation.at = _At.DIALLING
            except Exception as error:
                self._give_up(allocation, f"Ray could not start our actor: {ending_of(error)}")
        elif allocation.at is _At.DIALLING and allocation.transport is not None:
            allocation.transport.dial()
            if allocation.watch is not None and allocation.watch.gone:
                self._give_up(allocation, *allocation.watch.gone.values())

    def _open(self, allocation: _RankAllocation) -> None:
        assert allocation.site is not None

        def group() -> PlacementGroup:
            self._connect()
            return allocation.group

        site = allocation.site
        allocation.transport = ActorTransport(site.name, lambda: group().actor(site))
        allocation.transport.dial()
        allocation.watch = NodeWatch(self._address, group, [site])

    def _give_up(self, allocation: _RankAllocation, why: str) -> None:
        allocation.at, allocation.why = _At.GONE, why
        self._close(allocation)
        with contextlib.suppress(Exception):  # the group ends with its last agent in any case
            allocation.group.remove()

    @staticmethod
    def _close(allocation: _RankAllocation) -> None:
        if allocation.transport is not None:
            allocation.transport.close()
        if allocation.watch is not None:
            allocation.watch.close()

    def _look_for_lack(self, now: float) -> None:
        waiting = [allocation for allocation in self._allocations if allocation.at is _At.ASKED]
        if not waiting:
            self.lacks = None
        elif now - self._asked_why > _LACK_EVERY_S:
            self._asked_why = now
            self.lacks = waiting[0].group.lacks(self._bundle, "PACK", self._address)

    def release(self) -> None:
        """Release all allocations. Never raises."""
        for allocation in self._allocations:
            self._close(allocation)
            with contextlib.suppress(Exception):
                check_listening(self._address)
                self._connect()
                allocation.group.remove()
        self._allocations = []
