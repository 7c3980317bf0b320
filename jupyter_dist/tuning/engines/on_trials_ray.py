"""An engine without a service of its own, for trials on the backend `ray`."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Collection, Sequence

from ...errors import DistError
from ...job import Job
from ...record.trials import Trial
from ...search.spec import Search
from . import PausingEngine, Proposal
from .trials_ray import TrialsRay

__all__ = ["OnTrialsRay"]


class OnTrialsRay:
    """`PausingEngine` that passes on what another engine decides. If no Ray runs, all trials use one Ray."""

    def __init__(self, engine: PausingEngine, search: Search, job: Job) -> None:
        self._engine = engine
        self._ray = TrialsRay(job, search.parallel)
        self._address: str | None = None
        self._failure: str | None = None
        self._thread: threading.Thread | None = None

    def learn(self, trial: Trial, *, of_parent: bool = False) -> None:
        self._engine.learn(trial, of_parent=of_parent)

    def ask(self, number: int) -> Proposal | None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._find, name="ray-start", daemon=True)
            self._thread.start()
        found = None if self._address is None else self._engine.ask(number)
        return None if found is None else dataclasses.replace(found, options={"address": self._address})

    def pruned_at(self, number: int, reported: Sequence[tuple[int, float]]) -> int | None:
        return self._engine.pruned_at(number, reported)

    def tell(self, trial: Trial) -> None:
        self._engine.tell(trial)

    def exhausted(self) -> str | None:
        return self._failure or self._engine.exhausted()

    def sources(self) -> Collection[int]:
        return self._engine.sources()

    def stop(self) -> None:
        self._engine.stop()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join(10.0)
            with contextlib.suppress(Exception):
                self._ray.end()
        self._engine.close()

    def _find(self) -> None:
        try:
            self._address = self._ray.find()
        except DistError as error:
            self._failure = str(error)
        except BaseException as error:
            self._failure = f"Ray was not started: {type(error).__name__}: {error}"
