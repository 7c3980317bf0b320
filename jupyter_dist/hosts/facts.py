"""Facts about a host, and about a process on it."""

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
    """Facts about a host from its agent and from the driver."""

    name: str
    """The host's name as the user wrote it."""
    node: int
    slots: int
    hostname: str
    """The host's own name for itself."""
    address: str | None
    """The address for other hosts; None for this machine, unless the user chose an interface."""
    client: str | None
    """This machine's address as the host sees it: the source of the ssh connection."""
    interface: str | None
    """The network interface that has the address."""
    python: str
    version: str
    cores: int
    gpus: tuple[str, ...]
    stage: str
    """The run's stage folder on the host. Its folder `run` has the layout of the run folder here."""
    home: str
    free_disk: int
    machine: str
    """An identifier of the machine. It is equal if two host names mean the same machine."""
    leased: Mapping[str, Any] | None = None
    """The agent's answer about the leased GPUs (agent/host_gpus.py); None before an answer."""
    clock_offset_s: float = 0.0
    """Seconds to add to the host's times for times by this machine's clock."""

    @property
    def start(self) -> str:
        """Return the path of the host's start script, which `Fleet.prepare` writes.

        The script starts a rank, or the argv of its arguments.
        """
        return os.path.join(os.path.dirname(self.stage), "start")


def host_facts(
    name: str, node: int, slots: int, told: Mapping[str, Any], interface: str | None = None
) -> HostFacts:
    """Return the facts in an agent's report (worker/host/machine.py).

    `interface`: comma-separated names of network interfaces for connections between hosts. The first name
    that exists on the host counts.
    Raises LookupError, with a message for the user, if the host has none of them.
    """
    interfaces: Mapping[str, list[str]] = told["interfaces"]
    # A host without an ssh connection is another machine, unless its name is localhost.
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
    """A process on a host: a rank, or a launcher (`rank` None). Times are by this machine's clock."""

    id: str
    host: str
    rank: int | None
    attempt: int
    pid: int | None = None
    started: float | None = None
    asked: bool = False
    """Whether the driver asked the host to start it, and the host has not confirmed the start."""
    ended: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    peak_memory_bytes: int | None = None
    told: bool = False
    """Whether the agent signalled the process before it ended."""
    place_gone: bool = False
    """Whether the agent signalled it because the process that reserved the host for the run was gone."""
    free_disk: int | None = None
    """Free bytes in the stage folder when the process had ended."""
    error: str | None = None
    """Why the host could not start the process."""
    lost: str | None = None
    """Why the driver will receive nothing more about the process."""

    @property
    def over(self) -> bool:
        return self.ended is not None

    def as_told(self, told: Mapping[str, Any], clock_offset_s: float) -> HostProcess:
        """Return the process after a report of its agent. `clock_offset_s`: see `HostFacts`."""
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
