"""The shapes of answers about what tells runs apart; answers.py says how these modules are used."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired

__all__ = ["About", "Environment", "GitState", "ToldApart"]


class ToldApart(TypedDict):
    """What tells a run from others of the same notebook."""

    named: NotRequired[bool]
    """Somebody has given it its name; else it is called by its cell."""
    tags: NotRequired[list[str]]
    note: NotRequired[str]
    parameters: NotRequired[dict[str, bool | float | str]]
    """The small values that its cell uses; of a trial, with what it tries."""
    final: NotRequired[dict[str, float]]
    """The last value of each metric, the mean of the ranks; of metrics that ranks log alone."""


class About(TypedDict):
    """What people say of a run."""

    id: str
    name: str
    tags: list[str]
    note: str


class GitState(TypedDict):
    """The commit that a run's notebook was at."""

    commit: str
    branch: str | None
    dirty: bool | None
    """Whether files that git knows had been changed; null where git has not said it."""
    changed: list[str]


class Environment(TypedDict):
    """What a run was started with; empty where nobody wrote it down."""

    python: NotRequired[str]
    platform: NotRequired[str]
    used: NotRequired[list[str]]
    """The installed modules that its code imports."""
    packages: NotRequired[dict[str, str]]
    git: NotRequired[GitState | None]
