"""The hosts of a run: set up together, given processes, followed through cuts, and cleaned in the end.

Nothing here blocks but `connect` and `release`. Over several hosts `launchers` use it as well: they have
processes started through it (`start`), or let their launcher call the script `HostFacts.start` on the
hosts by way of the ssh that `ssh_script` makes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import select
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import LaunchError
from ..folder import RunFolder, write_bytes, write_json
from ..job import Job
from ..worker import layout
from .arrivals import Arrivals
from .host import Host, HostFacts, HostProcess
from .host_messages import missing, out_of_space, progress, story, unreachable_pairs
from .links.link import Reach
from .links.ssh_transport import by_ssh
from .openssh import SshSettings, options
from .settings import HostSettings
from .staged_files import kept_checkpoints, shipped

__all__ = ["Fleet", "FleetPoll", "Start", "ssh_script"]

_STRAGGLERS_S = 12.0
"""When a host cannot be used, others get that long to show whether they can."""
_AWAY_SHOWN_S = 1.5
_KILL_AWAY_S = 3.0
"""After a kill, a host that is away is no longer waited for."""
_RELEASE_S = 5.0


@dataclass(frozen=True)
class Start:
    """One process to start on a host, with its working directory in the stage's `code`.

    `rank` None: a launcher, whose log comes as `attempts/A/launcher-HOST.log`. `env` is added to what a
    login there has.
    """

    host: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    rank: int | None = None
    fork: bool = False
    """Let a fork of the agent be the rank, in place of argv."""
    number: int = 0
    """How many processes were this rank before, in the same attempt."""


@dataclass(frozen=True)
class FleetPoll:
    """How the hosts and the processes of the newest attempt stand."""

    ready: bool
    """Whether processes can be started."""
    processes: tuple[HostProcess, ...]
    failed: str | None = None
    """Why the hosts cannot be used, by host; nothing was started then."""
    final: bool = False
    """Whether it makes no sense to set them up again: one of them has not the right Python, say."""
    away: tuple[str, ...] = ()
    """Hosts that do not answer at the moment."""
    detail: str | None = None
    pids: tuple[int, ...] = ()
    """Process groups on this machine: the connections."""


class Fleet:
    """All hosts of a run. Not for several threads."""

    def __init__(
        self,
        job: Job,
        folder: RunFolder,
        hosts: Sequence[Mapping[str, Any]],
        settings: HostSettings,
        reach: Reach | None = None,
    ) -> None:
        """`hosts`: [{"name": "h1", "slots": 4}, …]. `reach`: makes the links to them; None: by ssh, as
        `settings` (SshSettings then) say. Starts nothing."""
        if reach is None:
            assert isinstance(settings, SshSettings)
            reach = by_ssh(settings)
        self._reach = reach
        self._run, self._folder, self._settings = job.id, folder, settings
        self._files = [*shipped(folder), *kept_checkpoints(folder)]
        self._arrivals = Arrivals(folder)
        self._hosts = [
            self._host(str(host["name"]), node, int(host["slots"])) for node, host in enumerate(hosts)
        ]
        self._attempt = 0
        self._began = time.monotonic()
        self._first_failure: float | None = None
        self._failed: str | None = None
        self._killed_at: float | None = None
        self._explained: set[str] = set()
        self._meeting = self._meeting_place = ""

    def _host(self, name: str, node: int, slots: int) -> Host:
        return Host(name, node, slots, self._run, self._settings, self._reach, self._files, self._arrivals)

    def begin(self, *, resume: bool = False) -> None:
        """Connect to all hosts; `poll` tells when they are ready. `resume`: agents are there already."""
        self._began = time.monotonic()
        for host in self._hosts:
            host.open(resume=resume)

    def renew(self) -> None:
        """Set up anew the hosts that were given up, for another attempt: those that were lost, and all
        where some could not be set up, because nothing is left on the others then."""
        self._failed = self._first_failure = None
        sent = [file for file in self._files if file.modified is None]
        self._files = [*sent, *kept_checkpoints(self._folder)]
        for place, host in enumerate(self._hosts):
            host.settle()
            if host.lost or host.failed or host.released:
                host.close()
                self._hosts[place] = self._host(host.name, host.node, host.slots)
                self._hosts[place].open(resume=False)

    def connect(self) -> None:
        """`begin`, and wait until all hosts are ready.

        Raises LaunchError, naming each host that cannot be used, why, and the cure; nothing is left
        on the others then.
        """
        self.begin()
        while True:
            state = self.poll()
            if state.failed is not None:
                raise LaunchError(state.failed)
            if state.ready:
                return
            self.wait(0.1)

    def wait(self, seconds: float) -> None:
        """Sleep until something has come from a host, or the time is over."""
        poll = select.poll()
        for host in self._hosts:
            host.register(poll)
        poll.poll(seconds * 1000)

    def facts(self, host: str) -> HostFacts:
        """What is known of a host that was ready once."""
        facts = self._named(host).facts
        assert facts is not None, f"{host} was never ready"
        return facts

    def ports(self, host: str) -> tuple[int, ...]:
        """The free TCP ports that `ask_for_ports` has found."""
        return tuple(self._named(host).ports or ())

    def ask_for_ports(self, counts: Mapping[str, int]) -> None:
        """Look for free TCP ports on hosts; not ready until they are known."""
        for name, count in counts.items():
            self._named(name).ask_for_ports(count)

    def lease(self, wishes: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Have GPUs taken on hosts (None: given back), see `HostFacts.leased`; not ready until they are."""
        for name, wish in wishes.items():
            self._named(name).lease(wish)

    def find_ways(self, places: Mapping[str, tuple[str, int]], meeting: str) -> None:
        """Have all hosts try whether they reach each other, at an address and a port by name; not ready until
        they have. Which do not is in the polls' `detail`: what the ranks do may need no connection.
        `meeting`: the host of rank 0, where all meet."""
        for host in self._hosts:
            others = {name: place for name, place in places.items() if name != host.name}
            if others:
                host.find_ways(others)
        address, port = places[meeting]
        self._meeting, self._meeting_place = meeting, f"{meeting} at {address}, port {port}"

    def prepare(self, env: Mapping[str, Mapping[str, str]]) -> None:
        """Write the scripts `HostFacts.start` on hosts with these variables; not ready until they are."""
        for name, variables in env.items():
            self._named(name).prepare(variables)

    def start(self, attempt: int, starts: Sequence[Start]) -> None:
        """Start the processes of an attempt, in place of those of the one before."""
        self._attempt, self._killed_at = attempt, None
        for host in self._hosts:
            mine = [start for start in starts if start.host == host.name]
            processes = [
                HostProcess(_id(attempt, start), host.name, start.rank, attempt, asked=True) for start in mine
            ]
            wishes = [_wish(attempt, start) for start in mine]
            host.start(processes, wishes)

    def expect(self, attempt: int, starts: Sequence[Start]) -> None:
        """Know of what an earlier supervisor was about to start. A host that has not heard of it is asked
        now; without an argv, which not everybody knows, the process counts as lost there."""
        self._attempt = attempt
        for start in starts:
            process = HostProcess(_id(attempt, start), start.host, start.rank, attempt)
            self._named(start.host).expect(process, _wish(attempt, start) if start.argv else None)

    def poll(self) -> FleetPoll:
        """Go on with everything that can go on, and tell how it stands. Does not block."""
        for host in self._hosts:
            host.advance()
            self._end_unheard(host)
            self._explain(host)
        self._judge_failures()
        away = [host for host in self._hosts if host.away is not None and not host.lost]
        processes = tuple(
            process
            for host in self._hosts
            for process in host.processes.values()
            if process.attempt == self._attempt
        )
        return FleetPoll(
            ready=self._failed is None and all(host.settled for host in self._hosts),
            processes=processes,
            failed=self._failed,
            final=any(host.final for host in self._hosts),
            away=tuple(host.name for host in away),
            detail=self._detail(away),
            pids=tuple(host.link.pid for host in self._hosts if host.link.pid is not None),
        )

    def give_up(self, gone: Mapping[str, str]) -> None:
        """Some hosts have ended, by name and why: whoever gave them says so."""
        for name, why in gone.items():
            self._named(name).give_up(why)

    def stop(self, *, kill: bool) -> None:
        """SIGTERM to all processes; `kill`: SIGKILL to their groups. Hosts that are away hear of it later."""
        if kill:
            self._killed_at = self._killed_at or time.monotonic()
        for host in self._hosts:
            host.signal(kill=kill)

    def stacks(self) -> None:
        """Have every rank append its stacks to `stacks.txt`."""
        for host in self._hosts:
            host.stacks()

    def release(self) -> str | None:
        """End the agents, fetch the checkpoints and remove what is on the hosts. Never raises. Returns what
        had to stay there and where, for the user: this machine's disk was too full for it, say.

        Waits as long as checkpoints come, and some seconds for anything else. A host that is away is
        left to its agent, which ends itself when the time of grace is over; its files stay there then.
        """
        for host in self._hosts:
            host.release()
        while not all(host.released for host in self._hosts):
            for host in self._hosts:
                host.advance()
                # One whose link is down and that is not expected back was never set up.
                away_s = 0.0 if host.away is None else time.time() - host.away
                silent_s = max(time.monotonic() - host.heard, away_s)
                if silent_s > _RELEASE_S or not (host.link.up or host.away):
                    host.released = True
            self.wait(0.05)
        for host in self._hosts:
            host.close()
        return "; ".join(host.not_kept for host in self._hosts if host.not_kept is not None) or None

    def _named(self, name: str) -> Host:
        return next(host for host in self._hosts if host.name == name)

    def _end_unheard(self, host: Host) -> None:
        """What was to be killed on a host that is away is given up after a while; it is lost where the host
        is known to have gone."""
        if host.away is None or self._killed_at is None or time.monotonic() - self._killed_at < _KILL_AWAY_S:
            return
        host.settle()
        for process in list(host.processes.values()):
            if not process.over and process.attempt == self._attempt:
                host.processes[process.id] = dataclasses.replace(process, ended=time.time(), told=True)

    def _judge_failures(self) -> None:
        """Tell of all failing hosts at once, and leave nothing on the others."""
        failed = [host for host in self._hosts if host.failed]
        if not failed or self._failed is not None:
            return
        now = time.monotonic()
        self._first_failure = self._first_failure or now
        open_ = [host for host in self._hosts if not host.failed and not host.settled]
        if open_ and now - self._first_failure < _STRAGGLERS_S:
            return
        self._failed = story([(host.name, str(host.failed)) for host in failed], len(self._hosts))
        self.release()

    def _explain(self, host: Host) -> None:
        """Write down why ranks failed that could not do so themselves: not started, or no space left."""
        for process in host.processes.values():
            if process.rank is None or not process.over or process.id in self._explained:
                continue
            self._explained.add(process.id)
            why = f"on host {host.name}: {process.error}" if process.error else None
            if why is None and out_of_space(process) and not process.told and host.facts is not None:
                why = f"no space is left on host {host.name} in {host.facts.stage!r}"
            place = self._folder.rank(process.attempt, process.rank).error
            if why is None or place.exists():
                continue
            told: dict[str, Any] = {
                "rank": process.rank,
                "time": process.ended,
                "type": "OSError",
                "message": why,
                "text": "",
                "frames": [],
                "exit_code": process.exit_code,
            }
            # A full disk here as well leaves the exit code.
            with contextlib.suppress(OSError):
                write_json(place, told)

    def _detail(self, away: Sequence[Host]) -> str | None:
        now = time.time()
        parts = [
            f"host {host.name}: no space is left in {host.facts.stage!r}"
            for host in self._hosts
            if host.facts is not None and any(map(out_of_space, host.processes.values()))
        ]
        parts += dict.fromkeys(
            process.lost
            for host in self._hosts
            for process in host.processes.values()
            if process.lost and process.attempt == self._attempt
        )
        parts += unreachable_pairs(self._hosts, self._meeting, self._meeting_place)
        killed = self._killed_at is not None
        for host in away:
            if not host.is_gone and (killed or now - (host.away or now) >= _AWAY_SHOWN_S):
                parts.append(missing(host, self._attempt, self._settings.grace_s, killed=killed))
        if not parts and time.monotonic() - self._began > 1:
            return progress(self._hosts, self._settings.rsync)
        return "; ".join(parts) or None


def _wish(attempt: int, start: Start) -> dict[str, Any]:
    """As an agent is asked for it."""
    return {
        "id": _id(attempt, start),
        "attempt": attempt,
        "rank": start.rank,
        "argv": list(start.argv),
        "env": dict(start.env),
        "log": layout.launcher_log(start.host),
        "fork": start.fork,
    }


def _id(attempt: int, start: Start) -> str:
    if start.rank is None:
        return f"{attempt}.{start.host}"
    return f"{attempt}.{start.rank}" + (f".{start.number}" if start.number else "")


def ssh_script(folder: RunFolder, settings: SshSettings) -> Path:
    """Write a program that is `ssh` with our options, for launchers that call one by themselves."""
    path = folder.path / "bin" / "ssh"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write_bytes(path, f'#!/bin/sh\nexec {_real_ssh()} {shlex.join(options(settings))} "$@"\n'.encode())
    path.chmod(0o700)
    return path


def _real_ssh() -> str:
    return shlex.quote(shutil.which("ssh") or "/usr/bin/ssh")
