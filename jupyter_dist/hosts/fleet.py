"""The hosts of a run: their set-up, their processes, lost connections, and their clean-up.

Only `connect` and `release` block. Backends with launchers use this module for several hosts.
Some of them start processes with `start`. Others let their launcher call the script `HostFacts.start` on the
hosts, through the ssh program that `openssh.ssh_script` writes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import select
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import LaunchError
from ..folder import RunFolder, write_json
from ..job import Job
from . import host_release
from .arrivals import Arrivals
from .host import Host, HostFacts, HostProcess
from .host_messages import missing, out_of_space, progress, story, unreachable_pairs
from .links.link import Reach
from .links.ssh_transport import by_ssh
from .links.wake_pipe import WakePipe
from .openssh import SshSettings
from .rank_requests import RankRequests
from .settings import HostSettings
from .staged_files import kept_checkpoints, shipped
from .start import Start

__all__ = ["Fleet", "FleetPoll", "Start"]

_STRAGGLERS_S = 12.0
"""After a host's failure, the driver waits this long for the set-up of the other hosts."""
_CONNECT_S = 0.05
"""How long one poll may start connections. A thousand processes of ssh take seconds to start."""
_AWAY_SHOWN_S = 1.5
_KILL_AWAY_S = 3.0
"""After a kill, the driver waits this long for a host without a connection."""


@dataclass(frozen=True)
class FleetPoll:
    """State of the hosts and of the newest attempt's processes."""

    ready: bool
    """Whether the hosts can start processes."""
    processes: tuple[HostProcess, ...]
    failed: str | None = None
    """Why hosts cannot be used, host by host. Nothing was started then."""
    final: bool = False
    """Whether another set-up would fail too, for example because a host's Python has the wrong version."""
    away: tuple[str, ...] = ()
    """Hosts that do not answer now."""
    detail: str | None = None
    pids: tuple[int, ...] = ()
    """Process groups of the connections, on this machine."""


