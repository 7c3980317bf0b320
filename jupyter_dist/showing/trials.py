"""The trials of a tuning run as a table: a DataFrame for code, the best trials in a few lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import backends
from ..errors import DistError
from ..folder import RunFolder
from ..job import Job
from ..record import reader, trials
from ..record.trials import RUNNING, SUCCEEDED, Trial
from ..search.spec import RANKS, Search
from ..text.format import count, duration, number
from ..text.safe import one_line
from ..worker import listing

if TYPE_CHECKING:
    import pandas

__all__ = ["TrialLines", "best", "frame", "headline", "parameters_line", "rows"]


_FIRST, _LAST = ("number", "state", "value"), ("reason", "started", "ended", "run", "job")
_SOURCE = ("from_trial", "from_iteration")
"""Columns of a search whose trials continue from each other's checkpoints."""
_SHOWN = 12
_VALUE = 40


def _tuning(folder: RunFolder) -> tuple[Search, list[Trial]]:
    about = reader.job(folder).tuning
    if about is None:
        raise DistError(f"run {folder.id} is no tuning run, because it was started without --tune")
    return trials.search_of(about), trials.read(folder).trials


def frame(folder: RunFolder) -> pandas.DataFrame:
    """Return the trials as a DataFrame. See `Run.trials`."""
    import pandas

    search, found = _tuning(folder)
    are_runs = reader.job(folder).backend == backends.TRIALS
    # A parameter may have the name of one of our columns. Then the parameter is renamed.
    own = (*_FIRST, *_LAST, *_SOURCE)
    shown = {name: name if name not in own else f"{name}_" for name in search.space}
    table = [
        {
            "number": trial.number,
            "state": trial.state,
            "value": trial.value,
            **{shown[name]: trial.parameters.get(name) for name in search.space},
            "reason": trial.reason,
            "started": trial.started,
            "ended": trial.ended,
            "run": trial.run_id if are_runs else None,
            "job": _job_of(trial),
            "from_trial": None if trial.source is None else trial.source.trial,
            "from_iteration": trial.before,
        }
        for trial in found
    ]
    columns, types = [*_FIRST, *shown.values(), *_LAST], {"number": "int64", "value": "float64"}
    if search.pauses:
        columns += _SOURCE
        types |= dict.fromkeys(_SOURCE, "Int64")
    typed: pandas.DataFrame = pandas.DataFrame(table, columns=columns).astype(
        {**types, "started": "float64", "ended": "float64"}
    )
    for name in ("started", "ended"):
        typed[name] = pandas.to_datetime(typed[name], unit="s", utc=True)
    return typed


def best(folder: RunFolder) -> RunFolder:
    """Return the folder of the best trial, which may be a trial of a parent. Raises DistError."""
    search, found = _tuning(folder)
    trial = trials.overall_best(folder.path.parent, found, search)
    if trial is None:
        why = next((f"; trial {one.number}: {one.reason}" for one in found if one.reason), "")
        raise DistError(f"no trial of run {folder.id} has succeeded{why or ' yet'}")
    place = RunFolder(folder.path.parent / trial.run_id)
    elsewhere = trial.run_id
    if ":" not in elsewhere:
        if trial.handle is None or place.job.exists():
            return place
        elsewhere = f"{reader.job(folder).where}:{_job_of(trial)}"
    of = " of a parent" if trial.number < 0 else ""
    raise DistError(
        f"the best trial is {elsewhere}{of}, with {_value(trial, search)}: {parameters_line(trial)}. "
        f"To show it: jupyter_dist.attach({elsewhere!r})"
    )


def _job_of(trial: Trial) -> str | None:
    """Return the name that a platform's tuning has given to the trial's job."""
    return next(map(str, (trial.handle or {}).values()), None)


def _value(trial: Trial, search: Search) -> str:
    return f"{one_line(search.metric, 60)} {number(trial.value or 0.0)}"


