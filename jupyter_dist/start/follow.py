"""Follow a run until its end: one that was just started here, or one that is attached to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..launch import submission
from ..record.run_list import choose
from . import attach_job
from .last_run import remember

if TYPE_CHECKING:
    from ..showing.run import Run

__all__ = ["attach", "finish"]


def finish(run: Run) -> Run:
    """Show a run's output until its end and return it. Interrupting stops it, twice kills it.

    Raises RunFailed, RunStopped."""
    from ..showing import live

    live.follow(run, result=True)
    run.raise_for_state()
    return run


def attach(
    run_id: str | None = None,
    *,
    follow: bool = False,
    region: str | None = None,
    profile: str | None = None,
    context: str | None = None,
    subscription: str | None = None,
    resource_group: str | None = None,
    workspace: str | None = None,
) -> Run:
    """The run with that id (its beginning or end will do), also one that another kernel started.

    Without an id: the newest one. `sagemaker:JOB` is a training job that somebody else has started, in the
    account of `profile` and in `region`; `kubernetes:KIND/NAME`, such as `kubernetes:pytorchjob/train` or
    `kubernetes:NAMESPACE/job/NAME`, is a job in the cluster of the kubeconfig's `context`; `azureml:JOB` is a
    job of Azure Machine Learning, in the `workspace` of `resource_group` and `subscription`, or in the one
    that a config.json names: it gets a run that shows it. With `follow` its output is shown until it ends;
    interrupting leaves the run alone. Raises RunNotFound.
    """
    from ..showing import live
    from ..showing.run import Run

    given = {
        **{"region": region, "profile": profile, "context": context},
        **{"subscription": subscription, "resource_group": resource_group, "workspace": workspace},
    }
    if run_id is not None and attach_job.is_elsewhere(run_id):
        folder = attach_job.adopt(run_id, given)
    else:
        attach_job.refuse_flags(given)
        folder = choose(run_id)
    # Where the ranks have outlived their supervisor, the run gets another one.
    submission.resume(folder)
    found = remember(Run(folder))
    if follow:
        live.follow(found, interrupt="leave", result=True)
    return found
