"""What differs between two runs: how they were started, their code, their metrics, and where their time goes.

Equal things are only named. Times vary from run to run, so a difference of less than 5 % is none.
"""

from __future__ import annotations

import difflib
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..folder import RunFolder
from ..job import Job, rank_count
from ..record import reader
from ..record.scaling.measurement import Measurement, measure
from ..text.format import count, duration, exact, number
from ..text.safe import clean, one_line
from . import run_info
from .answers.metrics import Curve
from .answers.runs import Environment, RunInfo
from .metrics.curves import curves
from .rank_reports import said

__all__ = ["Comparison", "Difference", "Point", "compare"]

_POINTS = 2000
_MOST_NAMES = 4
_VALUE = 120
_NOISE = 0.05
_ODD_JOB = {"timeout_s": "--timeout", "stop_grace_s": "--stop-grace", "stall_timeout_s": "--stall-timeout"}


@dataclass(frozen=True)
class Difference:
    """One thing that differs, with its text in each run. Empty: the run does not have it."""

    name: str
    first: str
    second: str


@dataclass(frozen=True)
class Point:
    """A metric at one step, or at one time after the start, in both runs."""

    name: str
    at: str
    """`step 40`, or `after 12.3 s`."""
    first: str
    second: str
    change: str
    """From the first run to the second, as `-12 %`. Empty if it has no meaning."""


@dataclass
class Comparison:
    """What differs, and the names of what is equal."""

    ids: tuple[str, str]
    names: tuple[str, str]
    """Run names, with a part of the id if both are the same."""
    facts: list[Difference] = field(default_factory=list)
    parameters: list[Difference] = field(default_factory=list)
    packages: list[Difference] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    """A unified diff of the cells."""
    final: list[Point] = field(default_factory=list)
    at_steps: list[Point] = field(default_factory=list)
    at_times: list[Point] = field(default_factory=list)
    steps: list[Difference] = field(default_factory=list)
    """The parts of a mean step, over all ranks."""
    equal: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Side:
    folder: RunFolder
    job: Job
    run: RunInfo
    environment: Environment

    @classmethod
    def of(cls, folder: RunFolder) -> _Side:
        return cls(folder, reader.job(folder), run_info.full(folder), run_info.environment(folder))


def compare(first: RunFolder, second: RunFolder) -> Comparison:
    """Compare two runs. Raises RunNotFound. Unpickles nothing."""
    a, b = _Side.of(first), _Side.of(second)
    named = (a.run["name"], b.run["name"])
    if named[0] == named[1]:
        ends = [one.id.rpartition("-")[2][-4:] for one in (first, second)]  # of a trial, its number
        named = (f"{named[0]} {ends[0]}", f"{named[1]} {ends[1]}")
    found = Comparison((first.id, second.id), (one_line(named[0], 60), one_line(named[1], 60)))
    found.facts = _differing(_facts(a), _facts(b), found.equal)
    _compare_durations(found, a.run, b.run)
    _compare_named(found, "parameter", found.parameters, a.job.params, b.job.params)
    packages = [side.environment.get("packages") for side in (a, b)]
    if packages[0] is not None and packages[1] is not None:  # otherwise nobody has written them down
        _compare_named(found, "package", found.packages, packages[0], packages[1])
    _compare_code(found, a, b)
    _compare_metrics(found, a, b)
    _compare_steps(found, a, b)
    return found


def _facts(side: _Side) -> dict[str, str]:
    """Return the facts of a run that are compared by their text."""
    run, job, git = side.run, side.job, side.environment.get("git")
    hosts = sorted({str(rank["host"]) for rank in run["ranks"] if rank["host"]})
    commit = "" if not git else git["commit"][:10] + (", changed" if git["dirty"] else "")
    facts = {
        "state": run["state"],
        "reason": run["reason"],
        "backend": run["backend"],
        "cluster": run["cluster"],
        "ranks": run["world_size"],
        "hosts": ", ".join(hosts),
        "attempts": run["attempt"] + 1,
        "notebook": run["notebook"],
        "flags": job.line,
        "tags": ", ".join(run.get("tags", ())),
        "note": run.get("note"),
        "Python": side.environment.get("python"),
        "platform": side.environment.get("platform"),
        "commit": commit,
        "--max-restarts": job.max_restarts,
        "--metric": ", ".join(f"{name}={pattern}" for name, pattern in sorted(job.metrics.items())),
        "--env": ", ".join(sorted(job.env_names)),
        **{name: getattr(job, key) for key, name in _ODD_JOB.items()},
        **{f"--{name.replace('_', '-')}": value for name, value in sorted(_options(job).items())},
    }
    return {name: _text(value) for name, value in facts.items()}


