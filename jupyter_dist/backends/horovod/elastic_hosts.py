"""Elastic runs of horovodrun over changing hosts. Each host is set up before horovodrun may use it.

This module and the discovery script of horovodrun (host_discovery.py) share two files of the attempt's
folder:

- `wanted.json` has the discovered hosts and their slots.
- `ready.json` has the usable hosts, each with its generation. A host that returns after a loss has a new
  generation. Its earlier ranks and their files then belong to no current rank.

`starts.json` has the command of a rank on each host, for horovodrun (worker/launchers/fast_horovodrun.py).
This machine may be one of the hosts, under any name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...errors import DistError
from ...folder import RunFolder, make_private, write_json
from ...hosts.fleet import Fleet, FleetPoll
from ...hosts.host import Host
from ...hosts.openssh import LOCAL
from ...hosts.start import Start
from ...job import Job, Poll, RankState, State
from ...worker.launchers.horovodrun_rank import GPUS
from ..launchers.local_launcher import LocalLauncher
from ..launchers.per_host_launcher import environment_there
from ..ranks.local_gpus import gpu_wish
from .host_discovery import is_local
from .options import HorovodOptions, interfaces

__all__ = ["ElasticLauncher"]

_AWAY_S = 10.0
"""Seconds of silence after which a host is removed. A connection may fail for a moment."""
_RETRY_S = 15.0
_LOOK_EVERY_S = 1.0
_ASK_EVERY_S = 0.5
_TIMEOUT_S = 600.0
"""Seconds: horovodrun's own limit for the smallest number of hosts."""
_FLUSH_S = 20.0


