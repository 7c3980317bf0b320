"""The shapes of what views are told of a tuning run; answers.py says how these modules are used."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

__all__ = ["Parameter", "TrialInfo", "TrialOf", "Tuning"]


class Parameter(TypedDict):
    """One dimension of what a tuning run tries."""

    name: str
    kind: Literal["real", "whole", "choice"]
    low: float | None
    """null for a choice."""
    high: float | None
    log: bool
    values: list[Any]
    """What there is to choose from; empty for a range."""


class TrialInfo(TypedDict):
    """One trial of a tuning run, which is a run of its own."""

    number: int
    id: str
    """Of its run."""
    state: str
    """running, succeeded, pruned, failed or stopped."""
    value: float | None
    """Of the objective; there only where the trial has succeeded."""
    parameters: dict[str, Any]
    reason: str | None
    started: float
    ended: float | None


class Tuning(TypedDict):
    """What a tuning run looks for, and what it has tried."""

    metric: str
    goal: Literal["max", "min"]
    strategy: str
    max_jobs: int
    parallel: int
    parameters: list[Parameter]
    trials: list[TrialInfo]
    best: int | None
    """The number of the best trial so far."""
    importance: dict[str, float]
    """How much of the differences between trials each parameter explains; empty while nobody can tell."""


class TrialOf(TypedDict):
    """What a run is that is a trial."""

    of: str
    """The tuning run's id."""
    number: int
    parameters: dict[str, Any]