def _compare_durations(found: Comparison, a: RunInfo, b: RunInfo) -> None:
    times = [
        run["ended"] - run["started"]
        for run in (a, b)
        if run["started"] is not None and run["ended"] is not None
    ]
    if len(times) < 2:
        return
    if _is_noise(times[0], times[1]):
        found.equal.append("duration (within 5 %)")
    else:
        found.facts.append(Difference("duration", duration(times[0]), duration(times[1])))


def _is_noise(first: float, second: float) -> bool:
    """Return whether two times, or two rates, differ no more than those of equal runs do."""
    return abs(first - second) <= _NOISE * max(first, second)


def _options(job: Job) -> Mapping[str, Any]:
    return job.options if job.tuning is None else job.options.get("options", {})


def _text(value: object) -> str:
    return "" if value is None else one_line(number(value) if type(value) is float else str(value), _VALUE)


def _differing(a: Mapping[str, str], b: Mapping[str, str], equal: list[str]) -> list[Difference]:
    found = []
    for name in dict.fromkeys((*a, *b)):
        first, second = a.get(name, ""), b.get(name, "")
        if first != second:
            found.append(Difference(name, first, second))
        elif first and not name.startswith("-"):
            equal.append(name)
    return found


def _compare_named(
    found: Comparison, noun: str, into: list[Difference], a: Mapping[str, Any], b: Mapping[str, Any]
) -> None:
    names = dict.fromkeys((*a, *b))
    first, second = ({name: _text(one.get(name)) for name in names} for one in (a, b))
    differing = _differing(first, second, [])
    into += differing
    if same := len(names) - len(differing):
        found.equal.append(count(same, noun))


def _compare_code(found: Comparison, a: _Side, b: _Side) -> None:
    first, second = (side.job.source.splitlines() for side in (a, b))
    lines = difflib.unified_diff(first, second, *found.names, lineterm="")
    found.code = [clean(line, limit=400, colour=False) for line in lines]
    if not found.code:
        found.equal.append("code")


class _Line:
    """One metric of a run over steps: its only rank, or the mean of all ranks, as far as all have come."""

    def __init__(self, curve: Curve, began: float | None) -> None:
        band = curve["band"]
        if band is not None:
            whole = band["whole"]
            points = list(zip(band["steps"][:whole], band["mean"], band["times"], strict=False))
        else:
            ranks = curve["ranks"]
            points = list(zip(ranks[0]["steps"], ranks[0]["values"], ranks[0]["times"], strict=True))
        self.by_step = sorted((step, value) for step, value, _ in points if value is not None)
        timed = [
            (step, value, time - began)
            for step, value, time in points
            if value is not None and time is not None and began is not None
        ]
        self.by_time = sorted((seconds, value) for _, value, seconds in timed)
        self.reached = {step: seconds for step, _, seconds in timed}
        """Step → seconds after the start."""

    def is_as_fast(self, other: _Line) -> bool:
        """Return whether both runs have reached their last common step after about the same time."""
        common = self.reached.keys() & other.reached.keys()
        if not common:
            return True
        first, second = self.reached[max(common)], other.reached[max(common)]
        return _is_noise(first, second)


