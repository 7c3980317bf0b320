"""Loop of one tuning run, as a state and a turn: check the running trials, prune some, start others.

All its facts are in the trial ledger and in the trials' folders. So a new object continues after a previous
one was killed. It starts a trial that was written down and not started. It checks a trial that still runs,
and reports a trial that has ended meanwhile. If a call raises, the next turn checks each written trial again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from .. import folder as folders
from ..errors import DistError
from ..folder import RunFolder
from ..job import Job, State, Status
from ..launch import submission
from ..record import reader, trials
from ..record.failures.failures import failures, pruning
from ..record.trials import FAILED, PRUNED, RUNNING, STOPPED, SUCCEEDED, Trial
from ..search.spec import RANKS
from ..text.format import count
from ..text.safe import one_line
from . import checkpoints, trial_runs
from .engines import PausingEngine, engine_for
from .importance import importance
from .ledger import Ledger
from .objective import Objective
from .throughput import Throughput
from .warm_start import known_trials

__all__ = ["Tuning"]

_HOPELESS = 3
"""Limit of failed trials if no other trial has ended. Then the cell is wrong, and more trials are wasted.

A trial that has diverged does not count, because its parameters were wrong and not the cell.
"""
_TAKE_ON_EVERY_S = 30.0
_START_LIMIT_S = 300.0
"""Time limit for the first sign of life of a trial's supervisor.

