"""What a notebook's file keeps of a run, for whoever looks when the run's own cell can write it no more."""

from __future__ import annotations

from ..folder import find_exact
from ..queries.answers import SavedOutput
from ..record import reader
from . import summary

__all__ = ["of"]


def of(id: str) -> SavedOutput:
    """The summary of a run that has ended; empty for one that goes on. Raises RunNotFound.

    When a page was reloaded while the cell ran, or the cell did not wait, nobody but a view that looks at the
    run can put its end into the notebook."""
    place = find_exact(id)
    if not reader.status(place).state.ended:
        return {"id": id, "ended": False, "html": "", "text": ""}
    found = summary.gather(place)
    return {"id": id, "ended": True, "html": found.html(), "text": found.text()}
