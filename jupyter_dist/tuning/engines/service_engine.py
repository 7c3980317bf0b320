"""What the engines have in common for which a service chooses the values and starts the trials' jobs itself.

Each of these jobs is a trial of ours. Its hosts wait for a driver (agent/mailbox_relay.py), which is the
trial's run: the backend finds the job by its name, and the mailbox by the same.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ... import folder as folders
from ...backends.platform_job import CredentialsExpired
from ...errors import DistError, Unreachable
from ...record import reader
from ...record.trials import Trial
from ...search.dimensions import Value
from . import Proposal

__all__ = ["Service", "ServiceEngine", "ServiceStatus"]

_LOOK_EVERY_S = 2.0


@dataclass(frozen=True)
class ServiceStatus:
    """A tuning as its service tells of it."""

    jobs: Mapping[str, Mapping[str, Value]]
    """The values of each job that it has started so far, by the job's name, in the order of their starts."""
    ended: str | None
    """Why it starts no more; empty where it has ended as it should. None: more may come."""


class Service(Protocol):
    """The tuning of one run. Every call may block; they raise Unreachable where another try may help,
    CredentialsExpired where the user has to sign in, and any other DistError."""

    called: str
    """In a line for the user, such as `tuning job 'dist-…'`."""
    known_as: str
    """Under which name a trial's handle has the name of its job."""

    def begin(self) -> None:
        """Start it: one, however often it is asked for."""
        ...

    def look(self) -> ServiceStatus:
        """How it stands, once it was begun: where it has ended, with all of its jobs."""
        ...

    def has_ended_early(self, job: str) -> bool:
        """Whether a job, which has ended, was ended by the service."""
        ...

    def stop(self) -> None:
        """Have it start no more, and end what runs."""
        ...


class ServiceEngine:
    """`Engine` of one service's tuning. What the service does not answer is asked again at a later turn."""

    def __init__(self, run: str, service: Service) -> None:
        self._run, self._service = run, service
        self._known: set[str] = set()
        self._new: deque[tuple[str, Mapping[str, Value]]] = deque()
        self._jobs: dict[int, str] = {}
        self._begun = self._stopped = False
        self._looked = -_LOOK_EVERY_S
        self._ended: str | None = None

    def learn(self, trial: Trial, *, of_parent: bool = False) -> None:
        if not of_parent and trial.handle is not None:
            name = str(trial.handle[self._service.known_as])
            self._known.add(name)
            self._jobs[trial.number] = name

    def ask(self, number: int) -> Proposal | None:
        self._look()
        if not self._new:
            return None
        name, parameters = self._new.popleft()
        self._jobs[number] = name
        return Proposal(parameters, handle={self._service.known_as: name})

    def is_hopeless(self, number: int, reported: Sequence[tuple[int, float]]) -> bool:
        place = folders.RunFolder(folders.runs_root() / folders.trial_id(self._run, number))
        if self._stopped or number not in self._jobs or not reader.status(place).state.ended:
            return False  # the service ends it
        try:
            return self._service.has_ended_early(self._jobs[number])
        except CredentialsExpired as error:
            raise Unreachable(str(error)) from error

    def tell(
        self, number: int, state: str, value: float | None, reported: Sequence[tuple[int, float]]
    ) -> None:
        pass  # the service reads the same by itself

    def exhausted(self) -> str | None:
        return None if self._new else self._ended

    def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            try:
                self._service.stop()
            except DistError as error:
                # There may be none yet, or it has ended.
                print(f"{self._service.called} was not stopped: {error}", flush=True)

    def close(self) -> None:
        if self._ended is None:
            self.stop()

    def _look(self) -> None:
        """At the jobs there are by now, if the last look is a while ago."""
        now = time.monotonic()
        if self._ended is not None or now - self._looked < _LOOK_EVERY_S:
            return
        self._looked = now
        try:
            if not self._begun:
                self._service.begin()
                self._begun = True
            seen = self._service.look()
        except CredentialsExpired as error:
            raise Unreachable(str(error)) from error
        except Unreachable:
            raise
        except DistError as error:
            self._ended = str(error)
            return
        for name, parameters in seen.jobs.items():
            if name not in self._known:
                self._known.add(name)
                self._new.append((name, parameters))
        self._ended = seen.ended
