"""Following of a run until its end: a run that was just started here, or an attached one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..launch import submission
from ..record.run_list import choose
from . import attach_job
from .interrupts import interrupt_stops
from .last_run import remember

if TYPE_CHECKING:
    from ..showing.run import Run

__all__ = ["attach", "finish"]


def finish(run: Run) -> Run:
    """Show a run's output until its end and return the run. An interrupt stops it, and a second one kills it.

    Blocks. Raises RunFailed, RunStopped.
    """
    with interrupt_stops(run.folder):
        from ..showing import live  # takes a while in a process's first run

    live.follow(run, result=True)
    run.raise_for_state()
    return run


def attach(
    run_id: str | None = None,
    *,
    follow: bool = False,
    **options: str | None,
) -> Run:
    """Return the run with that id, also one that another kernel started. Raises RunNotFound.

    Args:
        run_id: the id, or its beginning or end. By default the newest run. BACKEND:JOB is a job that somebody
            else has started, and gets a run that shows it: `sagemaker:JOB` is a training job or a tuning job,
            `azureml:JOB` a job of Azure Machine Learning, and `kubernetes:KIND/NAME` a job in a cluster, such
            as `kubernetes:pytorchjob/train` or `kubernetes:NAMESPACE/job/NAME`.
        follow: show the run's output until it ends. An interrupt then leaves the run alone.
        options: where such a job is, as the flags of `%dist attach`: `region` and `profile` for `sagemaker`,
            `context` for `kubernetes`, `subscription`, `resource_group` and `workspace` for `azureml`.
    """
    from ..showing import live
    from ..showing.run import Run

    if run_id is not None and attach_job.is_elsewhere(run_id):
        folder = attach_job.adopt(run_id, options)
    else:
        attach_job.refuse_flags(options)
        folder = choose(run_id)
    # If the ranks have outlived their supervisor, another supervisor starts.
    submission.resume(folder)
    found = remember(Run(folder))
    if follow:
        live.follow(found, interrupt="leave", result=True)
    return found
