"""The runs of a platform's experiment as a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import backends
from ..errors import DistError
from ..job import Job

if TYPE_CHECKING:
    import pandas

__all__ = ["frame"]


def frame(job: Job) -> pandas.DataFrame:
    """Return the runs of the experiment of this run. See `Run.experiment`."""
    import pandas

    of = job
    if job.tuning is not None and job.backend == backends.TRIALS:
        of = Job.from_json(job.tuning["trial"])
    rows = backends.extensions_of(backends.declared(of.backend)).experiment
    if rows is None:
        raise DistError(f"run {job.id} is on {of.backend}, and only runs on sagemaker have experiments")
    table: pandas.DataFrame = pandas.DataFrame(rows(of))
    for name in ("started", "ended"):
        if name in table:
            table[name] = pandas.to_datetime(table[name], utc=True)
    return table
