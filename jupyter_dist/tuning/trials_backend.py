"""Backend of a tuning run. It starts trials, each a run of its own (see this package's docstring)."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from .. import backends
from ..backends.interface import Capabilities, Handle, Options
from ..folder import RunFolder
from ..job import Job, Poll, State
from ..launch import template
from ..record import reader
from ..record.trials import search_of
from ..search.spec import Search
from .tuning_loop import Tuning

__all__ = ["Trials", "TrialsOptions"]

_TURN_S = 0.01
"""Interval between two checks of the trials, which limits how long a slot stays empty."""
_POLL_S = 0.25
"""How long a poll continues to check if there is no news."""


class TrialsOptions(Options):
    """Backend of the trials, and its options."""

    backend: str
    options: dict[str, Any] = Field(default_factory=dict)


class Trials:
    """Backend in a backend process.

    Its handle is the run's folder, and everything else is read from there.
    """

    name: ClassVar[str] = backends.TRIALS
    options: ClassVar[type[Options]] = TrialsOptions
    # Its work continues without a supervisor, because each trial has its own.
    capabilities: ClassVar[Capabilities] = Capabilities(
        restarts=False, outlives=True, apart=True, visible=False, stacks=False, warm=False
    )
    poll_interval_s: ClassVar[float] = 0.05

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tuning: Tuning | None = None
        self._ending: bool | None = None
        """None: continue. False: end the trials. True: kill them."""

    def default_np(self) -> int:
        return 1

    def check(self, world_size: int, options: Mapping[str, Any]) -> list[str]:
        return []

    def detect(self) -> dict[str, Any]:
        return {}

    def request(self, job: Job, attempt: int = 0) -> dict[str, Any]:
        assert job.tuning is not None
        search = search_of(job.tuning)
        trial = Job.from_json(job.tuning["trial"])
        if search.sizes:
            return {"scaling": list(search.sizes), "steps": search.steps, **self._each(trial)}
        return {
            "tune": {name: str(one) for name, one in search.space.items()},
            "objective": f"{search.goal}:{search.metric}",
            "max_jobs": search.max_jobs,
            "parallel": search.parallel,
            "strategy": search.strategy,
            **_further(search),
            **self._request_of(search, trial, job.timeout_s),
        }

    @staticmethod
    def _request_of(search: Search, trial: Job, timeout_s: float | None) -> dict[str, Any]:
        """Return the request that starts a trial, or all trials if a service starts them."""
        backend = backends.load(trial.backend)
        platform = backends.extensions_of(backend).search
        if platform is None or platform.request is None:
            return Trials._each(trial)
        return dict(platform.request(search, trial, timeout_s))

    @staticmethod
    def _each(trial: Job) -> dict[str, Any]:
        return {"trial": dict(backends.load(trial.backend).request(trial))}

    def submit(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        return {}

    def find(self, job: Job, folder: RunFolder, attempt: int) -> Handle | None:
        return self.submit(job, folder, attempt)  # nothing starts before the first poll

    def poll(self, job: Job, folder: RunFolder, handle: Handle, cursor: Any) -> Poll:
        with self._lock:
            until = time.monotonic() + _POLL_S
            tuning = self._tuning
            if tuning is None:  # the run starts before its first trial, which takes a while to start
                return Poll(State.RUNNING, detail=self._begun(folder).told())
            told = tuning.told()
            while True:
                ending = self._ending
                tuning.turn(begin=ending is None)
                if ending is not None:
                    tuning.stop(kill=ending)
                    return Poll(State.STOPPED if tuning.idle else State.RUNNING, detail=tuning.told())
                if tuning.over:
                    return _end_of(tuning)
                if tuning.told() != told or time.monotonic() > until:
                    return Poll(State.RUNNING, detail=tuning.told())
                time.sleep(_TURN_S)

    def _begun(self, folder: RunFolder) -> Tuning:
        job = reader.job(folder)
        assert job.tuning is not None
        if not job.tuning["cold"] and backends.declared(job.where).capabilities.warm:
            template.prepare(job.tuning["imports"])  # in parallel with the engine's import
        self._tuning = Tuning(folder, job)
        return self._tuning

    def stop(self, job: Job, folder: RunFolder, handle: Handle, *, kill: bool) -> None:
        # The next poll ends the trials, and reports when the last one has ended.
        self._ending = kill or bool(self._ending)

    def ask(self, job: Job, folder: RunFolder, handle: Handle, rank: int | None, verb: str) -> None:
        pass

    def release(self, job: Job, folder: RunFolder, handle: Handle) -> None:
        if self._tuning is not None:
            self._tuning.close()
        template.close()


def _end_of(tuning: Tuning) -> Poll:
    if not tuning.succeeded or tuning.hindered is not None:
        return Poll(State.FAILED, final=True, detail=tuning.hindered or tuning.why_none())
    return Poll(State.SUCCEEDED, detail=tuning.told())


def _further(search: Search) -> dict[str, Any]:
    """Return the options of a search that its user has chosen, by the names of their flags."""
    chosen = {
        "early_stopping": search.policy or search.early_stopping or None,
        "scheduler": search.scheduler,
        "population": search.population,
        "stop_when": search.stop_when,
        "warm_start": ",".join(search.parents) + (":transfer" if search.transfer else "") or None,
        "seed": search.seed,
    }
    return {name: value for name, value in chosen.items() if value is not None}
