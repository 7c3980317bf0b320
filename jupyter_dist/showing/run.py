"""`Run`: the user's object for a run. Every attribute is read from the run's folder at each access."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DistError, InputError, RunFailed, RunStopped
from ..folder import RunFolder
from ..job import Job, State, Status, rank_count
from ..launch import submission
from ..manage import run_experiment, run_model, stack_request, trace_request
from ..manage import stop as stop_runs
from ..queries.rank_reports import said
from ..record import reader, run_labels
from ..record.failures import failures, stacks
from ..record.failures.failures import RankError
from ..record.logs import interleaved_log
from ..record.metrics import points as metric_points
from ..record.metrics import usage_points
from ..record.outputs.logged_media import Media, media_of
from ..record.outputs.results import Results
from ..record.steps.step_times import RunSteps
from ..text.format import attach_call
from . import display, failure_report
from . import scaling as scaling_report
from . import summary as _summary
from . import trials as trial_table

if TYPE_CHECKING:
    import pandas

__all__ = ["Run"]

_METRIC_COLUMNS = ("rank", "step", "name", "value", "time")
_PROFILE_COLUMNS = "steps step_s data_s compute_s collectives_s samples_per_s gc gc_s by".split()
_MAX_PAUSE_S = 0.05


class Run:
    """One run, running or ended, new or old. Creating a `Run` reads nothing and starts nothing."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._results: Results | None = None
        self._shown: _summary.Summary | None = None
        self._shown_in: str | None = None

    @property
    def id(self) -> str:
        return self.folder.id

    @property
    def job(self) -> Job:
        """The job of the run. Raises RunNotFound if the folder is gone."""
        return reader.job(self.folder)

    @property
    def params(self) -> dict[str, Any]:
        """The small values that the cell uses, recorded automatically.

        For a trial, with the values that it tries.
        """
        return self.job.params

    @property
    def name(self) -> str:
        """The run's name, set by `--name` or here. A run without a name uses its cell's label."""
        return run_labels.read(self.folder).name or self.job.label or self.id

    @name.setter
    def name(self, name: str) -> None:
        run_labels.change(self.folder, name=name)

    @property
    def tags(self) -> tuple[str, ...]:
        """The run's tags. Assign new ones, as in `run.tags = ("baseline", "large")`."""
        return run_labels.read(self.folder).tags

    @tags.setter
    def tags(self, tags: str | Iterable[str]) -> None:
        run_labels.change(self.folder, tags=tags)

    @property
    def note(self) -> str:
        """A note on the run. Assign a new text to change it."""
        return run_labels.read(self.folder).note

    @note.setter
    def note(self, note: str) -> None:
        run_labels.change(self.folder, note=note)

    @property
    def status(self) -> Status:
        """The current state of the run and of each of its ranks."""
        return reader.status(self.folder)

    @property
    def state(self) -> State:
        return self.status.state

    @property
    def results(self) -> Results:
        """The ranks' results by rank. Each is unpickled at its first access.

        Raises DistError if the run has not ended.
        """
        status = self.status
        if not status.state.ended:
            raise DistError(
                f"run {self.id} is still {status.state} and has no results yet. Wait for its end: "
                f"{attach_call(self.id)}.wait()"
            )
        if self._results is None:
            self._results = Results(self.folder, status, rank_count(self.job, status))
        return self._results

    @property
    def metrics(self) -> pandas.DataFrame:
        """The metrics logged so far: columns rank, step, name, value, time (seconds since the epoch)."""
        return _frame(metric_points.points(self.folder))

    @property
    def system_metrics(self) -> pandas.DataFrame:
        """The resource usage of each rank so far. It has the columns of `metrics`, without steps.

        The names are `system/cpu` (percent of a core), `system/memory` (bytes), `system/gpu` (percent),
        `system/gpu_memory` (bytes), `system/net_in` and `system/net_out` (bytes a second, of the host).
        `pandas.concat([run.metrics, run.system_metrics])` has both.
        """
        return _frame(usage_points.points(self.folder))

    @property
    def profile(self) -> pandas.DataFrame:
        """Where the time of the training steps goes so far, in the newest attempt: a row for each rank.

        - `steps`, and `step_s`: the number of steps, and the seconds of a step.
        - `data_s`, `collectives_s`: the seconds of a step in which the rank waited for data, and in
          collectives. NaN if the rank has seen none.
        - `compute_s`: the rest of the step. It contains what no other column measures.
        - `samples_per_s`: NaN if the size of the batches is unknown.
        - `gc`, `gc_s`: the number of garbage collections, and their seconds in all.
        - `by`: what ended a step: "optimizer" (torch), "batch" (Keras), "progress" (`dist.progress`) or "log"
          (`dist.log`).
        """
        status = self.status
        return _profile(said(self.folder, status.attempt, rank_count(self.job, status)).refresh().steps)

    @property
    def media(self) -> Media:
        """The media logged so far, for example with `dist.log(image=figure)`.

        Each item has name, step, rank, type, time and data. `run.media.of("samples", step=3)` returns some of
        them.
        """
        return media_of(self.folder, self.status.attempt)

    @property
    def trials(self) -> pandas.DataFrame:
        """The trials of a tuning run so far, one row each.

        The columns are number, state, value (of the objective), one for each parameter, reason, started,
        ended, run and job. The times are datetimes in UTC. `run` is the trial's id, which `attach` accepts.
        It is None if somebody else has started the tuning. `job` is the name that the platform's tuning has
        given to the trial's job, or None.
        Raises DistError if the run is not a tuning run.
        """
        return trial_table.frame(self.folder)

    @property
    def scaling(self) -> pandas.DataFrame:
        """The sizes of a run with --scaling so far, a row for each number of ranks.

        - `throughput`, `unit`: samples/s, or steps/s if the size of the batches is unknown, of all ranks.
        - `speedup`, `efficiency`: against the smallest size. `low`, `high`: the range of the efficiency.
        - `limit`, `why`: data, compute, communication, straggler or unknown.
        - `step_s`, `data_s`, `compute_s`, `collectives_s`: the seconds of a rank's mean step.
        - `usd_per_hour`, `usd_per_million`: the list price, if the backend knows it.
        - `projected`: whether nobody has measured this size. The range is then what two laws say.
        - `state`, `reason`, `run`: the run of this size, whose id `attach` accepts.

        Raises DistError if the run was started without --scaling.
        """
        return scaling_report.frame(self.folder)

    @property
    def best(self) -> Run:
        """The best trial of a tuning run so far, as a run with `results` and `metrics`.

        Its parameters are in `job.trial["parameters"]`. If the tuning run began with the trials of others
        (`--warm-start`, without :transfer), the best one of them all counts.
        Raises DistError if no trial has succeeded yet, or the run is not a tuning run. If jupyter-dist did
        not start the best one, the DistError names its job.
        """
        return Run(trial_table.best(self.folder))

    @property
    def experiment(self) -> pandas.DataFrame:
        """All runs of the platform's experiment that has this run (`--experiment`), a row for each.

        The columns are name, component, trial, state, started and ended, then a column for each parameter,
        for the last value of each metric, and for the address of each input and output. A parameter or metric
        with the name of one of the first columns gets an underscore, as in `state_`. The rows include runs of
        other people, tuning runs and their trials. Blocks while the platform is asked. Raises DistError if
        the run is in no experiment. Only `sagemaker` has experiments.
        """
        return run_experiment.frame(self.job)

    @property
    def model(self) -> Path:
        """The folder with the files that ranks have put into `dist.model_dir()`.

        A platform such as `sagemaker` keeps these files itself, in S3. Then the first access downloads them,
        and blocks until all are here. Raises DistError if the run has not ended, or if there are no files.
        """
        return run_model.model(self.folder)

    @property
    def errors(self) -> list[RankError]:
        """The failures of ranks: the root cause first, failures that followed from it last."""
        return failures.failures(self.folder)

    def log(self, rank: int | None = None, attempt: int | None = None) -> str:
        """Return a rank's whole output as written, or that of all ranks by time, each line after `[rank] `.

        If a rank rewrote lines by moving the cursor up, as nested progress bars do, only their last version
        appears. The log file has all versions. By default the log is that of the newest attempt. Raises
        InputError if there is no such rank or attempt.
        """
        known, status = self.folder.attempts(), self.status
        if attempt is None:
            attempt = status.attempt
        elif attempt not in known:
            raise InputError(f"run {self.id} has no attempt {attempt}; it has {known}")
        size = reader.rank_count_of(self.folder, status, attempt)
        if rank is None:
            return interleaved_log.interleaved(self.folder, range(size), attempt)
        if not 0 <= rank < size:
            raise InputError(f"run {self.id} has ranks 0 to {size - 1}, not {rank}")
        return interleaved_log.unrolled(self.folder, rank, attempt).decode("utf-8", "replace")

    def wait(self, timeout_s: float | None = None) -> Run:
        """Wait until the run has ended, in whatever state, and return the run itself. Blocks.

        Nobody would see the end of an unwatched run. So this method starts another supervisor for it, once,
        which takes seconds. Raises DistError with the next step if that fails, or if the run is unwatched
        again. Raises TimeoutError if the run has not ended after `timeout_s`. The run itself continues.
        """
        taken_on = False
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        pause = 0.002
        while not (status := self.status).state.ended:
            left = _MAX_PAUSE_S if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"run {self.id} is still {status.state} after {timeout_s:g} s")
            if status.state is State.UNWATCHED:
                if taken_on:
                    raise DistError(failure_report.unwatched(status))
                taken_on = submission.resume(self.folder)
            time.sleep(min(pause, left))
            pause = min(_MAX_PAUSE_S, 1.5 * pause)
        return self

    def stop(self, kill: bool = False) -> None:
        """Request the end of the run: SIGTERM and time to write, or SIGKILL with `kill`.

        Does not wait. Repeatable.

        For an unwatched run, another supervisor is started first, which takes seconds.
        """
        stop_runs.stop(self.folder, kill=kill)

    def stacks(self, timeout_s: float = 5.0, all_threads: bool = False) -> stacks.Stacks:
        """Return where every running rank is in its Python code, without stopping the rank."""
        return stack_request.take(self.folder, timeout_s, all_threads=all_threads)

    def trace(self, steps: int | None = None, for_s: float | None = None) -> Path:
        """Trace some training steps of all running ranks with torch's profiler, into one file for Perfetto.

        `steps`: the number of steps, by default 10. `for_s`: the length in seconds instead. Blocks until the
        file is there. The ranks continue to train. Raises DistError if no rank can be traced.
        """
        return trace_request.take(self.folder, steps, for_s).path

    def raise_for_state(self) -> None:
        """Raise RunFailed (also for a lost run) or RunStopped with the reason, otherwise do nothing.

        Raises DistError for an unwatched run, because nobody would see its end. The message has the next
        step.
        """
        status = self.status
        if status.state is State.UNWATCHED:
            raise DistError(failure_report.unwatched(status))
        if status.state in (State.FAILED, State.LOST):
            raise RunFailed(failure_report.failure(self.folder, status), self)
        if status.state is State.STOPPED:
            raise RunStopped(failure_report.stopped(self.folder, status), self)

    def __repr__(self) -> str:
        try:
            return f"<Run {self.id} {_summary.title_of(self.job, self.status)}>"
        except DistError as error:
            return f"<Run {self.id}: {error}>"

    def _is_shown(self) -> None:
        """Note that the run's view is under the current cell. The cell's result then does not repeat it."""
        self._shown_in = display.cell_id()

    def _story_is_shown(self) -> bool:
        """Return whether the current cell's view already contains the whole report of a failure."""
        return self._shown_in is not None and self._shown_in == display.cell_id()

    def _ipython_display_(self) -> None:
        if not self._story_is_shown():
            raise NotImplementedError  # then IPython uses the bundle

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        summary = self._summary()
        if summary is None:
            return {"text/plain": repr(self)}
        if not display.in_kernel():
            return {"text/plain": summary.text(), "text/html": summary.html()}
        return display.bundle(
            self.folder, text=summary.text(), html=summary.html(), view=display.widget_view(self.folder)
        )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        summary = self._summary()
        printer.text(repr(self) if summary is None else summary.text())

    def _repr_html_(self) -> str | None:
        summary = self._summary()
        return None if summary is None else summary.html()

    def _summary(self) -> _summary.Summary | None:
        """Return what a notebook shows of the run. None if the run was removed."""
        # The summary of an ended run is read once, because a long run's metrics take a while.
        if self._shown is not None:
            return self._shown
        try:
            ended = self.state.ended
            summary = _summary.gather(self.folder)
        except DistError:
            return None  # the run was removed: its one-line repr reports that
        if ended:
            self._shown = summary
            self.folder.forget_paths()
        return summary


def _frame(points: Iterable[metric_points.MetricPoint]) -> pandas.DataFrame:
    import pandas

    rows = [(p.rank, p.step, p.name, p.value, p.time) for p in points]
    frame = pandas.DataFrame(rows, columns=list(_METRIC_COLUMNS))
    # "Int64", because with floats a metric without a step would change the steps of all metrics.
    typed: pandas.DataFrame = frame.astype(
        {"rank": "int64", "step": "Int64", "value": "float64", "time": "float64"}
    )
    return typed


def _profile(found: RunSteps) -> pandas.DataFrame:
    import pandas

    nan = float("nan")
    rows = {}
    for rank, total in found.totals():
        parts = (total.wall_s, total.data_s, total.rest_s, total.wait_s)
        rate = nan if total.samples is None or not total.wall_s else total.samples / total.wall_s
        rows[rank] = (
            total.steps,
            *(nan if part is None else part / total.steps for part in parts),
            *(rate, total.gc, total.gc_s, found.ranks[rank].by),
        )
    index = pandas.Index(rows, name="rank", dtype="int64")
    frame: pandas.DataFrame = pandas.DataFrame(list(rows.values()), index=index, columns=_PROFILE_COLUMNS)
    return frame
