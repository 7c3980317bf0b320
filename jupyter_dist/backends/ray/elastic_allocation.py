"""Room for the ranks of an elastic run, asked of a Ray for one rank at a time, as long as more are wanted.

Each is a placement group with one bundle and one foothold in it, and counts as a host with one slot. Ray
itself would move a lost node's bundles to another node, where nobody waits for them: a room that is lost is
given back, and another one asked for.
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
from .actor_transport import Wire, ending_of
from .connection import check_listening
from .node_watch import Watch
from .placement_group import Group, Site

__all__ = ["SingleRooms"]

_LOOK_EVERY_S = 0.5
_LACK_EVERY_S = 2.0


class _At(enum.Enum):
    ASKED = enum.auto()
    STARTING = enum.auto()
    DIALLING = enum.auto()
    OPEN = enum.auto()
    GONE = enum.auto()


@dataclass
class _Room:
    group: Group
    at: _At = _At.ASKED
    site: Site | None = None
    wire: Wire | None = None
    watch: Watch | None = None
    why: str = ""
    """What it ended of."""


class SingleRooms:
    """Those of one run. `turn` calls Ray, which answers in milliseconds, or raises what Ray raises."""

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
        """`called`: what the groups' names begin with. `wanted`: how many rooms there are to be at most.
        `connect`: makes this process a driver of that Ray, where it is none."""
        self._called, self._wanted, self._bundle = called, wanted, dict(bundle)
        self._gpus, self._environment, self._address = gpus, dict(environment), address
        self._connect = connect
        self._rooms: list[_Room] = []
        self._looked = self._asked_why = 0.0
        self.lacks: str | None = None
        """What Ray has no room for."""

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {"at": r.at.name, "why": r.why, "site": None if r.site is None else dataclasses.asdict(r.site)}
            for r in self._rooms
        ]

    def recall(self, told: Sequence[Mapping[str, Any]]) -> None:
        """Go on with what `to_json` has said, in another process."""
        self._connect()
        for number, about in enumerate(told):
            room = _Room(self._group(number), _At[about["at"]], why=about["why"])
            if about["site"] is not None:
                room.site = Site(**about["site"])
            self._rooms.append(room)
            if room.at in (_At.DIALLING, _At.OPEN):
                self._open(room)
            elif room.at is _At.STARTING:
                room.at = _At.ASKED  # what was started is found by its name

    def hosts(self) -> list[dict[str, Any]]:
        """Those that can be talked to."""
        return [{"name": r.site.name, "slots": 1} for r in self._rooms if r.site and r.at is _At.OPEN]

    def gone(self) -> dict[str, str]:
        """Those that have ended, and why."""
        return {r.site.name: r.why for r in self._rooms if r.site and r.at is _At.GONE}

    def trouble(self) -> str | None:
        """What hinders us at the moment."""
        open_ = [r for r in self._rooms if r.at is _At.OPEN and r.watch is not None]
        told = next((r.watch.trouble for r in open_ if r.watch is not None and r.watch.trouble), None)
        return told or self.lacks

    def take(self, host: str) -> Any:
        """The pipe to one of them. Raises LinkError."""
        room = next(r for r in self._rooms if r.site is not None and r.site.name == host)
        assert room.wire is not None
        return room.wire.take()

    def turn(self) -> bool:
        """Go on with every room; returns whether something is to be written down."""
        now = time.monotonic()
        before = [room.at for room in self._rooms]
        for room in self._rooms:
            if room.at is _At.DIALLING and room.wire is not None and room.wire.ready:
                room.at = _At.OPEN
            elif room.at is _At.OPEN and room.watch is not None and room.watch.gone:
                self._give_up(room, *room.watch.gone.values())
        if now - self._looked >= _LOOK_EVERY_S:
            self._looked = now
            check_listening(self._address)  # Ray's client would wait for a minute, and end this process
            self._connect()
            for number, room in enumerate(self._rooms):
                self._advance(number, room)
            while sum(room.at is not _At.GONE for room in self._rooms) < self._wanted:
                self._rooms.append(_Room(self._group(len(self._rooms))))
                self._rooms[-1].group.ask(self._bundle, "PACK")
            self._look_for_lack(now)
        return before != [room.at for room in self._rooms]

    def _group(self, number: int) -> Group:
        return Group(f"{self._called}-{number}", 1)

    def _advance(self, number: int, room: _Room) -> None:
        if room.at is _At.ASKED:
            room.group.ask(self._bundle, "PACK")
            try:
                there = room.group.is_there()
            except LaunchError:
                return  # removed by somebody since: the next look asks for it again
            if there:
                (site,) = room.group.sites()
                # One node may have several, and again another one after it was lost.
                room.site = dataclasses.replace(site, name=f"{site.name}.{number}")
                room.group.begin([room.site], self._gpus, self._environment)
                room.at = _At.STARTING
        elif room.at is _At.STARTING:
            try:
                if room.group.started() is None:
                    self._open(room)
                    room.at = _At.DIALLING
            except Exception as error:
                self._give_up(room, f"Ray could not start our actor: {ending_of(error)}")
        elif room.at is _At.DIALLING and room.wire is not None:
            room.wire.dial()
            if room.watch is not None and room.watch.gone:
                self._give_up(room, *room.watch.gone.values())

    def _open(self, room: _Room) -> None:
        assert room.site is not None

        def group() -> Group:
            self._connect()
            return room.group

        site = room.site
        room.wire = Wire(site.name, lambda: group().actor(site))
        room.wire.dial()
        room.watch = Watch(self._address, group, [site])

    def _give_up(self, room: _Room, why: str) -> None:
        room.at, room.why = _At.GONE, why
        self._close(room)
        with contextlib.suppress(Exception):  # it goes with its last agent in any case
            room.group.remove()

    @staticmethod
    def _close(room: _Room) -> None:
        if room.wire is not None:
            room.wire.close()
        if room.watch is not None:
            room.watch.close()

    def _look_for_lack(self, now: float) -> None:
        waiting = [room for room in self._rooms if room.at is _At.ASKED]
        if not waiting:
            self.lacks = None
        elif now - self._asked_why > _LACK_EVERY_S:
            self._asked_why = now
            self.lacks = waiting[0].group.lacks(self._bundle, "PACK", self._address)

    def release(self) -> None:
        """Give all rooms back. Never raises."""
        for room in self._rooms:
            self._close(room)
            with contextlib.suppress(Exception):
                check_listening(self._address)
                self._connect()
                room.group.remove()
        self._rooms = []
