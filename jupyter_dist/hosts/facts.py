"""What is known of a host, and of a process on it."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .openssh import LOCAL

__all__ = ["HostFacts", "HostProcess", "host_facts"]


@dataclass(frozen=True)
class HostFacts:
    """What a host's agent tells of it, and what the driver found out."""

    name: str
    """As the user calls it."""
    node: int
    slots: int
    hostname: str
    """As it calls itself."""
    address: str | None
    """As other hosts see it; None for this machine, unless an interface was chosen."""
    client: str | None
    """The address of the machine that ssh came from: this one's, as that host sees it."""
    interface: str | None
    """The network interface that has the address."""
    python: str
    version: str
    cores: int
    gpus: tuple[str, ...]
    stage: str
    """The folder that is the run's there; `run` in it is laid out as the run's folder here."""
    home: str
    free_disk: int
    machine: str
    """The same for two hosts that are one machine under two names."""
    leased: Mapping[str, Any] | None = None
    """What the agent has said of the GPUs that it was to take (agent/host_gpus.py); None: nothing yet."""
    clock_offset_s: float = 0.0
    """What to add to its clock to have this machine's."""

    @property
    def start(self) -> str:
        """A script that starts a rank there, or the argv it is given, once `Fleet.prepare` was called."""
        return os.path.join(os.path.dirname(self.stage), "start")


def host_facts(
    name: str, node: int, slots: int, told: Mapping[str, Any], interface: str | None = None
) -> HostFacts:
    """What an agent has told (worker/host/machine.py). `interface`: the names of those by which the other
    hosts reach it, with commas, of which the first that it has counts.

    Raises LookupError, with what to tell the user, where it has none of them.
    """
    interfaces: Mapping[str, list[str]] = told["interfaces"]
    # A host that ssh did not come to: not this machine, unless that is its name.
    address = told["address"] or (None if name == LOCAL else told.get("route"))
    if interface is not None:
        wanted = [each.strip() for each in interface.split(",")]
        found = [interfaces[each] for each in wanted if interfaces.get(each)]
        if not found:
            has = ", ".join(f"{each} ({held[0]})" for each, held in interfaces.items() if held)
            raise LookupError(f"it has no network interface {interface!r} with an address; it has {has}")
        address = found[0][0]
    return HostFacts(
        name=name,
        node=node,
        slots=slots,
        hostname=str(told["hostname"]),
        address=address,
        client=told["client"],
        interface=next((each for each, held in interfaces.items() if address in held), None),
        python=str(told["python"]),
        version=str(told["version"]),
        cores=int(told["cores"]),
        gpus=tuple(map(str, told["gpus"])),
        stage=str(told["stage"]),
        home=str(told["home"]),
        free_disk=int(told["free_disk"]),
        machine=str(told["machine"]),
    )


@dataclass(frozen=True)
class HostProcess:
    """A process on a host: a rank, or a launcher (`rank` None). Times are in this machine's clock."""

    id: str
    host: str
    rank: int | None
    attempt: int
    pid: int | None = None
    started: float | None = None
    asked: bool = False
    """Whether its host was asked to start it, and has not said that it did."""
    ended: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    peak_memory_bytes: int | None = None
    told: bool = False
    """Whether it was told to end before it ended."""
    place_gone: bool = False
    """Whether its agent has told it to, because what held our place on the host was gone."""
    free_disk: int | None = None
    """Bytes that were free in its stage folder when it had ended."""
    error: str | None = None
    """Why it could not be started."""
    lost: str | None = None
    """Why nothing more will be heard of it."""

    @property
    def over(self) -> bool:
        return self.ended is not None

    def as_told(self, told: Mapping[str, Any], clock_offset_s: float) -> HostProcess:
        """The process as its agent tells of it. `clock_offset_s`: to be added to the host's times."""
        changes: dict[str, Any] = {
            "pid": told["pid"] or None,
            "started": float(told["started"]) + clock_offset_s,
            "asked": False,
        }
        end = told["end"] if told["is"] == "ended" else None
        if end is not None and end.get("lost"):
            changes["lost"] = f"the agent on host {self.host} was ended, and its processes with it"
            changes["ended"] = time.time()
        elif end is not None:
            changes["ended"] = float(end["ended"]) + clock_offset_s
            for name in ("exit_code", "signal", "peak_memory_bytes", "error"):
                changes[name] = end.get(name)
            changes["told"] = bool(end.get("told"))
            changes["place_gone"] = bool(end.get("place_gone"))
            changes["free_disk"] = told.get("free_disk")
        return dataclasses.replace(self, **changes)
