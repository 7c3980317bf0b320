"""Control of the ranks that a launcher has started: on this machine, or through the agents of other hosts."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ...errors import LaunchError
from ...folder import RunFolder
from ...hosts.fleet import Fleet, FleetPoll
from ...hosts.start import Start
from ...job import Job, RankState
from ...processes.leftovers import is_of
from ...record.process_identity import start_ticks
from ...worker.process_groups import kill_group, signal_if
from ...worker.stack_signals import signal_for
from ..shared_options.hosts import HostOptions

__all__ = ["LocalRanks", "RankControl", "RemoteRanks"]

_EXIT_FILES_S = 2.0
_QUICK_S = 0.5
_FLUSH_S = 30.0


class RankControl(Protocol):
    """Access to the processes of running ranks, wherever they are."""

    def signal(self, ranks: Sequence[RankState], *, kill: bool, interrupt: bool = False) -> bool:
        """Send SIGTERM or SIGINT to the ranks, or SIGKILL to them and all their children.

        Returns whether all got it.
        """
        ...

    def stacks(self, ranks: Sequence[RankState]) -> None:
        """Make the ranks append their stacks to `stacks.txt`."""
        ...

    def gone(self, rank: RankState) -> bool:
        """Return whether the rank's process is known to have ended."""
        ...

    def settled(self, ranks: Sequence[RankState], waited_s: float) -> bool:
        """Return whether nothing more can be learned about these ranks, which have not reported their end.

        The launcher has ended `waited_s` seconds ago.
        """
        ...


class LocalRanks:
    """Ranks on this machine. Ranks that a launcher has started elsewhere cannot be controlled.

    The ranks are not children of this process, so another process may have the pid of one that has ended.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id

    def signal(self, ranks: Sequence[RankState], *, kill: bool, interrupt: bool = False) -> bool:
        for pid in _here(ranks):
            if not kill:
                self._signal(pid, signal.SIGINT if interrupt else signal.SIGTERM)
            elif self._signal(pid, 0):
                kill_group(pid)
        return len(_here(ranks)) == len(ranks)

    def stacks(self, ranks: Sequence[RankState]) -> None:
        for pid in _here(ranks):
            if self._is_rank(pid):
                self._signal(pid, signal_for(pid))

    def _signal(self, pid: int, signum: int) -> bool:
        with contextlib.suppress(OSError):
            return signal_if(pid, signum, self._is_rank)
        return False

    def _is_rank(self, pid: int) -> bool:
        return not os.path.isdir("/proc/self") or is_of(pid, self._run_id)

    def gone(self, rank: RankState) -> bool:
        return any(start_ticks(pid) is None for pid in _here([rank]))

    def settled(self, ranks: Sequence[RankState], waited_s: float) -> bool:
        if not ranks:
            return True
        if waited_s == 0:
            self.signal(ranks, kill=True)
        alive = any(start_ticks(pid) is not None for pid in _here(ranks))
        return waited_s > (_EXIT_FILES_S if alive else _QUICK_S)


def _here(ranks: Sequence[RankState]) -> list[int]:
    name = socket.gethostname()
    return [rank.pid for rank in ranks if rank.pid is not None and rank.host == name]


class RemoteRanks:
    """The hosts of a run whose only launcher is on this machine: set up before it, and cleaned after it."""

    def __init__(
        self, job: Job, folder: RunFolder, asked: HostOptions, hosts: Sequence[Mapping[str, Any]]
    ) -> None:
        self.names = [str(host["name"]) for host in hosts]
        self.fleet = Fleet(job, folder, hosts, asked.settings())
        self._attempt = 0
        self._began = self._flushing = False

    def begin(self, attempt: int, ports: Mapping[str, int]) -> None:
        """Set the hosts up, or what another attempt needs again. See `poll`."""
        self._attempt, self._flushing = attempt, False
        if self._began:
            self.fleet.renew()
        else:
            self.fleet.begin()
            self._began = True
        self.fleet.ask_for_ports(ports)

    def poll(self) -> FleetPoll:
        """Advance the hosts, and copy the ranks' output here. Call it often."""
        return self.fleet.poll()

    def start_script(self) -> str:
        """Return the program that the launcher starts as a rank on every host, after `fleet.prepare`.

        Raises LaunchError if its path differs between the hosts.
        """
        paths = {name: self.fleet.facts(name).start for name in self.names}
        if len(set(paths.values())) > 1:
            told = ", ".join(f"{name}: {path!r}" for name, path in paths.items())
            raise LaunchError(
                "the launcher starts the same program on every host, but the home folders differ "
                f"({told}). Name a folder that is the same on all hosts: --remote-dir "
                "/tmp/jupyter-dist"
            )
        return paths[self.names[0]]

    def signal(self, ranks: Sequence[RankState], *, kill: bool, interrupt: bool = False) -> bool:
        self.fleet.stop(kill=kill, interrupt=interrupt)
        return True

    def stacks(self, ranks: Sequence[RankState]) -> None:
        self.fleet.stacks()

    def gone(self, rank: RankState) -> bool:
        return False

    def settled(self, ranks: Sequence[RankState], waited_s: float) -> bool:
        # An agent reports the end of a process after everything that was written before it.
        if not self._flushing:
            self._flushing = True
            marks = [Start(name, ("/bin/sh", "-c", ":"), {}) for name in self.names]
            self.fleet.start(self._attempt, marks)
            return False
        processes = self.fleet.poll().processes
        return (len(processes) >= len(self.names) and all(p.over for p in processes)) or waited_s > _FLUSH_S

    def release(self) -> str | None:
        self._began = False
        return self.fleet.release()