def _compare_metrics(found: Comparison, a: _Side, b: _Side) -> None:
    final = [side.run.get("final", {}) for side in (a, b)]
    same = 0
    for name in dict.fromkeys((*final[0], *final[1])):
        first, second = (one.get(name) for one in final)
        if first is not None and second is not None and _same(first, second):
            same += 1
        else:
            found.final.append(_point(name, "", first, second))
    if same:
        found.equal.append(count(same, "final value"))
    lines = [
        {
            curve["name"]: _Line(curve, side.run["started"])
            for curve in curves(side.folder, None, _POINTS)["curves"]
            if curve["ranks"]
        }
        for side in (a, b)
    ]
    alike = []
    for name in (name for name in lines[0] if name in lines[1]):
        one, other = lines[0][name], lines[1][name]
        if not _common(one.by_step, other.by_step):
            continue
        points = _points(name, one.by_step, other.by_step, lambda step: f"step {exact(step)}")
        if not points:
            alike.append(one_line(name, 60))
        found.at_steps += points
        if points or not one.is_as_fast(other):
            found.at_times += _points(
                name, one.by_time, other.by_time, lambda seconds: f"after {duration(seconds)}"
            )
    if alike:
        told = ", ".join(alike) if len(alike) <= _MOST_NAMES else count(len(alike), "metric")
        found.equal.append(f"{told} at equal steps")


def _points(
    name: str, a: Sequence[tuple[float, float]], b: Sequence[tuple[float, float]], told: Any
) -> list[Point]:
    """Return the metric at some places that both runs have reached, if it differs anywhere."""
    places = _common(a, b)
    if all(_same(_at(a, x), _at(b, x)) for x in places):
        return []
    wanted = [places[0] + part * (places[-1] - places[0]) for part in (0.25, 0.5, 1)]
    shown = sorted({_nearest(places, x) for x in wanted})
    return [_point(name, told(x), _at(a, x), _at(b, x)) for x in shown]


def _nearest(places: Sequence[float], wanted: float) -> float:
    return min(places, key=lambda place: abs(place - wanted))


def _common(a: Sequence[tuple[float, float]], b: Sequence[tuple[float, float]]) -> list[float]:
    """Return the places of `a` in the range of both, in ascending order."""
    if not a or not b:
        return []
    first, last = max(a[0][0], b[0][0]), min(a[-1][0], b[-1][0])
    return [x for x, _ in a if first <= x <= last]


def _at(points: Sequence[tuple[float, float]], x: float) -> float:
    """Return the value at that place. Between two values it is on the line between them."""
    after = bisect_right(points, (x, math.inf))
    before, value = points[max(0, after - 1)]
    if after == 0 or after == len(points):
        return value
    beyond, next_value = points[after]
    return value + (next_value - value) * (x - before) / (beyond - before)


def _same(first: float, second: float) -> bool:
    return math.isclose(first, second, rel_tol=1e-6) or (math.isnan(first) and math.isnan(second))


def _point(name: str, at: str, first: float | None, second: float | None) -> Point:
    texts = ["" if one is None else number(one) for one in (first, second)]
    if texts[0] == texts[1]:
        texts = ["" if one is None else f"{one:.8g}" for one in (first, second)]
    change = ""
    if first and second is not None and math.isfinite(first) and math.isfinite(second):
        change = f"{(second - first) / abs(first):+.1%}".replace("%", " %")
    return Point(one_line(name, 60), at, texts[0], texts[1], change)


def _compare_steps(found: Comparison, a: _Side, b: _Side) -> None:
    measured = [_measured(side) for side in (a, b)]
    if not any(measured):
        return
    texts: list[dict[str, float]] = [{} if one is None else dict(_parts(one)) for one in measured]
    equal = []
    for name in dict.fromkeys((*texts[0], *texts[1])):
        first, second = (one.get(name) for one in texts)
        if first is not None and second is not None and _is_noise(first, second):
            equal.append(name)
        else:
            values = ["" if one is None else _shown(name, one) for one in (first, second)]
            found.steps.append(Difference(name, values[0], values[1]))
    if equal:
        found.equal.append(f"{', '.join(equal)} (within 5 %)")


def _measured(side: _Side) -> Measurement | None:
    status = reader.status(side.folder)
    size = rank_count(side.job, status)
    return measure(said(side.folder, status.attempt, size).refresh().steps, size)


def _parts(one: Measurement) -> Iterable[tuple[str, float]]:
    parts = {
        "step": one.step_s,
        "waiting for data": one.data_s,
        "computing": one.compute_s,
        "waiting in collectives": one.collectives_s,
        "steps/s": one.steps_per_s,
        "samples/s": one.samples_per_s,
    }
    return [(name, value) for name, value in parts.items() if value is not None]


def _shown(name: str, value: float) -> str:
    return number(value) if name.endswith("/s") else f"{1000 * value:.3g} ms"
