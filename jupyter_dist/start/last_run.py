"""Last run that this process started or attached to. A command without an id means this run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..showing.run import Run

__all__ = ["last_run_id", "remember"]

_last_run_id: str | None = None


def last_run_id() -> str | None:
    """Return the id of the run that this process started or attached to last."""
    return _last_run_id


def remember(run: Run) -> Run:
    """Store the run as the last one, and return it."""
    global _last_run_id
    _last_run_id = run.id
    return run