`reader.status` counts a run as lost if it has given no sign for 30 s. An overloaded machine may need longer.
"""
_IMPORTANCE_EVERY_S = 5.0
_PRUNED_BECAUSE = "pruned at step "
_ENOUGH_BECAUSE = "another rank has finished the steps of --steps"
_ENOUGH_AFTER_S = 10.0
_REACHED_BECAUSE = "the trial has reached "
_NO_CHECKPOINT = "it has saved no checkpoint"


@dataclass
class _Running:
    """A trial that was written down and has not ended.

    `started`: when its supervisor was started, or when it was found running. None: it must still be started.
    `hopeless`: the trial was pruned, and its end was requested.
    """

    trial: Trial
    place: RunFolder
    objective: Objective | Throughput
    options: Mapping[str, Any]
    started: float | None = None
    hopeless: bool = False
    taken_on: float = -math.inf


class Tuning:
    """State of one tuning run, for one thread.

    Creating one imports the engine's library and reads the ledger.
    """

    def __init__(self, folder: RunFolder, job: Job) -> None:
        assert job.tuning is not None
        self._folder, self._job = folder, job
        self.search = trials.search_of(job.tuning)
        self._trial_job = Job.from_json(job.tuning["trial"])
        self._ledger = Ledger(folder)
        self._engine = engine_for(self.search, job)
        self._failures: list[str] = []
        self._ended = self._diverged = 0
        self._lacks_checkpoints = False
        """Whether the reason of a trial says so. One is enough, because all trials run the same cell."""
        self._running: dict[int, _Running] = {}
        self._best: Trial | None = None
        self._weighed, self._weighed_at = 0, 0.0
        self._weighing: threading.Thread | None = None
        for trial in known_trials(self.search):
            self._engine.learn(trial, of_parent=True)
        known = trials.read(folder).trials
        self._next = max((trial.number for trial in known), default=-1) + 1
        for trial in known:
            self._engine.learn(trial)
            if trial.state == RUNNING:
                self._follow(trial)
            else:
                self._count(trial)
        self._env_lost = [name for name in job.env_names if name not in os.environ]

    @property
    def hindered(self) -> str | None:
        """Return why no more trials are started, if the reason is a problem."""
        if self._env_lost:
            names = ", ".join(self._env_lost)
            return (
                "no more trials can start, because a new supervisor does not have the values of "
                f"--env {names}"
            )
        limit = min(_HOPELESS, self.search.max_jobs)
        if len(self._failures) >= limit and self._ended == len(self._failures) and not self._diverged:
            return self._failures[0]
        return self._engine.exhausted() or None

    @property
    def over(self) -> bool:
        if self._running:
            return False
        full = self._next >= self.search.max_jobs
        return full or self.hindered is not None or self._engine.exhausted() is not None

    @property
    def idle(self) -> bool:
        return not self._running

    def turn(self, *, begin: bool = True) -> None:
        """Check every running trial. With `begin`, also start others if there is room.

        Blocks only on the disk and on a trial's start.
        """
        for running in list(self._running.values()):
            if running.started is None:
                self._start(running)
            else:
                self._look(running)
        while (
            begin
            and self._next < self.search.max_jobs
            and len(self._running) < self.search.parallel
            and self.hindered is None
        ):
            number = self._next
            proposal = self._engine.ask(number)
            if proposal is None:
                break
            self._next += 1
            trial = Trial(
                number,
                folders.trial_id(self._folder.id, number),
                proposal.parameters,
                handle=proposal.handle,
                source=proposal.source,
                until=proposal.until,
            )
            self._ledger.begun(trial)
            self._start(self._follow(trial, proposal.options))
        self._weigh()

    def stop(self, *, kill: bool) -> None:
        """Request the end of every running trial. Repeatable."""
        self._engine.stop()
        name = "kill" if kill else "stop"
        for running in self._running.values():
            if not (running.place.requests / name).exists():
                with contextlib.suppress(OSError):  # the user has removed the run
                    running.place.request(name, f"tuning run {self._folder.id} was stopped")

    def close(self) -> None:
        """Release everything after the end of the tuning run."""
        if self._weighing is not None:
            self._weighing.join(_IMPORTANCE_EVERY_S)
        self._engine.close()

    def told(self) -> str:
        """Return one line on the progress."""
        if self.search.sizes:
            return f"{self._ended} of {self.search.max_jobs} sizes have ended"
        text = f"{self._ended} of {self.search.max_jobs} trials have ended"
        if self._best is not None:
            text += f", best {self.search.metric} {self._best.value:.6g} (trial {self._best.number})"
        if self._failures:
            text += f", {len(self._failures)} failed"
        return text

    @property
    def succeeded(self) -> bool:
        return self._best is not None

    def why_none(self) -> str:
        """Return why no trial has succeeded."""
        if self._failures:
            return self._failures[0]
        return "every trial was stopped or pruned before its end" if self._ended else "no trial was started"

    def _follow(self, trial: Trial, options: Mapping[str, Any] | None = None) -> _Running:
        place = RunFolder(self._folder.path.parent / trial.run_id)
        objective = (
            Throughput(place, trial.parameters[RANKS])
            if self.search.sizes
            else Objective(
                place,
                self._trial_job,
                self.search.metric,
                before=trial.before,
                most=self.search.most_values,
                until=trial.until,
                conditions=self.search.conditions,
            )
        )
        running = self._running[trial.number] = _Running(trial, place, objective, options or {})
        if place.state.exists():
            running.started = time.monotonic()
        return running

    def _start(self, running: _Running) -> None:
        try:
            trial_runs.start(self._folder, self._job, running.trial, running.options)
        except DistError as error:
            self._end(running, FAILED, None, str(error))
        else:
            running.started = time.monotonic()

    def _look(self, running: _Running) -> None:
        # Read the state first: if it is final, the objective read afterwards is complete.
        status = reader.status(running.place)
        if status.state is State.UNWATCHED:
            self._take_on(running)
        if status.state is State.PENDING or self._may_yet_start(running, status):
            return
        running.objective.refresh(final=status.state.ended)
        if not status.state.ended:
            # Many values may have arrived since the last look. The first that ends the trial counts.
            if self.search.prunes and not running.hopeless:
                self._end_if_hopeless(running)
            self._end_if_reached(running)
            if self.search.steps:
                self._end_if_enough(running, status)
        else:
            state, value, reason = self._judge(running, status)
            if status.told and running.trial.until is not None:  # its checkpoints may not have arrived
                reason = "; ".join(filter(None, (reason, status.told)))
            self._end(running, state, value, reason)

    def _may_yet_start(self, running: _Running, status: Status) -> bool:
        """Return whether its supervisor has given no sign of life yet and may still start."""
        place = running.place
        if status.state is not State.LOST or place.state.exists() or not place.job.exists():
            return False
        assert running.started is not None
        if time.monotonic() - running.started < _START_LIMIT_S:
            place.still_pending()
            return True
        place.request("kill", "it was given up before it began")  # in case it still starts
        return False

    def _end_if_hopeless(self, running: _Running) -> None:
        step = self._engine.pruned_at(running.trial.number, running.objective.compared)
        if step is not None:
            running.place.request("stop", f"{_PRUNED_BECAUSE}{step}: other trials did better by then")
            running.hopeless = True

    def _end_if_reached(self, running: _Running) -> None:
        reached = running.objective.reached
        if reached and not running.hopeless:
            running.place.request("stop", f"{_REACHED_BECAUSE}{reached}")
            running.hopeless = True

    def _end_if_enough(self, running: _Running, status: Status) -> None:
        """End the ranks that go on long after another one has taken its steps.

        They wait for it, or have no steps because only one rank logs.
        """
        done = [rank.ended for rank in status.ranks if rank.state is State.SUCCEEDED and rank.ended]
        if done and time.time() - max(done) > _ENOUGH_AFTER_S and not running.hopeless:
            running.place.request("stop", _ENOUGH_BECAUSE)
            running.hopeless = True

    def _judge(self, running: _Running, status: Status) -> tuple[str, float | None, str | None]:
        """Return state, value and reason of a trial whose run has ended."""
        if status.state is State.STOPPED and not _is_enough(status):
            return PRUNED if self._was_pruned(running, status) else STOPPED, None, status.reason
        # After the pause, a failure of other ranks does not count, nor the end of the supervisor.
        is_enough = status.state in (State.FAILED, State.LOST) and running.objective.paused
        if status.state not in (State.SUCCEEDED, State.STOPPED) and not is_enough:
            pruned = _pruned_by_cell(running.place, status)
            return FAILED if pruned is None else PRUNED, None, pruned or status.reason
        value, why = running.objective.outcome()
        if why is not None and running.trial.source is not None and not running.objective.reported:
            why += f". It continues a trial after {count(running.trial.before, 'value')}. If the cell has "
            why += "nothing left to do then, write a smaller max_t"
        return (FAILED if value is None else SUCCEEDED), value, why

    def _was_pruned(self, running: _Running, status: Status) -> bool:
        if running.trial.handle is not None:
            return self._engine.pruned_at(running.trial.number, running.objective.reported) is not None
        # A previous supervisor may have pruned it.
        return (status.reason or "").startswith(_PRUNED_BECAUSE)

    def _end(self, running: _Running, state: str, value: float | None, reason: str | None) -> None:
        steps, paused = running.objective.reported, running.objective.paused and state != STOPPED
        if paused and not self._lacks_checkpoints and checkpoints.are_missing(running.place):
            about = "in dist.checkpoint_dir() before it logged the value at which it was paused. Trials"
            without = f"{_NO_CHECKPOINT} {about} that continue from it begin from the start"
            reason = "; ".join(filter(None, (reason, without)))
        trial = dataclasses.replace(
            running.trial, state=state, value=value, reason=reason, steps=tuple(steps), paused=paused
        )
        self._ledger.ended(trial, running.objective.measured)
        self._running.pop(trial.number)
        self._count(trial)
        self._engine.tell(trial)
        if self.search.pauses:
            engine = cast(PausingEngine, self._engine)
            checkpoints.remove_old(self._folder, self.search, engine.sources())

    def _count(self, trial: Trial) -> None:
        self._ended += 1
        self._lacks_checkpoints |= _NO_CHECKPOINT in (trial.reason or "")
        if trial.state == FAILED:
            sizes = self.search.sizes
            name = count(int(trial.parameters[RANKS]), "rank") if sizes else f"trial {trial.number}"
            self._failures.append(f"{name}: {trial.reason}")
            self._diverged += any(not math.isfinite(value) for _, value in trial.steps[-1:])
        self._best = trials.best([*filter(None, [self._best]), trial], self.search)

    def _take_on(self, running: _Running) -> None:
        """Start another supervisor for a trial whose ranks have outlived theirs. That takes seconds."""
        now = time.monotonic()
        if now - running.taken_on > _TAKE_ON_EVERY_S:
            running.taken_on = now
            threading.Thread(target=_resume, args=(running.place,), daemon=True).start()

    def _weigh(self) -> None:
        """Write the importance of each parameter to the ledger, if more trials have ended.

        The first time takes a second. It runs in a thread, so that trials need not wait for their start.
        """
        now = time.monotonic()
        if (
            self.search.sizes
            or self.search.pauses  # a value also depends on what the trial continues from
            or self._ended == self._weighed
            or (not self.over and now - self._weighed_at < _IMPORTANCE_EVERY_S)
        ):
            return
        if self._weighing is not None and self._weighing.is_alive():
            if not self.over:
                return
            self._weighing.join()
        self._weighed, self._weighed_at = self._ended, now
        self._weighing = threading.Thread(target=self._write_importance, daemon=True)
        self._weighing.start()
        if self.over:
            self._weighing.join()

    def _write_importance(self) -> None:
        found = importance(self.search, trials.read(self._folder).trials)
        if found:
            self._ledger.importance(found)


def _pruned_by_cell(place: RunFolder, status: Status) -> str | None:
    """Return which rank has raised Optuna's TrialPruned, and its message; None if the trial has failed."""
    error = pruning(failures(place)) if status.state is State.FAILED else None
    if error is None:
        return None
    return one_line(f"rank {error.rank} raised {error.type}: {error.message}".removesuffix(": "), 200)


def _is_enough(status: Status) -> bool:
    return (status.reason or "").startswith((_ENOUGH_BECAUSE, _REACHED_BECAUSE))


def _resume(place: RunFolder) -> None:
    try:
        submission.resume(place)
    except DistError as error:
        print(f"run {place.id} has no supervisor: {error}", flush=True)
