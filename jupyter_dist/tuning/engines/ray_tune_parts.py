"""Ray Tune objects for a tuning run: the desk, the trainable that waits at it, and the Tuner.

The classes are defined in a function, so that Ray pickles them by value. The nodes then need not have this
package.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...backends.ray.connection import NAMESPACE
from ...record.trials import SUCCEEDED, Trial
from ...search.dimensions import Choice, Real
from ...search.spec import Search
from .optuna_engine import startup_trials
from .optuna_space import distributions, to_optuna

__all__ = ["Parts", "make", "tuner"]

_ENDLESS = 1 << 30
"""Number of values that no trial logs, so that no trial is ended for having logged enough."""
_OBJECTIVE = "objective"
_VALUES = "values"
"""The time of schedulers: how many values a trial has logged."""
_UNPAUSED: Mapping[str, Any] = {"min_time_slice": math.inf}
"""MedianStoppingRule pauses a trial for another one that waits. A run cannot be paused."""


@dataclass(frozen=True)
class Parts:
    """Ray objects. `open_desk` returns the actor. The others are for the Tuner."""

    open_desk: Callable[[], Any]
    trainable: Any
    callback: Any


def make(run_id: str) -> Parts:
    """Create the objects for a tuning run. Imports Ray Tune, which takes seconds."""
    import ray
    from ray import tune

    # The actor of a supervisor that has just died may still have its name.
    name = f"desk-{run_id}-{secrets.token_hex(4)}"

    class Desk:
        """Exchange of messages between Tune's trials and the engine."""

        def __init__(self) -> None:
            self.begun: list[Any] = []
            self.stopped: list[tuple[str, int]] = []
            self.news: dict[str, list[Any]] = {}
            self.ends: dict[str, Any] = {}

        def exchange(self, news: Any, ends: Any) -> Any:
            """Store what trials have logged and how they ended.

            Returns which trials Tune has begun, and which it has ended after how many values.
            """
            for trial, points in news:
                self.news.setdefault(trial, []).extend(points)
            self.ends.update(ends)
            told, self.begun, self.stopped = (self.begun, self.stopped), [], []
            return told

        def begin(self, trial: str, config: Any) -> None:
            self.begun.append((trial, config))

        def end(self, trial: str, values: int) -> None:
            self.stopped.append((trial, values))

        def next(self, trial: str, at: int) -> Any:
            """Return the next point, or the end if there are no more points, or neither."""
            points = self.news.get(trial, [])
            return (points[at], None) if at < len(points) else (None, self.ends.get(trial))

    class JupyterDistTrial(tune.Trainable):  # type: ignore[misc]
        """A trial in Tune. The engine starts the run that belongs to it."""

        def setup(self, config: Any) -> None:
            import ray

            self.desk = ray.get_actor(name, namespace=NAMESPACE)
            self.at, self.values = 0, 0
            ray.get(self.desk.begin.remote(self.trial_id, dict(config)))

        def reset_config(self, config: Any) -> bool:
            self.setup(config)
            return True

        def step(self) -> Any:
            import time

            import ray

            while True:
                point, end = ray.get(self.desk.next.remote(self.trial_id, self.at))
                if point is not None:
                    self.at += 1
                    self.values = point[0]
                    return {_OBJECTIVE: point[1], _VALUES: self.values}
                if end is not None:
                    state, value = end
                    if state != "succeeded":
                        raise RuntimeError(f"the run of this trial has {state}")
                    # Schedulers compare later results of other trials with this one, at its time.
                    return {_OBJECTIVE: value, _VALUES: self.values, "done": True}
                time.sleep(0.05)

        def save_checkpoint(self, checkpoint_dir: str) -> Any:
            return {}

    class Told(tune.Callback):  # type: ignore[misc]
        """Callback that reports to the desk which trials Tune has ended."""

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            import ray

            values = (trial.last_result or {}).get(_VALUES, 0)
            ray.get_actor(name, namespace=NAMESPACE).end.remote(trial.trial_id, values)

    def open_desk() -> Any:
        return ray.remote(num_cpus=0)(Desk).options(name=name, namespace=NAMESPACE).remote()

    return Parts(open_desk, JupyterDistTrial, Told())


