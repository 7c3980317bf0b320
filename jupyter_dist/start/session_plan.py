"""The plan of a session's cell, kept for the next cell with the same flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import clusters
from ..launch import session_link
from ..plan.run_plan import Plan
from ..record.sessions import StoredSession, find_session
from . import session_default

__all__ = ["CheckedPlan", "keep", "recall"]

_MOST = 16


@dataclass(frozen=True)
class CheckedPlan:
    """A plan that suits a session, which runs already. `given`: the values of the flags.

    `session`: as it was when the plan was made.
    """

    plan: Plan
    given: Mapping[str, Any]
    session: StoredSession


_kept: dict[tuple[str, str | None], CheckedPlan] = {}
"""By the flags as they were typed, and the session of plain cells."""


def keep(line: str, checked: CheckedPlan) -> None:
    """Keep a plan, unless more decides it than its flags and the session."""
    plan = checked.plan
    if plan.run.debugpy or plan.run.dry_run or plan.warnings or any(mark in line for mark in "{$"):
        return
    if "cluster" in checked.given or clusters.used() is not None:
        return
    if len(_kept) >= _MOST:
        _kept.clear()
    _kept[line, session_default.get()] = checked


def recall(line: str) -> CheckedPlan | None:
    """Return the plan of an earlier cell with these flags, if the same session runs; else None."""
    kept = _kept.get((line, session_default.get()))
    if kept is None or clusters.used() is not None:
        return None
    if session_link.is_open(kept.session):
        return kept
    found = find_session(kept.session.name)
    if found is None or found.about["id"] != kept.session.about["id"]:
        return None
    return CheckedPlan(kept.plan, kept.given, found)
