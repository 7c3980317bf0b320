"""Engine of the backend `ray`: Ray Tune chooses and prunes, on the Ray cluster that the trials run on.

A trial in Tune is an actor without resources, which trains nothing. It waits at the *desk*, an actor of
jupyter-dist, for the values that the trial's run logs. It reports them to Tune (ray_tune_parts.py). The
engine learns from the desk which trials Tune has begun and ended. So trials are ordinary runs, and the
backend `ray` places their ranks. Tune's search algorithms and schedulers see results as from any trainable.

https://docs.ray.io/en/latest/tune/key-concepts.html
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ... import folder as folders
from ...backends.ray import connection
from ...errors import DistError
from ...folder import RunFolder
from ...job import Job
from ...record.trials import PRUNED, RUNNING, SUCCEEDED, Trial
from ...search.spec import Search
from ...worker import layout
from ..objective import counted
from . import Proposal, ray_tune_parts
from .optuna_space import from_optuna, to_optuna
from .trials_ray import TrialsRay

__all__ = ["RayTuneEngine"]

_LOOK_S = 0.1
_PLACE = layout.hidden("ray-tune")
_QUIET = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
    # Results arrive as fast as trials log.
    "TUNE_RESULT_BUFFER_LENGTH": "0",
}


@dataclass
class _Expected:
    """A trial from the ledger for which Tune will ask once more."""

    number: int
    parameters: Mapping[str, Any]
    state: str
    value: float | None
    steps: Sequence[tuple[int, float]]


class RayTuneEngine:
    """Engine with Tune in threads of this process, which is a driver of its Ray. No method blocks on Tune."""

    def __init__(self, search: Search, job: Job) -> None:
        assert job.tuning is not None
        self._search, self._job = search, job
        self._ray = TrialsRay(job, search.parallel)
        self._folder = RunFolder(folders.runs_root() / job.id)
        self._lock = threading.Lock()
        self._replays = search.strategy == "grid" or search.prunes
        """Whether Tune gets the ended trials once more: as points of a grid, or for its scheduler."""
        self._known: list[Trial] = []
        self._of_parent: list[Trial] = []
        self._expected: list[_Expected] = []
        self._offers: deque[tuple[str, dict[str, Any]]] = deque()
        """Trials that Tune wants to try, as (its name of the trial, parameters)."""
        self._begun: set[str] = set()
        self._ids: dict[int, str] = {}
        self._told: dict[int, int] = {}
        self._stopped: dict[str, int] = {}
        """Trials that Tune has ended, or whose end it has received, and how many values each had logged."""
        self._news: list[tuple[str, list[tuple[int, float]]]] = []
        self._ends: dict[str, tuple[str, float | None]] = {}
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._over: str | None = None
        self._address: str | None = None

    def learn(self, trial: Trial, *, of_parent: bool = False) -> None:
        if of_parent:
            self._of_parent.append(trial)
            return
        self._known.append(trial)
        if trial.state == RUNNING or self._replays:
            self._expected.append(
                _Expected(trial.number, trial.parameters, trial.state, trial.value, trial.steps)
            )

    def ask(self, number: int) -> Proposal | None:
        self._begin()
        with self._lock:
            if not self._offers:
                return None
            name, parameters = self._offers.popleft()
            self._ids[number] = name
            # If the tuning run has its own Ray, the trials get its address.
            return Proposal(parameters, options={"address": self._address})

    def pruned_at(self, number: int, reported: Sequence[tuple[int, float]]) -> int | None:
        self._begin()
        with self._lock:
            name = self._ids.get(number)
            if name is None:
                return None
            self._report(number, name, reported)
            values = self._stopped.get(name)
        if values is None or not reported:
            return None
        steps = (
            step for (step, _), (place, _) in zip(reported, counted(reported), strict=True) if place >= values
        )
        return next(steps, reported[-1][0])

    def _report(self, number: int, name: str, reported: Sequence[tuple[int, float]]) -> None:
        new = counted(reported)[self._told.get(number, 0) :]
        self._told[number] = len(reported)
        if new:
            self._news.append((name, new))

    def tell(self, trial: Trial) -> None:
        with self._lock:
            name = self._ids.get(trial.number)
            if name is not None:
                self._report(trial.number, name, trial.steps)
                self._ends[name] = (trial.state, trial.value)
                return
            for one in self._expected:
                if one.number == trial.number:
                    one.state, one.value, one.steps = trial.state, trial.value, trial.steps

    def exhausted(self) -> str | None:
        with self._lock:
            return None if self._offers else self._over

    def stop(self) -> None:
        pass

    def close(self) -> None:
        self._closed.set()
        if self._thread is not None:
            self._thread.join(10.0)

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._live, name="ray-tune", daemon=True)
            self._thread.start()

    # The methods below run in the threads.

    def _live(self) -> None:
        place = str(self._folder.path / _PLACE)
        os.environ.update(_QUIET)
        try:
            self._address = self._ray.find()
            connection.connect(self._address, self._ray.asked.read_runtime_env)
            self._tune(place)
        except BaseException as error:
            if not isinstance(error, DistError):
                error = RuntimeError(f"Ray Tune failed: {type(error).__name__}: {error}")
            self._over = str(error)
        finally:
            if self._closed.is_set():
                with contextlib.suppress(Exception):
                    import ray

                    ray.shutdown()
                self._ray.end()
            shutil.rmtree(place, ignore_errors=True)

    def _tune(self, place: str) -> None:
        import ray

        parts = ray_tune_parts.make(self._job.id)
        desk = parts.open_desk()
        ended = [one for one in self._known if one.state != RUNNING]
        running = [one for one in self._known if one.state == RUNNING]
        # The ended trials come first. Otherwise they wait until a running trial ends.
        begun = [*ended, *running] if self._replays else running
        learned = [one for one in ended if one.state in (SUCCEEDED, PRUNED) and not self._replays]
        tuner = ray_tune_parts.tuner(
            self._search,
            parts,
            place,
            samples=max(1, self._search.max_jobs - len(self._known) + len(begun)),
            begun=[to_optuna(self._search, one.parameters) for one in begun],
            ended=[*self._of_parent, *learned],
        )
        failure: list[BaseException] = []

        def fit() -> None:
            try:
                tuner.fit()
            except BaseException as error:
                failure.append(error)

        fitting = threading.Thread(target=fit, name="ray-tune-fit", daemon=True)
        fitting.start()
        while not self._closed.is_set():
            alive = fitting.is_alive()
            with self._lock:
                news, self._news = self._news, []
                ends, self._ends = self._ends, {}
            begun, stopped = ray.get(desk.exchange.remote(news, ends))
            with self._lock:
                for name, config in begun:
                    self._take(name, from_optuna(self._search, config))
                self._stopped.update(stopped)
            if failure and not self._closed.is_set():
                raise failure[0]
            if not alive:
                self._over = ""
                return
            time.sleep(_LOOK_S)

    def _take(self, name: str, parameters: dict[str, Any]) -> None:
        """Handle a trial that Tune has begun: a running one, one with a known result, or a new one.

        Tune reports a trial twice if it has begun an actor for it, and then moved the trial to an idle actor.
        """
        if name in self._begun:
            return
        self._begun.add(name)
        for one in self._expected:
            if not all(_same(value, parameters[name]) for name, value in one.parameters.items()):
                continue
            self._expected.remove(one)
            if one.state == RUNNING:
                self._ids[one.number] = name
            else:
                self._news.append((name, counted(one.steps)))
                self._ends[name] = (one.state, one.value)
            return
        self._offers.append((name, parameters))


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are equal. A logarithm changes the last digits of a float."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return type(one) is type(other) and bool(one == other)
