"""Common part of engines whose service chooses the values and starts the trials' jobs itself.

Each of these jobs is a trial. Its hosts wait for a driver (agent/mailbox_relay.py), which belongs to the
trial's run. The backend finds the job by its name, and the mailbox by the same name.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ... import folder as folders
from ...backends.job_watch import CredentialsExpired
from ...errors import DistError, Unreachable
from ...record import reader
from ...record.trials import Trial
from ...search.dimensions import Value
from ..look_times import LookTimes
from . import Proposal

__all__ = ["Service", "ServiceEngine", "ServiceStatus"]

_STOP_EVERY_S = 2.0


@dataclass(frozen=True)
class ServiceStatus:
    """State of a tuning job or sweep, as its service reports it."""

    jobs: Mapping[str, Mapping[str, Value]]
    """Values of each job that the service has started, by the job's name, in the order of their starts."""
    ended: str | None
    """Why the service starts no more jobs. Empty for a normal end. None: more jobs may follow."""


class Service(Protocol):
    """A service's tuning of one run. Every call may block.

    A call raises Unreachable if a retry may help, and CredentialsExpired if the user must sign in. It may
    raise any other DistError.
    """

    called: str
    """Name in a line for the user, such as `tuning job 'dist-…'`."""
    known_as: str
    """Key of the job's name in a trial's handle."""

    def begin(self) -> None:
        """Start the tuning. Repeatable: later calls start no second one."""
        ...

    def look(self) -> ServiceStatus:
        """Return the state, after `begin`. If the tuning has ended, the state has all of its jobs."""
        ...

    def has_ended_early(self, job: str) -> bool:
        """Return whether the service ended a job, which has ended."""
        ...

    def stop(self) -> None:
        """Stop the service from starting more jobs, and end the running ones."""
        ...

    def close(self) -> None:
        """Record the end of the tuning, if the service has a place for it. Never raises."""
        ...


class ServiceEngine:
    """`Engine` of one service's tuning. If the service does not answer, a later turn asks again."""

    def __init__(self, run: str, service: Service) -> None:
        self._run, self._service = run, service
        self._known: set[str] = set()
        self._new: deque[tuple[str, Mapping[str, Value]]] = deque()
        self._jobs: dict[int, str] = {}
        self._begun = self._stopped = self._stop_answered = False
        self._times, self._stop_sent = LookTimes(), -math.inf
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

    def pruned_at(self, number: int, reported: Sequence[tuple[int, float]]) -> int | None:
        place = folders.RunFolder(folders.runs_root() / folders.trial_id(self._run, number))
        if self._stopped or number not in self._jobs or not reader.status(place).state.ended:
            return None  # the service ends the trial
        try:
            ended_early = self._service.has_ended_early(self._jobs[number])
        except CredentialsExpired as error:
            raise Unreachable(str(error)) from error
        return max((step for step, _ in reported), default=0) if ended_early else None

    def tell(self, trial: Trial) -> None:
        self._times.expect_news()  # the service reads the value itself, and starts the next job

    def exhausted(self) -> str | None:
        return None if self._new else self._ended

    def stop(self) -> None:
        self._stopped = True
        now = time.monotonic()
        if self._stop_answered or now - self._stop_sent < _STOP_EVERY_S:
            return
        self._stop_sent = now
        try:
            self._service.stop()
            self._stop_answered = True
        except DistError as error:
            # The tuning may not have begun, or may have ended. If a retry may help, a later turn stops it.
            self._stop_answered = not isinstance(error, Unreachable | CredentialsExpired)
            print(f"{self._service.called} was not stopped: {error}", flush=True)

    def close(self) -> None:
        if self._ended is None:
            self._stop_sent = -math.inf
            self.stop()
        if self._begun:
            self._service.close()

    def _look(self) -> None:
        """Read the service's jobs, if the last read was some time ago."""
        if self._ended is not None or not self._times.is_due:
            return
        seen = None
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
        finally:
            self._times.looked(seen)
        for name, parameters in seen.jobs.items():
            if name not in self._known:
                self._known.add(name)
                self._new.append((name, parameters))
        self._ended = seen.ended
