"""`Run`: what the user holds of a run. Everything is read from its folder when it is asked for."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DistError, InputError, RunFailed, RunStopped
from ..folder import RunFolder
from ..job import Job, State, Status, rank_count
from ..launch import submission
from ..manage import run_model, stack_request
from ..manage import stop as stop_runs
from ..record import reader, run_labels
from ..record.failures import failures, stacks
from ..record.failures.failures import RankError
from ..record.logs import interleaved_log
from ..record.metrics import points as metric_points
from ..record.metrics import usage_points
from ..record.outputs.logged_media import Media, media_of
from ..record.outputs.results import Results
from . import display, failure_report
from . import summary as _summary
from . import trials as trial_table

if TYPE_CHECKING:
    import pandas

__all__ = ["Run"]

_METRIC_COLUMNS = ("rank", "step", "name", "value", "time")
_MAX_PAUSE_S = 0.05


class Run:
    """One run, running or ended, from now or from last week. Making one reads nothing and starts nothing."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._results: Results | None = None
        self._shown: _summary.Summary | None = None
        self._shown_in: str | None = None
        self._story_shown = False

    @property
    def id(self) -> str:
        return self.folder.id

    @property
    def job(self) -> Job:
        """What was to be run. Raises RunNotFound when the folder is gone."""
        return reader.job(self.folder)

    @property
    def params(self) -> dict[str, Any]:
        """The small values that the cell uses, recorded by themselves; of a trial, with what it tries."""
        return self.job.params

    @property
    def name(self) -> str:
        """What the run is called: by `--name`, or set here; without that, by its cell."""
        return run_labels.read(self.folder).name or self.job.label or self.id

    @name.setter
    def name(self, name: str) -> None:
        run_labels.change(self.folder, name=name)

    @property
    def tags(self) -> tuple[str, ...]:
        """The run's tags. Set them to others, as in `run.tags = ("baseline", "large")`."""
        return run_labels.read(self.folder).tags

    @tags.setter
    def tags(self, tags: str | Iterable[str]) -> None:
        run_labels.change(self.folder, tags=tags)

    @property
    def note(self) -> str:
        """What is worth knowing of the run; set it to another text."""
        return run_labels.read(self.folder).note

    @note.setter
    def note(self, note: str) -> None:
        run_labels.change(self.folder, note=note)

    @property
    def status(self) -> Status:
        """How the run and each of its ranks stand now."""
        return reader.status(self.folder)

    @property
    def state(self) -> State:
        return self.status.state

    @property
    def results(self) -> Results:
        """The ranks' results by rank, unpickled when they are first asked for.

        Raises DistError while the run goes on.
        """
        status = self.status
        if not status.state.ended:
            raise DistError(f"run {self.id} is still {status.state}: its results come at its end. run.wait()")
        if self._results is None:
            self._results = Results(self.folder, status, rank_count(self.job, status))
        return self._results

    @property
    def metrics(self) -> pandas.DataFrame:
        """What the ranks logged so far: columns rank, step, name, value, time (seconds since the epoch)."""
        return _frame(metric_points.points(self.folder))

    @property
    def system_metrics(self) -> pandas.DataFrame:
        """What each rank took of its host so far: the columns of `metrics`, none with a step.

        The names are `system/cpu` (percent of a core), `system/memory` (bytes), `system/gpu` (percent),
        `system/gpu_memory` (bytes), `system/net_in` and `system/net_out` (bytes a second, of the host).
        `pandas.concat([run.metrics, run.system_metrics])` has both."""
        return _frame(usage_points.points(self.folder))

    @property
    def media(self) -> Media:
        """What the ranks logged so far besides numbers, as with `dist.log(image=figure)`: items with name,
        step, rank, type, time and data. `run.media.of("samples", step=3)` are some of them."""
        return media_of(self.folder, self.status.attempt)

    @property
    def trials(self) -> pandas.DataFrame:
        """What a tuning run has tried so far, a row for each trial: number, state, value (of the objective),
        one column for each parameter, reason, started, ended (seconds since the epoch), run (its id: `attach`
        opens it). Raises DistError for a run that tunes nothing."""
        return trial_table.frame(self.folder)

    @property
    def best(self) -> Run:
        """The best trial of a tuning run so far, as a run: it has `results`, `metrics`, and what it tried in
        `job.trial["parameters"]`.

        Raises DistError while no trial has succeeded, and for a run that tunes nothing."""
        return Run(trial_table.best(self.folder))

    @property
    def model(self) -> Path:
        """The folder with the files that ranks have put into `dist.model_dir()`.

        Where the platform keeps them, as `sagemaker` does in S3, they are fetched when they are first asked
        for, which takes as long as it takes. Raises DistError while the run goes on, and where there are
        none.
        """
        return run_model.model(self.folder)

    @property
    def errors(self) -> list[RankError]:
        """How ranks failed: the root cause first, what followed from it last."""
        return failures.failures(self.folder)

    def log(self, rank: int | None = None, attempt: int | None = None) -> str:
        """A rank's whole output as it wrote it, or that of all ranks by time, each line behind `[rank] `.

        Lines that a rank rewrote by moving the cursor up, such as nested progress bars, stand there once, as
        they were in the end; its log file has all. Of the newest attempt by default. Raises InputError for a
        rank or an attempt that is not there.
        """
        known = self.folder.attempts()
        if attempt is None:
            attempt = self.status.attempt
        elif attempt not in known:
            raise InputError(f"run {self.id} has no attempt {attempt}; it has {known}")
        size = rank_count(self.job, self.status)
        if rank is None:
            return interleaved_log.interleaved(self.folder, range(size), attempt)
        if not 0 <= rank < size:
            raise InputError(f"run {self.id} has ranks 0 to {size - 1}, not {rank}")
        return interleaved_log.unrolled(self.folder, rank, attempt).decode("utf-8", "replace")

    def wait(self, timeout_s: float | None = None) -> Run:
        """Wait for the end of the run, whatever it is, and return the run itself.

        An unwatched run would never come to its end in sight: it gets another supervisor, once, which
        takes seconds. Raises DistError where that fails or the run is unwatched again, saying what to do,
        and TimeoutError when it goes on after `timeout_s`; the run is not touched.
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
        """Ask for the end of the run: SIGTERM and time to write, or SIGKILL. Returns at once; repeatable.

        An unwatched run gets another supervisor first, which ends it; that takes seconds.
        """
        stop_runs.stop(self.folder, kill=kill)

    def stacks(self, timeout_s: float = 5.0, all_threads: bool = False) -> stacks.Stacks:
        """Where every running rank is in its Python code, without stopping it."""
        return stack_request.take(self.folder, timeout_s, all_threads=all_threads)

    def raise_for_state(self) -> None:
        """Raise RunFailed (also for a lost run) or RunStopped with the reason; else do nothing.

        For an unwatched run raises DistError: nobody would see how it ends, and the text says what to do.
        """
        status = self.status
        if status.state is State.UNWATCHED:
            raise DistError(failure_report.unwatched(status))
        if status.state in (State.FAILED, State.LOST):
            raise RunFailed(failure_report.failure(self.folder, status), self)
        if status.state is State.STOPPED:
            raise RunStopped(failure_report.stopped(status), self)

    def __repr__(self) -> str:
        try:
            return f"<Run {self.id} {_summary.title_of(self.job, self.status)}>"
        except DistError as error:
            return f"<Run {self.id}: {error}>"

    def _is_shown(self, *, whole_story: bool) -> None:
        """Its view is under the cell that runs now: it is not shown there once more as the result.

        `whole_story`: a failure's traceback and log stand in the view.
        """
        self._shown_in = display.cell_id()
        self._story_shown = whole_story

    def _story_is_shown(self) -> bool:
        """Whether the cell that runs now shows all there is to say of a failure."""
        return self._story_shown and self._shown_in is not None and self._shown_in == display.cell_id()

    def _ipython_display_(self) -> None:
        if self._shown_in is None or self._shown_in != display.cell_id():
            raise NotImplementedError  # IPython then asks for the bundle

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
        """What notebooks show of it; None when the run was removed."""
        # Read once when the run has ended: a long run's metrics take a while.
        if self._shown is not None:
            return self._shown
        try:
            ended = self.state.ended
            summary = _summary.gather(self.folder)
        except DistError:
            return None  # removed: the one line says so
        if ended:
            self._shown = summary
        return summary


def _frame(points: Iterable[metric_points.MetricPoint]) -> pandas.DataFrame:
    import pandas

    rows = [(p.rank, p.step, p.name, p.value, p.time) for p in points]
    frame = pandas.DataFrame(rows, columns=list(_METRIC_COLUMNS))
    # "Int64": a metric without a step must not turn the others' steps into floats.
    typed: pandas.DataFrame = frame.astype(
        {"rank": "int64", "step": "Int64", "value": "float64", "time": "float64"}
    )
    return typed
