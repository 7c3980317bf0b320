"""The shapes of the answers about backends and saved clusters, for the sidebar's forms; see answers.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired

__all__ = [
    *("Backend", "Cluster", "ClusterForgotten", "ClusterList", "ClusterRow"),
    *("ClusterSaved", "ClusterTest"),
]

JsonSchema = dict[str, Any]
"""A JSON schema, as pydantic makes it of a model of options."""


class Backend(TypedDict):
    """A backend, and what it found on this machine."""

    name: str
    available: bool
    detail: dict[str, Any]
    """What was found: versions, cores, GPUs, addresses."""
    install: str | None
    """What to run where its engine is missing."""
    problem: str | None
    """Why it cannot be used, or could not say what there is to run on."""
    capabilities: NotRequired[dict[str, bool]]
    schema: JsonSchema | None
    """Of the backend's own options; null where it cannot be loaded."""
    run_schema: JsonSchema | None
    """Of the options that every backend has."""


class Cluster(TypedDict):
    """A saved choice of a backend and options."""

    name: str
    backend: str
    options: dict[str, Any]


class ClusterRow(Cluster):
    """One of the saved clusters."""

    problem: str | None
    """Why it cannot be used as it stands in the file."""


class ClusterList(TypedDict):
    """The saved clusters."""

    clusters: list[ClusterRow]
    path: str
    """The file that holds them."""
    problem: str | None
    """Why that file cannot be read."""


class ClusterSaved(Cluster):
    """A cluster as it was saved."""

    warnings: list[str]


class ClusterForgotten(TypedDict):
    """The name of a cluster that is no more."""

    name: str


class ClusterTest(TypedDict):
    """The run that tests a cluster."""

    run_id: str
