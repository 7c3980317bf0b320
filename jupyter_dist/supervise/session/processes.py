"""The processes of a session's ranks: what every kind of them does, and those on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ... import backends
from ...errors import LaunchError
from ...folder import RunFolder
from ...job import Job, Poll, RankState
from ...worker.host.ports import free_ports
from ...worker.process_groups import kill_group
from .host_processes import HostProcesses

__all__ = ["LocalProcesses", "SessionProcesses", "processes_of"]


class SessionProcesses(Protocol):
    """The processes of a session's ranks, and the way to them."""

    here: bool
    """Whether the ranks write into the folders of this machine themselves."""
    detail: str | None
    """What the ranks wait for, or which host does not answer."""
    failed: str | None
    """Why the session cannot have ranks any more."""
    has_news: bool
    """Whether the last `poll` has received something about ranks on other machines."""

    @property
    def pids(self) -> tuple[int, ...]:
        """Return the process groups on this machine to kill if the supervisor dies."""
        ...

    def fileno(self) -> int | None:
        """Return a descriptor that is readable when `poll` has news; None if a signal tells that."""
        ...

    def start(self) -> None:
        """Start all ranks. Raises DistError if that is impossible."""
        ...

    def poll(self) -> Sequence[RankState]:
        """Return the states of the ranks. Does not block."""
        ...

    def replace(self, rank: int) -> RankState:
        """Start a fresh process for a rank. A process that still runs is killed. Raises LaunchError."""
        ...

    def kill(self, states: Iterable[RankState]) -> None:
        """Kill processes with their groups."""
        ...

    def stacks(self) -> None:
        """Ask the ranks to write their stacks."""
        ...

    @property
    def not_kept(self) -> str | None:
        """Return which files of the present cell could not be copied to this machine, and where they are."""
        ...

    def release(self, meanwhile: Callable[[], object]) -> str | None:
        """Release what is reserved for the ranks. Their processes have ended.

        `meanwhile`: is called while a platform does not answer. Returns what the user must know of the
        release: what stays reserved, or what a job has cost.
        """
        ...

    def send(self, rank: int, message: Mapping[str, Any]) -> None:
        """Send a message to a rank whose connection is not on this machine."""
        ...

    def arrived(self) -> list[tuple[int, Mapping[str, Any]]]:
        """Return the messages of such ranks since the last call."""
        ...

    def stage(self, cell: RunFolder, ranks: Collection[int], more: Collection[str]) -> None:
        """Begin to send a cell's files, and `more` files, to the hosts of these ranks."""
        ...

    def staged(self, cell: RunFolder) -> bool:
        """Return whether the ranks can find the cell's files. Raises LaunchError if they never will."""
        ...

    def path(self, rank: int, cell: RunFolder, file: Path | None = None) -> str:
        """Return where a rank finds the cell's folder, or one of the `more` files of `stage`."""
        ...

    def answers(self, rank: int) -> bool:
        """Return whether the host of a rank is connected."""
        ...

    def free_port(self) -> int:
        """Return a free TCP port on the machine of rank 0, after `staged`."""
        ...

    def memory(self, rank: int) -> int | None:
        """Return the bytes of memory of a rank on another machine."""
        ...


class LocalProcesses:
    """Processes of this machine, whose connections the session's server accepts itself."""

    here = True
    failed: str | None = None
    not_kept: str | None = None
    has_news = False

    def __init__(self, job: Job, folder: RunFolder) -> None:
        self._job, self._folder = job, folder
        self._backend: Any = backends.load(job.backend)
        self._handle: Mapping[str, Any] | None = None
        self._states: Sequence[RankState] = ()
        self.detail: str | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(state.pid for state in self._states if state.pid is not None and not state.state.ended)

    def fileno(self) -> int | None:
        return None

    def start(self) -> None:
        self._handle = self._backend.submit(self._job, self._folder, 0)
        self.poll()

    def poll(self) -> Sequence[RankState]:
        if self._handle is not None:
            poll: Poll = self._backend.poll(self._job, self._folder, self._handle, None)
            self.detail, self._states = poll.detail, poll.ranks
        return self._states

    def replace(self, rank: int) -> RankState:
        try:
            state: RankState = self._backend.replace(self._job, self._folder, rank)
        except OSError as error:
            raise LaunchError(f"rank {rank} could not be started again: {error}") from error
        self._states = [state if each.rank == rank else each for each in self._states]
        return state

    def kill(self, states: Iterable[RankState]) -> None:
        for state in states:
            if state.pid is not None:
                kill_group(state.pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(state.pid, signal.SIGKILL)

    def stacks(self) -> None:
        if self._handle is not None:
            self._backend.ask(self._job, self._folder, self._handle, None, "stacks")

    def release(self, meanwhile: Callable[[], object]) -> str | None:
        if self._handle is not None:
            with contextlib.suppress(Exception):
                self._backend.release(self._job, self._folder, self._handle)
        return None

    def send(self, rank: int, message: Mapping[str, Any]) -> None:
        raise AssertionError("each rank of this machine has a connection of its own")

    def arrived(self) -> list[tuple[int, Mapping[str, Any]]]:
        return []

    def stage(self, cell: RunFolder, ranks: Collection[int], more: Collection[str]) -> None:
        pass

    def staged(self, cell: RunFolder) -> bool:
        return True

    def path(self, rank: int, cell: RunFolder, file: Path | None = None) -> str:
        return str(file or cell.path)

    def answers(self, rank: int) -> bool:
        return True

    def free_port(self) -> int:
        return free_ports(1)[0]

    def memory(self, rank: int) -> int | None:
        return None


def processes_of(job: Job, folder: RunFolder) -> SessionProcesses:
    """Return the processes of a session. `folder`: the session's, shaped like a run's."""
    on_hosts = backends.declared(job.backend).capabilities.exchanges
    return HostProcesses(job, folder) if on_hosts else LocalProcesses(job, folder)