def headline(job: Job, folder: RunFolder) -> str:
    """Return for example `9 of 12 trials (2 pruned), 1 runs; best val_accuracy 0.93: lr=0.01 (trial 4)`."""
    assert job.tuning is not None
    search, found = trials.search_of(job.tuning), trials.read(folder).trials
    states = [trial.state for trial in found]
    ended = len(states) - states.count(RUNNING)
    odd = [f"{states.count(state)} {state}" for state in ("failed", "pruned", "stopped") if state in states]
    text = f"{ended} of {search.max_jobs} trials"
    if odd:
        text += f" ({', '.join(odd)})"
    if RUNNING in states:
        text += f", {states.count(RUNNING)} running"
    first = trials.best(found, search)
    if first is not None:
        text += f"; best {_value(first, search)}: {parameters_line(first)} (trial {first.number})"
    overall = trials.overall_best(folder.path.parent, found, search)
    if overall is not None and overall is not first:
        word = "best" if first is None else "better"
        text += (
            f"; {word} in a parent, {_value(overall, search)}: {parameters_line(overall)} ({overall.run_id})"
        )
    return text


def rows(job: Job, folder: RunFolder) -> tuple[tuple[str, ...], list[tuple[str, ...]], int]:
    """Return the columns, the rows of running and best trials, and the number of trials left out."""
    assert job.tuning is not None
    search, found = trials.search_of(job.tuning), trials.read(folder).trials
    sign = -1.0 if search.goal == "max" else 1.0

    def rank(trial: Trial) -> tuple[Any, ...]:
        if trial.state == SUCCEEDED and trial.value is not None:
            return (1, sign * trial.value, trial.number)
        return (0 if trial.state == RUNNING else 2, 0.0, trial.number)

    ordered = sorted(found, key=rank)
    names = list(search.space)
    source = ("from",) * search.pauses
    columns = ("trial", "state", one_line(search.metric, 40), *names, *source, "duration", "why")
    shown = [_row(trial, names, search.pauses) for trial in ordered[:_SHOWN]]
    return columns, shown, max(0, len(ordered) - _SHOWN)


def _row(trial: Trial, names: list[str], has_sources: bool) -> tuple[str, ...]:
    return (
        str(trial.number),
        one_line(trial.state, 20),
        "" if trial.value is None else number(trial.value),
        *(_shown(trial.parameters.get(name)) for name in names),
        *((_source(trial),) if has_sources else ()),
        "" if trial.ended is None else duration(trial.ended - trial.started),
        one_line(trial.reason or "", 80),
    )


def _source(trial: Trial) -> str:
    return "" if trial.source is None else f"trial {trial.source.trial} at {count(trial.before, 'value')}"


def _shown(value: object) -> str:
    return number(value) if isinstance(value, float) else one_line(str(value), _VALUE)


class TrialLines:
    """Reader of new lines of the trial ledger. A run that is not a tuning run never has new lines."""

    def __init__(self, folder: RunFolder, job: Job) -> None:
        self._folder = folder
        self._search = None if job.tuning is None else trials.search_of(job.tuning)
        self._size = 0
        self._told: set[int] = set()

    def new(self) -> list[str]:
        """Return a line for each trial that has ended since the last call."""
        if self._search is None:
            return []
        size = listing.size(self._folder.trials)
        if size in (0, self._size):
            return []
        self._size = size
        lines = []
        for trial in trials.read(self._folder).trials:
            if trial.state != RUNNING and trial.number not in self._told:
                self._told.add(trial.number)
                lines.append(_line(trial, self._search))
        return lines


def _line(trial: Trial, search: Search) -> str:
    took = "" if trial.ended is None else f" in {duration(trial.ended - trial.started)}"
    what = (
        one_line(trial.reason or "", 200)
        if trial.value is None
        else f"{one_line(search.metric, 60)} {number(trial.value)}"
    )
    if trial.source is not None:
        what = f"from {_source(trial)}: {what}"
    if trial.value is not None and trial.reason is not None:
        what += f"; {one_line(trial.reason, 300)}"
    if search.sizes:
        return f"{count(int(trial.parameters[RANKS]), 'rank')} {one_line(trial.state, 20)}{took}: {what}"
    return f"trial {trial.number} {one_line(trial.state, 20)}{took}: {what} ({parameters_line(trial)})"


def parameters_line(trial: Trial) -> str:
    """Return for example `lr=0.01, batch=32`."""
    return ", ".join(
        f"{name}={number(value) if isinstance(value, float) else one_line(str(value), 40)}"
        for name, value in trial.parameters.items()
    )