class Fleet:
    """All hosts of a run. Not thread-safe."""

    def __init__(
        self,
        job: Job,
        folder: RunFolder,
        hosts: Sequence[Mapping[str, Any]],
        settings: HostSettings,
        reach: Reach | None = None,
        *,
        elastic: bool = False,
    ) -> None:
        """`hosts`: [{"name": "h1", "slots": 4}, …]. Starts nothing.

        `reach`: creates the links to the hosts; None: by ssh, with `settings` (SshSettings then).
        `elastic`: a failed host does not end the run. The caller adds hosts and sets them up again.
        """
        if reach is None:
            assert isinstance(settings, SshSettings)
            reach = by_ssh(settings)
        self._reach, self.elastic = reach, elastic
        self._job, self._folder, self._settings = job, folder, settings
        self._files = [*shipped(folder), *kept_checkpoints(folder)]
        self._arrivals = Arrivals(folder)
        self.cells: dict[str, Arrivals] = {}
        """The files of a session's newest cells, by the ids of their runs."""
        self._hosts = [
            self._host(str(host["name"]), node, int(host["slots"])) for node, host in enumerate(hosts)
        ]
        self._attempt = 0
        self._began = time.monotonic()
        self._first_failure: float | None = None
        self._story: str | None = None
        """Why hosts cannot be used. `_failed` becomes this text when the other hosts are cleaned up."""
        self._failed: str | None = None
        self._killed_at: float | None = None
        self._explained: set[str] = set()
        self._left_there: list[str] = []
        self._meeting = self._meeting_place = ""
        self._requests = RankRequests(folder)

    def _host(self, name: str, node: int, slots: int) -> Host:
        shared = (self._job, self._settings, self._reach, self._files, self._arrivals, self.cells)
        return Host(name, node, slots, *shared)

    def begin(self, *, resume: bool = False) -> None:
        """Begin to connect to all hosts; see `FleetPoll.ready`. `resume`: the agents already run."""
        self._began = time.monotonic()
        for host in self._hosts:
            host.open(resume=resume)

    def renew(self) -> None:
        """Set up the lost and failed hosts again, for another attempt. An elastic run does so at any time.

        If the set-up of one host failed, this sets up all hosts again: the failure has cleaned up the others.
        """
        if self.elastic:
            return
        self._failed = self._story = self._first_failure = None
        sent = [file for file in self._files if file.modified is None]
        self._files = [*sent, *kept_checkpoints(self._folder)]
        for host in list(self._hosts):
            host.settle()
            if host.lost or host.failed or host.released:
                self.again(host, ports=0)

    @property
    def members(self) -> Sequence[Host]:
        """Return the hosts in the order in which they were added."""
        return self._hosts

    def add(self, name: str, slots: int, *, ports: int = 1, resume: bool = False) -> None:
        """Begin to set up another host. `resume`: connect to the agent that already runs there."""
        self._open(self._host(name, len(self._hosts), slots), ports, resume=resume)

    def again(self, old: Host, *, ports: int = 1) -> None:
        """Begin to set up a failed or lost host again."""
        old.close()
        self._open(self._host(old.name, old.node, old.slots), ports, resume=False)

    def _open(self, host: Host, ports: int, *, resume: bool) -> None:
        self._hosts[host.node : host.node + 1] = [host]
        if ports:
            host.ask_for_ports(ports)
        host.open(resume=resume)

    def connect(self) -> None:
        """Connect to all hosts. Blocks until all hosts are ready.

        Raises LaunchError with each host that cannot be used, the reason, and the cure. Nothing is left
        on the other hosts then.
        """
        self.begin()
        while True:
            state = self.poll()
            if state.failed is not None:
                raise LaunchError(state.failed)
            if state.ready:
                return
            self.wait(0.1)

    def wait(self, seconds: float, alarm: WakePipe | None = None) -> None:
        """Sleep until a host has sent something, or `alarm` wakes, for at most the given seconds."""
        poll = select.poll()
        if alarm is not None:
            alarm.register(poll)
        for host in self._hosts:
            host.link.register(poll)
        poll.poll(seconds * 1000)

    def facts(self, host: str) -> HostFacts:
        """Return the facts about a host that has been ready."""
        facts = self._named(host).facts
        assert facts is not None, f"{host} was never ready"
        return facts

    def ports(self, host: str) -> tuple[int, ...]:
        """Return the free TCP ports that `ask_for_ports` has found."""
        return tuple(self._named(host).ports or ())

    def ask_for_ports(self, counts: Mapping[str, int]) -> None:
        """Ask hosts for free TCP ports (host name → number). The fleet is ready when all have answered."""
        for name, count in counts.items():
            self._named(name).ask_for_ports(count)

    def lease(self, wishes: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Lease GPUs on hosts, or release them (None). The fleet is ready when `HostFacts.leased` is set."""
        for name, wish in wishes.items():
            self._named(name).lease(wish)

    def find_ways(self, places: Mapping[str, tuple[str, int]], meeting: str) -> None:
        """Let all hosts try to connect to each other. The fleet is not ready until all have tried.

        `places`: host name → address and port. `meeting`: the host of rank 0, where all ranks meet.
        A missing connection is no error, only a text in the polls' `detail`: the ranks may not need it.
        """
        for host in self._hosts:
            others = {name: place for name, place in places.items() if name != host.name}
            if others:
                host.find_ways(others)
        address, port = places[meeting]
        self._meeting, self._meeting_place = meeting, f"{meeting} at {address}, port {port}"

    def prepare(self, env: Mapping[str, Mapping[str, str]]) -> None:
        """Write the scripts `HostFacts.start` with these variables. The fleet is ready when they exist."""
        for name, variables in env.items():
            self._named(name).prepare(variables)

    def start(self, attempt: int, starts: Sequence[Start]) -> None:
        """Start the processes of an attempt. They replace those of the previous attempt."""
        self._attempt, self._killed_at = attempt, None
        for host in self._hosts:
            mine = [start for start in starts if start.host == host.name]
            processes = [
                HostProcess(start.id(attempt), host.name, start.rank, attempt, asked=True) for start in mine
            ]
            wishes = [start.wish(attempt) for start in mine]
            host.start(processes, wishes)

    def expect(self, attempt: int, starts: Sequence[Start]) -> None:
        """Register the processes that an earlier supervisor was about to start.

        If a host has not received the request to start a process, it receives the request now. If the argv is
        unknown, the process is lost.
        """
        self._attempt = attempt
        for start in starts:
            process = HostProcess(start.id(attempt), start.host, start.rank, attempt)
            self._named(start.host).expect(process, start.wish(attempt) if start.argv else None)

    def poll(self) -> FleetPoll:
        """Advance all hosts, and return their state. Does not block."""
        self._pass_on_requests()
        until = time.monotonic() + _CONNECT_S
        for host in self._hosts:
            host.advance(may_connect=time.monotonic() < until)
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

    def _pass_on_requests(self) -> None:
        """Copy new requests to the hosts, whose ranks look for them in their run's folder."""
        for path, text in self._requests.new():
            for host in self._hosts:
                host.tell(path, text)

    def give_up(self, gone: Mapping[str, str]) -> None:
        """Give up hosts that have ended, as their scheduler reports. `gone`: host name → reason.

        Some hosts of an elastic run may have ended before they were added.
        """
        for host in self._hosts:
            if host.name in gone:
                host.give_up(gone[host.name])

    def stop(self, *, kill: bool, interrupt: bool = False) -> None:
        """Send SIGTERM to all processes. `kill`: send SIGKILL to their process groups.

        `interrupt`: send SIGINT to the ranks instead, and nothing to launchers.

        A host without a connection receives the request when it is connected again.
        """
        if kill:
            self._killed_at = self._killed_at or time.monotonic()
        for host in self._hosts:
            host.signal(kill=kill, interrupt=interrupt)

    def stacks(self) -> None:
        """Ask each rank to append its stacks to `stacks.txt`."""
        for host in self._hosts:
            host.stacks()

    def release(self) -> str | None:
        """End the agents, fetch the checkpoints and remove the run's files on the hosts. Never raises.

        Returns a text for the user if files had to stay on a host, for example because this disk is full
        or the host does not answer.
        Blocks while checkpoints arrive, and some seconds for anything else. The agent of a host without
        a connection ends by itself after the grace time. Its files stay on the host.
        """
        for host in self._hosts:
            host.release()
        while not self._are_released():
            self.wait(0.05)
        not_kept = (host.not_kept for host in self._hosts)
        return "; ".join(filter(None, [*not_kept, *self._left_there])) or None

    def _are_released(self) -> bool:
        """Advance the release of all hosts. Returns whether it is over. Does not block."""
        for host in self._hosts:
            told = host_release.advance(host)
            if told is not None and self._job.session is None:  # a session's cells have copied their own
                self._left_there.append(told)
        return all(host.released for host in self._hosts)

    def _named(self, name: str) -> Host:
        return next(host for host in self._hosts if host.name == name)

    def _end_unheard(self, host: Host) -> None:
        """Count the processes of a host without a connection as ended, some seconds after a kill.

        If the host itself has ended, its processes are lost.
        """
        if host.away is None or self._killed_at is None or time.monotonic() - self._killed_at < _KILL_AWAY_S:
            return
        host.settle()
        for process in list(host.processes.values()):
            if not process.over and process.attempt == self._attempt:
                host.processes[process.id] = dataclasses.replace(process, ended=time.time(), told=True)

    def _judge_failures(self) -> None:
        """Report all failed hosts together, after the other hosts have been cleaned up."""
        failed = [host for host in self._hosts if host.failed]
        if not failed or self.elastic or self._failed is not None:
            return
        now = time.monotonic()
        self._first_failure = self._first_failure or now
        if self._story is None:
            open_ = [host for host in self._hosts if host.diagnosis or not (host.failed or host.settled)]
            if open_ and now - self._first_failure < _STRAGGLERS_S:
                return
            self._story = story([(host.name, str(host.failed)) for host in failed], len(self._hosts))
            for host in self._hosts:
                host.release()
        if self._are_released():
            self._failed = self._story

    def _explain(self, host: Host) -> None:
        """Write the error of ranks that could not write it: the start failed, or no disk space was left."""
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
            # If the disk here is full too, the user still sees the exit code.
            with contextlib.suppress(OSError):
                write_json(place, told)

    def _detail(self, away: Sequence[Host]) -> str | None:
        now = time.time()
        parts = [
            f"host {host.name}: no space is left in {host.facts.stage!r}"
            for host in self._hosts
            if host.facts is not None and any(map(out_of_space, host.processes.values()))
        ]
        parts += [
            f"host {host.name}: its ranks' output cannot be read: {host.hindered}"
            for host in self._hosts
            if host.hindered is not None
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
