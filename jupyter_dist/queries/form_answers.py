"""The shapes of the answers about backends and saved clusters, for the sidebar's forms; see answers.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired

__all__ = [
    *("Amount", "Backend", "Cluster", "ClusterForgotten", "ClusterList", "ClusterRow"),
    *("ClusterSaved", "ClusterTest", "Launching", "Site"),
]

JsonSchema = dict[str, Any]
"""A JSON schema, as pydantic makes it of a model of options."""


class Amount(TypedDict):
    """How much of something there is, and how much of that nobody holds."""

    free: float
    total: float


class Site(TypedDict):
    """One of several things that a backend could run on, such as a cluster that it found."""

    name: str
    options: dict[str, Any]
    """The backend's options that lead there."""
    problem: str | None
    """Why it cannot be used."""
    told: NotRequired[str]
    """What it has, in a line."""
    nodes: NotRequired[int]
    cpus: NotRequired[Amount]
    gpus: NotRequired[Amount]
    memory_bytes: NotRequired[Amount]
    gpu_types: NotRequired[list[str]]


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
    sites: NotRequired[list[Site]]
    """What there is to run on, where it finds several such."""
    no_site: NotRequired[str | None]
    """Why it finds none of these."""
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
    launched_from: NotRequired[str | None]
    """The file that it was launched from, where it was launched from here."""


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


class Launching(TypedDict):
    """The run that launches a cluster, keeps the way to it open, or takes it down."""

    run_id: str
