"""A sweep job's life: it draws values, has a job run for each, reads its metric, and ends the hopeless ones.

How values are drawn for `Bayesian` is the service's secret: here a third of them at random, and then near the
best one so far, more closely as there are more. The policies are those that the service documents.
https://learn.microsoft.com/azure/machine-learning/how-to-tune-hyperparameters#early-termination
"""

from __future__ import annotations

import itertools
import json
import math
import random
import re
import statistics
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .command_run import CommandRun
from .job_run import JobRun

if TYPE_CHECKING:
    from .service import AzurePlane

__all__ = ["SweepRun", "is_hopeless"]


class SweepRun(JobRun):
    """Runs one sweep in a thread of its own."""

    def __init__(self, plane: AzurePlane, name: str, body: dict[str, Any], code: str) -> None:
        super().__init__(name, body)
        self._plane, self._code = plane, code
        self.asked = threading.Event()
        self.children: dict[str, CommandRun] = {}
        self.ended_early: list[str] = []
        """Its jobs that the policy has ended."""
        self._drawn: dict[str, dict[str, Any]] = {}
        self._maximize = body["objective"]["goal"] == "maximize"
        self._lock = threading.Lock()
        threading.Thread(target=self._work, name=f"sweep {name}", daemon=True).start()

    def series(self, name: str) -> list[float]:
        """The values of the primary metric that MLflow has of a job, in the order of their steps."""
        metric = self.body["objective"]["primaryMetric"]
        found = {
            each["step"]: float(each["value"])
            for each in self._plane.charted.get(name, [])
            if each["key"] == metric
        }
        return [found[step] for step in sorted(found)]

    def judge(self, name: str) -> None:
        """Whether one that has told of a metric is to go on."""
        policy, job = self.body.get("earlyTermination"), self.children.get(name)
        if policy is None or job is None or not job.active:
            return
        with self._lock:
            if name in self.ended_early:
                return  # it tells of metrics until it has heard of that
            all_of_them = {each: self.series(each) for each in self.children}
            if is_hopeless(policy, name, all_of_them, maximize=self._maximize):
                self.ended_early.append(name)
                self._plane.cancel(name)

    def _work(self) -> None:
        self.status = "Running"
        limits = self.body["limits"]
        points = self._points()
        most = limits["maxTotalTrials"]
        try:
            while not self.asked.is_set():
                running = [job for job in self.children.values() if job.active]
                if len(running) < limits["maxConcurrentTrials"] and len(self.children) < most:
                    values = next(points, None)
                    if values is not None:
                        self._begin(values)
                        continue
                    most = len(self.children)
                if not running:
                    break
                self.asked.wait(0.05)
            for name, job in self.children.items():
                if self.asked.is_set():
                    self._plane.cancel(name)
                while job.active:
                    time.sleep(0.05)
        except Exception as error:
            self.error, self.status = f"{type(error).__name__}: {error}", "Failed"
            self._plane.own_faults.note(f"sweep {self.name}")
            return
        states = {job.status for job in self.children.values()}
        self.status = "Canceled" if self.asked.is_set() else "Failed" if states == {"Failed"} else "Completed"

    def _begin(self, values: dict[str, Any]) -> None:
        name = f"{self.name}_{len(self.children)}"
        trial = self.body["trial"]

        def value(match: re.Match[str]) -> str:
            return str(values[match[1]])

        body = {
            **{key: self.body[key] for key in ("inputs", "experimentName", "computeId") if key in self.body},
            **trial,
            "jobType": "Command",
            "command": re.sub(r"\$\{\{search_space\.(\w+)\}\}", value, trial["command"]),
            "environmentVariables": {f"AZUREML_PARAMETER_{key}": str(each) for key, each in values.items()},
        }
        self._drawn[name] = values
        self.children[name] = self._plane.jobs[name] = CommandRun(
            self._plane, name, body, self._code, alone=False
        )
        self.tags[f"_aml_system_{name}"] = json.dumps(values)

    def _points(self) -> Iterator[dict[str, Any]]:
        space, sampling = self.body["searchSpace"], self.body["samplingAlgorithm"]
        kind = sampling["samplingAlgorithmType"]
        if kind == "Grid":
            for point in itertools.product(*(values for _, (values,) in space.values())):
                yield dict(zip(space, point, strict=True))
            return
        draw = random.Random(sampling.get("seed", 2))
        at_first = max(3, self.body["limits"]["maxTotalTrials"] // 3)
        while True:
            best = self._best() if kind == "Bayesian" and len(self.children) >= at_first else None
            width = 0.5 / (1 + len(self.children) - at_first) if best else 0.0
            yield {
                key: _drawn(kinds, given, draw, None if best is None else best[key], width)
                for key, (kinds, given) in space.items()
            }

    def _best(self) -> dict[str, Any] | None:
        last = {name: series[-1] for name in self.children if (series := self.series(name))}
        if not last:
            return None
        return self._drawn[(max if self._maximize else min)(last, key=lambda name: last[name])]


def _drawn(kind: str, given: list[Any], draw: random.Random, near: Any, width: float) -> Any:
    """A value of a distribution; one that is `near` another lies within that `width` of the whole."""
    if kind == "choice":
        return near if near is not None and draw.random() > width else draw.choice(given[0])
    low, high = float(given[0]), float(given[1])
    value = draw.uniform(low, high)
    if near is not None:
        value = min(max(float(near) + draw.uniform(-width, width) * (high - low), low), high)
    if "log" in kind:
        value = math.exp(value)
    return round(value / given[2]) * given[2] if kind.startswith("q") else value


def is_hopeless(
    policy: Mapping[str, Any], name: str, series: Mapping[str, list[float]], *, maximize: bool
) -> bool:
    """Whether the policy ends that job, by what all have told of the metric so far."""
    now = len(series[name])
    every = policy.get("evaluationInterval") or 1
    if not now or now % every or now < policy.get("delayEvaluation", 0):
        return False
    sign = 1 if maximize else -1
    # Larger is better from here on.
    own = max(sign * value for value in series[name])
    others = {each: [sign * value for value in told[:now]] for each, told in series.items() if told}
    kind = policy["policyType"]
    if kind == "Bandit":
        best = max(max(told) for told in others.values())
        if "slackAmount" in policy:
            return bool(own < best - policy["slackAmount"])
        factor = 1 + policy["slackFactor"]
        return bool(own < (best / factor if maximize else best * factor))
    if kind == "MedianStopping":
        return own < statistics.median(statistics.mean(told) for told in others.values())
    worst_first = sorted((max(told), each) for each, told in others.items() if len(told) >= now)
    ended = len(worst_first) * policy["truncationPercentage"] // 100
    return name in [each for _, each in worst_first[:ended]]
