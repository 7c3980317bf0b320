"""Actions of a view on a run, answered as JSON.

The package `queries` has the questions, which change nothing.

The server's REST handlers and the widget's comm both call these functions. `id` is a whole run id. Any other
text raises RunNotFound and touches no file.
"""

from __future__ import annotations

from ..folder import find_exact
from ..queries.answers import ranks, runs
from ..queries.stacks import as_answer
from ..record import run_labels
from . import removal, stack_request
from .stop import ask_to_stop

__all__ = ["about", "clean", "remove", "stacks", "stop"]

_MAX_WAIT_S = 5.0


def stop(id: str, kill: bool = False) -> runs.Stopped:
    """Ask for the end of a run; does nothing to one that has ended. Returns within half a second.

    A second request, a second later or more, kills the run.
    """
    return {"id": id, "state": ask_to_stop(find_exact(id), kill=kill).value}


def remove(id: str) -> runs.Removed:
    """Delete an ended run. Raises InputError when it goes on."""
    return {"id": id, "freed_bytes": removal.remove([find_exact(id)])}


def about(
    id: str, name: str | None = None, tags: list[str] | None = None, note: str | None = None
) -> runs.About:
    """Name a run, tag it, or say something of it; what is None stays, and an empty text takes it back."""
    now = run_labels.change(find_exact(id), name, tags, note)
    return {"id": id, "name": now.name, "tags": list(now.tags), "note": now.note}


def clean(days: float) -> runs.Cleaned:
    """Delete the runs that ended more than that many days ago."""
    removed, freed = removal.clean(days)
    return {"removed": removed, "freed_bytes": freed}


def stacks(id: str, timeout_s: float = _MAX_WAIT_S) -> ranks.Stacks:
    """Where every running rank is in its code: `{groups: [{ranks, frames}], silent, hint}`.

    Blocks until the ranks have answered, at most 5 s. Raises DistError if the run has ended.
    """
    return as_answer(stack_request.take(find_exact(id), min(timeout_s, _MAX_WAIT_S)))
