"""The hosts of an elastic run: set up when they join, removed when they fail, and set up again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import LaunchError
from ...hosts.fleet import Fleet
from ...hosts.host import Host
from ...job import Job
from ..ranks.local_gpus import gpu_wish
from ..ranks.placement import RankEnvironmentOptions, addresses

__all__ = ["HostPool", "name_of"]

_AWAY_S = 15.0
"""Seconds of silence after which a host is removed, if other hosts answer."""
_STALL_S = 3.0
"""Seconds without a poll of the hosts after which this machine may have been suspended."""
_RETRY_S = 15.0
_ASK_EVERY_S = 1.0
_FIRST_S = 10.0
"""Seconds that the first ready hosts wait for hosts named before them."""


def name_of(key: str) -> str:
    """Return the host's name, from its name and generation."""
    return key.rpartition("~")[0]


class HostPool:
    """The hosts. Not for several threads.

    A host that returns after a loss has another *generation*. Ranks may be left on it that nobody watches,
    and their files must not mix with those of new ranks.
    """

    def __init__(
        self,
        job: Job,
        fleet: Fleet,
        wanted: RankEnvironmentOptions,
        hosts: Callable[[], Sequence[Mapping[str, Any]]],
        gone: Callable[[], Mapping[str, str]],
    ) -> None:
        self._job, self._fleet, self._wanted = job, fleet, wanted
        self._hosts, self._gone = hosts, gone
        self._generation: dict[str, int] = {}
        self._usable: set[str] = set()
        self._retry_at: dict[str, float] = {}
        self._leased_at: dict[str, float] = {}
        self._resumed = False
        self._began = self._tended = time.monotonic()
        self._patient_until = 0.0

    def to_json(self) -> dict[str, Any]:
        hosts = [{"name": host.name, "slots": host.slots} for host in self._fleet.members]
        return {"generation": self._generation, "usable": sorted(self._usable), "hosts": hosts}

    def recall(self, told: Mapping[str, Any]) -> None:
        """Find the agents again that another supervisor has started on the hosts."""
        self._generation, self._usable, self._resumed = dict(told["generation"]), set(told["usable"]), True
        for host in told["hosts"]:
            self._fleet.add(host["name"], host["slots"], ports=0, resume=True)

    def tend(self) -> dict[str, int]:
        """Advance every host. Returns the slots of the usable hosts, by name and generation."""
        now = time.monotonic()
        if now - self._tended > _STALL_S:
            self._patient_until = now + _AWAY_S
        self._tended = now
        gone = self._gone()
        self._fleet.give_up(gone)
        wanted = {str(host["name"]): int(host["slots"]) for host in self._hosts()}
        known = {host.name for host in self._fleet.members}
        for name, slots in wanted.items():
            if name not in known and name not in gone:
                self._fleet.add(name, slots, ports=0)
        if not self._generation and not self._all_ready(len(wanted)):
            return {}
        usable = {}
        for host in list(self._fleet.members):
            if self._is_out(host, host.name in wanted and host.name not in gone):
                self._drop(host)
            elif host.name in self._usable or self._take_up(host):
                usable[f"{host.name}~{self._generation[host.name]}"] = host.slots
        self._resumed = self._resumed and any(host.away is not None for host in self._fleet.members)
        return usable

    def _all_ready(self, wanted: int) -> bool:
        """Return whether ranks may start: the first ranks are assigned in the order of the hosts."""
        ready = [host for host in self._fleet.members if host.settled or host.failed]
        return len(ready) >= wanted or (bool(ready) and time.monotonic() - self._began > _FIRST_S)

    def _is_out(self, host: Host, wanted: bool) -> bool:
        """Return whether the host is unusable. A temporary failure is retried after a while."""
        if host.failed or host.lost:
            now = time.monotonic()
            if now >= self._retry_at.setdefault(host.name, now + _RETRY_S) and wanted and not host.final:
                del self._retry_at[host.name]
                self._fleet.again(host, ports=0)
            return True
        return not wanted or self._is_silent(host)

    def _is_silent(self, host: Host) -> bool:
        """Return whether the host counts as lost because it does not answer.

        If no host answers, the problem is on this machine: the ranks continue without a driver for the grace
        time.
        """
        if host.away is None or self._resumed or time.monotonic() < self._patient_until:
            return False
        answer = any(other.away is None for other in self._fleet.members if other.name in self._usable)
        return answer and time.time() - host.away > _AWAY_S

    def _take_up(self, host: Host) -> bool:
        """Return whether the host is usable from now on."""
        if host.away is not None or not host.settled or not self._has_gpus(host):
            return False
        if host.name in self._generation:
            host.signal(kill=True)
        self._generation[host.name] = self._generation.get(host.name, -1) + 1
        self._usable.add(host.name)
        return True

    def _drop(self, host: Host) -> None:
        if host.name in self._usable:
            self._usable.discard(host.name)
            host.signal(kill=True)

    def _has_gpus(self, host: Host) -> bool:
        """Return whether the host's agent has taken the GPUs for its slots.

        If it cannot, the host has failed.
        """
        assert host.facts is not None
        wish = gpu_wish(self._wanted, host.slots, self._job) if host.facts.gpus else None
        told = host.facts.leased
        if wish is None or (told is not None and not told["why"]):
            return True
        if told is not None and not self._wanted.wait_for_gpus:
            host.failed = str(told["why"])
        elif time.monotonic() >= self._leased_at.get(host.name, 0.0):
            self._leased_at[host.name] = time.monotonic() + _ASK_EVERY_S
            host.lease({"for": wish.to_json(), "wait": self._wanted.wait_for_gpus})
        return False

    def failures(self) -> list[str]:
        """Return a line for each host whose set-up failed.

        A lost host is reported with its ranks. The user cannot repair a host that is gone.
        """
        gone = self._gone()
        failed = [host for host in self._fleet.members if host.failed and host.name not in gone]
        return [f"host {host.name}: {host.failed}" for host in failed]

    def member(self, name: str) -> Host:
        return next(host for host in self._fleet.members if host.name == name)

    def address(self, name: str) -> str:
        """Return the host's address for all others, now and later.

        It is never 127.0.0.1, even for a single host.
        """
        facts = {host.name: host.facts for host in self._fleet.members if host.facts is not None}
        found = addresses({**facts, "": facts[name]})[name]
        if not found:
            raise LaunchError(f"host {name} has no address that others could reach")
        return found

    def left(self, lost: Sequence[str]) -> list[str]:
        """Return the addresses of these hosts, except those that a usable host has."""
        address = {host.name: host.facts.address for host in self._fleet.members if host.facts is not None}
        there = {address.get(name) for name in self._usable}
        return sorted({str(address[name]) for name in lost if name in address and address[name] not in there})