class ElasticLauncher:
    """The hosts of an elastic run, its local horovodrun, and its remote ranks. Used like `LocalLauncher`.

    `look`: the command that writes `wanted.json`. `launch`: starts horovodrun. Its arguments are this object
    as the `Reach` of the ranks, the attempt, and this machine's address for the hosts.
    """

    def __init__(
        self,
        job: Job,
        folder: RunFolder,
        options: HorovodOptions,
        *,
        look: Callable[[Path], Sequence[str]],
        launch: Callable[[ElasticLauncher, int, str], LocalLauncher],
    ) -> None:
        self._job, self._folder, self._options = job, folder, options
        self._look, self._launch = look, launch
        self._fleet = Fleet(job, folder, (), options.settings(), elastic=True)
        self._generation: dict[str, int] = {}
        self._retry_at: dict[str, float] = {}
        self._ask_at: dict[str, float] = {}
        self._names: dict[str, str] = {}
        """The host for each name: this machine has many names."""
        self._starts: dict[str, str] = {}
        self._address: str | None = None
        self._reset(0)

    def _reset(self, attempt: int) -> None:
        self._attempt = attempt
        self._place = self._folder.attempt(attempt)
        self._launched: LocalLauncher | None = None
        self._prepared: set[str] = set()
        self._ready: dict[str, int] = {}
        self._offered: dict[str, int] = {}
        self._meeting: tuple[str, int] | None = None
        self._trouble: str | None = None
        self._stopping = False
        self._began = time.monotonic()
        self._looking: subprocess.Popen[bytes] | None = None
        self._looked = 0.0
        self._flushing: tuple[str, ...] | None = None

    def submit(self, attempt: int) -> dict[str, Any]:
        """Begin to discover hosts. `poll` continues with them."""
        self._reset(attempt)
        make_private(self._place)
        write_json(self._place / "ready.json", {})
        return {}

    def poll(self) -> Poll:
        state = self._fleet.poll()
        if not self._stopping:
            self._tend()
        if self._launched is not None:
            poll = self._launched.poll()
            pids = (*poll.pids, *state.pids) if poll.pids else ()
            return dataclasses.replace(poll, pids=pids, detail=poll.detail or self._detail(state))
        if self._stopping:
            return Poll(State.STOPPED, RankState.all(self._job.world_size, State.STOPPED), pids=state.pids)
        if self._trouble is None:
            self._look_again()
            self._try_launch()
        if self._trouble is not None:
            return Poll(
                State.FAILED, RankState.all(self._job.world_size, State.STOPPED), detail=self._trouble
            )
        return Poll(
            State.PENDING,
            RankState.all(self._job.world_size),
            pids=state.pids,
            detail=self._detail(state),
        )

    def _tend(self) -> None:
        """Advance every host, and write the ready ones for the discovery script."""
        wanted: dict[str, int] = {}
        for name, slots in self._wanted().items():
            if name not in self._names:
                self._names[name] = LOCAL if is_local(name) else name
            wanted[self._names[name]] = wanted.get(self._names[name], 0) + slots
        known = {host.name for host in self._fleet.members}
        for name, slots in wanted.items():
            if name not in known:
                self._fleet.add(name, slots)
        ready = {}
        for host in list(self._fleet.members):
            if host.failed or host.lost:
                self._renew(host, host.name in wanted)
            elif host.away is not None:
                if host.name in self._ready and time.time() - host.away < _AWAY_S:
                    ready[host.name] = self._ready[host.name]
            elif host.name in self._ready:
                ready[host.name] = self._ready[host.name]
            elif host.settled and self._is_prepared(host, wanted.get(host.name, host.slots)):
                generation = self._generation.get(host.name, -1) + 1
                ready[host.name] = self._generation[host.name] = generation
        self._ready = ready
        offered = {name: ready[host] for name, host in self._names.items() if host in ready}
        if offered != self._offered:
            self._offered = offered
            stages = {host.name: host.facts.stage for host in self._fleet.members if host.facts is not None}
            self._starts |= {name: os.path.join(stages[self._names[name]], "start") for name in offered}
            write_json(self._place / "starts.json", self._starts)
            write_json(self._place / "ready.json", offered)

    def _wanted(self) -> dict[str, int]:
        try:
            found: dict[str, int] = json.loads((self._place / "wanted.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return found

    def _renew(self, host: Host, wanted: bool) -> None:
        now = time.monotonic()
        if now < self._retry_at.setdefault(host.name, now + _RETRY_S) or not wanted:
            return
        del self._retry_at[host.name]
        self._prepared.discard(host.name)
        self._fleet.again(host)

    def _is_prepared(self, host: Host, slots: int) -> bool:
        """Return whether the host can start ranks. Prepares the host if not."""
        if host.name in self._prepared:
            return True
        assert host.facts is not None
        if not self._has_gpus(host, slots):
            return False
        address = self._own_address() if host.name == LOCAL else host.facts.address or host.facts.hostname
        if address is not None:
            self._prepared.add(host.name)
            self._fleet.prepare({host.name: self._environment(host, slots, address)})
        return False

    def _has_gpus(self, host: Host, slots: int) -> bool:
        """Return whether the host's agent has taken the GPUs for its slots.

        If it cannot, the host has failed.
        """
        assert host.facts is not None
        wish = gpu_wish(self._options, slots, self._job) if host.facts.gpus else None
        if wish is None:
            return True
        told = host.facts.leased
        if told is not None and not told["why"]:
            return True
        if told is not None and not self._options.wait_for_gpus:
            host.failed = str(told["why"])
            return False
        if time.monotonic() >= self._ask_at.get(host.name, 0.0):
            self._ask_at[host.name] = time.monotonic() + _ASK_EVERY_S
            host.lease({"for": wish.to_json(), "wait": self._options.wait_for_gpus})
        return False

    def _environment(self, host: Host, slots: int, address: str) -> dict[str, str]:
        """Return the variables of the ranks on a host."""
        facts = host.facts
        assert facts is not None
        if self._meeting is None:
            self._meeting = address, self._fleet.ports(host.name)[0]
        env = environment_there("horovod", self._job, self._attempt, facts, slots, self._options, address)
        env |= {"MASTER_ADDR": self._meeting[0], "MASTER_PORT": str(self._meeting[1])}
        env |= interfaces(self._options)
        env = {name: value for name, value in env.items() if name not in self._job.env_names}
        env["JUPYTER_DIST_NODE"] = str(host.node)
        if facts.leased is not None:
            gpus = facts.leased["gpus"]
            share = max(1, len(gpus) // slots)
            parts = [gpus[at : at + share] for at in range(0, share * slots, share)]
            env[GPUS] = ";".join(",".join(part) for part in parts if part)
        return env

    def _own_address(self) -> str | None:
        """Return this machine's address for the hosts. None while a host may still report it."""
        others = [host for host in self._fleet.members if host.name != LOCAL]
        if self._address is None:
            self._address = _address_of(self._options.network_interfaces)
        if self._address is None:
            told = next((host.facts.client for host in others if host.facts and host.facts.client), None)
            if told is not None or not any(host.facts is None and not host.failed for host in others):
                self._address = told or _outward_address()
        return self._address

    def _look_again(self) -> None:
        """Run the discovery until horovodrun does it."""
        now = time.monotonic()
        if self._looking is None:
            if now - self._looked > _LOOK_EVERY_S:
                self._looking = subprocess.Popen(
                    self._look(self._place), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
                )
        elif self._looking.poll() is not None:
            self._looking, self._looked = None, now

    def _try_launch(self) -> None:
        address = self._own_address()
        if self._ready and address is not None:
            try:
                self._launched = self._launch(self, self._attempt, address)
            except DistError as error:
                self._trouble = str(error)
            self._stop_looking()
            return
        hosts = self._fleet.members
        hopeless = (
            bool(hosts) and all(host.failed for host in hosts) and not self._options.host_discovery_script
        )
        limit_s = self._options.elastic_timeout or _TIMEOUT_S
        if hopeless or time.monotonic() - self._began > limit_s:
            told = (
                "; ".join(self._failures()) or f"no host was found within {limit_s:g} s (--elastic-timeout)"
            )
            self._trouble = f"{told}. Nothing was started."

    def _stop_looking(self) -> None:
        if self._looking is not None:
            self._looking.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._looking.wait(2)
            self._looking = None

    def _failures(self) -> list[str]:
        return [
            f"host {host.name}: {host.failed or 'it was lost: ' + str(host.lost)}"
            for host in self._fleet.members
            if host.failed or host.lost
        ]

    def _detail(self, state: FleetPoll) -> str | None:
        return "; ".join([*self._failures(), *filter(None, [state.detail])]) or None

    def signal(
        self, ranks: Sequence[RankState] | None = None, *, kill: bool, interrupt: bool = False
    ) -> bool:
        """Stop the run. As the `Reach` of its ranks: stop them, wherever they are."""
        if ranks is not None:
            self._fleet.stop(kill=kill, interrupt=interrupt)
            return True
        self._stopping = True
        # Without usable hosts, horovodrun does not replace the stopped ranks.
        with contextlib.suppress(OSError):
            write_json(self._place / "ready.json", {})
        if self._launched is not None:
            self._launched.signal(kill=kill, interrupt=interrupt)
        return True

    def stacks(self, ranks: Sequence[RankState] | None = None) -> None:
        self._fleet.stacks()

    def gone(self, rank: RankState) -> bool:
        hosts = [host for host in self._fleet.members if host.facts and host.facts.hostname == rank.host]
        return bool(hosts) and all(host.lost or host.failed for host in hosts)

    def settled(self, ranks: Sequence[RankState], waited_s: float) -> bool:
        """Return whether all output has arrived: an agent reports a process's end after its output."""
        if self._flushing is None:
            there = [host for host in self._fleet.members if host.settled and host.away is None]
            self._flushing = tuple(host.name for host in there)
            self._fleet.start(
                self._attempt, [Start(name, ("/bin/sh", "-c", ":"), {}) for name in self._flushing]
            )
            return not self._flushing
        over = {process.host for process in self._fleet.poll().processes if process.over}
        return over.issuperset(self._flushing) or waited_s > _FLUSH_S

    def release(self) -> str | None:
        self._stop_looking()
        if self._launched is not None:
            self._launched.release()
        return self._fleet.release()


def _address_of(interfaces: Sequence[str]) -> str | None:
    """Return the address of the first of these interfaces that this machine has."""
    there = importlib.import_module("psutil").net_if_addrs() if interfaces else {}
    found = [about for name in interfaces for about in there.get(name, ())]
    return next((about.address for about in found if about.family == socket.AF_INET), None)


def _outward_address() -> str:
    """Return the address at which other machines would find this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # this sends nothing
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