def tuner(
    search: Search,
    parts: Parts,
    place: str,
    *,
    samples: int,
    begun: Sequence[Mapping[str, Any]],
    ended: Sequence[Trial],
) -> Any:
    """Return a Tuner that begins with the `begun` trials and has learned the `ended` ones.

    `place`: a folder.
    """
    import ray
    from ray import tune

    grid = search.strategy == "grid"
    client = ray.util.client.ray.is_connected()
    # Trials of Tune need no resources. They run on Tune's node, where Tune stores files.
    node = "node:__internal_head__" if client else f"node:{ray.util.get_node_ip_address()}"
    room = tune.PlacementGroupFactory([{"CPU": 0, node: 0.0001}])
    algorithm = _algorithm(search, begun, ended)
    return tune.Tuner(
        tune.with_resources(parts.trainable, room),
        param_space=_grid(search) if grid else _domains(search) if search.strategy == "random" else {},
        tune_config=tune.TuneConfig(
            metric=_OBJECTIVE,
            mode=search.goal,
            num_samples=1 if grid else samples,
            max_concurrent_trials=None if search.strategy in ("grid", "random") else search.parallel,
            search_alg=algorithm,
            scheduler=_scheduler(search),
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(storage_path=place, name="tune", verbose=0, callbacks=[parts.callback]),
    )


def _algorithm(search: Search, begun: Sequence[Mapping[str, Any]], ended: Sequence[Trial]) -> Any:
    """Return Tune's search algorithm. https://docs.ray.io/en/latest/tune/api/suggestion.html"""
    from ray.tune.search import BasicVariantGenerator

    seed = None if search.seed is None else search.seed + len(begun) + len(ended)
    if search.strategy == "grid":
        return BasicVariantGenerator(constant_grid_search=True, max_concurrent=search.parallel)
    if search.strategy == "random":
        first = [dict(one) for one in begun]
        return BasicVariantGenerator(first, max_concurrent=search.parallel, random_state=seed)
    import optuna
    from ray.tune.search.optuna import OptunaSearch

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(
        n_startup_trials=startup_trials(search), constant_liar=True, seed=seed
    )
    found = OptunaSearch(
        space=distributions(search),
        metric=_OBJECTIVE,
        mode=search.goal,
        sampler=sampler,
        points_to_evaluate=[dict(one) for one in begun],
    )
    for trial in ended:
        # OptunaSearch cannot learn from a parent's trial that has only some of the parameters.
        if trial.state == SUCCEEDED and trial.parameters.keys() == search.space.keys():
            found.add_evaluated_point(to_optuna(search, trial.parameters), trial.value)
    return found


def _scheduler(search: Search) -> Any:
    """Return Tune's scheduler, for which a unit of time is a logged value.

    https://docs.ray.io/en/latest/tune/api/schedulers.html
    """
    from ray.tune import schedulers

    asked = search.schedule
    if asked is not None:
        own = dict(asked.own)
        if asked.kind == "median":
            del own["max_t"]
            return schedulers.MedianStoppingRule(time_attr=_VALUES, **own, **_UNPAUSED)
        # Tune's HyperBandScheduler pauses trials, and a run cannot be paused. Several brackets of ASHA do
        # the same without pauses. The tuning loop ends a trial after max_t values, because it has succeeded.
        return schedulers.ASHAScheduler(
            time_attr=_VALUES, stop_last_trials=False, brackets=asked.brackets, **own
        )
    if search.strategy == "hyperband":
        return schedulers.ASHAScheduler(max_t=_ENDLESS, grace_period=1, reduction_factor=3)
    if search.early_stopping:
        least = max(2, min(5, search.max_jobs // 4))
        return schedulers.MedianStoppingRule(grace_period=0, min_samples_required=least, **_UNPAUSED)
    return schedulers.FIFOScheduler()


def _domains(search: Search) -> dict[str, Any]:
    """Return Tune's domains. Choices are indices, as in `optuna_space`."""
    from ray import tune

    found: dict[str, Any] = {}
    for name, one in search.space.items():
        if isinstance(one, Choice):
            found[name] = tune.choice(list(range(len(one.values))))
        elif one.step not in (None, 1):
            found[name] = tune.choice(list(one.points() or ()))  # because Tune's own steps count from 0
        elif isinstance(one, Real):
            found[name] = (tune.loguniform if one.log else tune.uniform)(one.low, one.high)
        else:
            found[name] = (tune.lograndint if one.log else tune.randint)(one.low, one.high + 1)
    return found


def _grid(search: Search) -> dict[str, Any]:
    from ray import tune

    return {
        name: tune.grid_search(
            list(range(len(one.values))) if isinstance(one, Choice) else list(one.points() or ())
        )
        for name, one in search.space.items()
    }
