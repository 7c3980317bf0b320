"""Answers about backends, their forms, and saved clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired

__all__ = [
    *("Amount", "Backend", "Cluster", "ClusterForgotten", "ClusterList", "ClusterRow"),
    *("ClusterSaved", "ClusterTest", "FieldProblem", "FormMeaning", "FormSection", "Launching", "Site"),
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


class FormSection(TypedDict):
    """Fields of a form that are folded under a title."""

    title: str
    fields: list[str]


class Backend(TypedDict):
    """A backend, and what it found on this machine."""

    name: str
    available: bool
    detail: dict[str, Any]
    """What was found: versions, cores, GPUs, addresses."""
    install: str | None
    """What to run in a terminal where its engine is missing."""
    install_cell: NotRequired[str | None]
    """A cell that does so in a notebook, where one can."""
    problem: str | None
    """Why it cannot be used, or could not say what there is to run on."""
    sites: NotRequired[list[Site]]
    """What there is to run on, where it finds several such."""
    no_site: NotRequired[str | None]
    """Why it finds none of these."""
    places: NotRequired[list[str]]
    """The options that name where to run. With one of them, `no_site` does not matter."""
    capabilities: NotRequired[dict[str, bool]]
    schema: JsonSchema | None
    """Of the backend's own options; null where it cannot be loaded."""
    run_schema: JsonSchema | None
    """Of the options that every backend has."""
    first: NotRequired[list[str]]
    """The fields that stand open in its form."""
    sections: NotRequired[list[FormSection]]
    """All other fields."""


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
    hosts: list[str]
    """The hosts that it asks, in the order of its ranks; empty where the cluster names none."""


class Launching(TypedDict):
    """The run that launches a cluster, keeps the way to it open, or takes it down."""

    run_id: str


class FieldProblem(TypedDict):
    """What is wrong with what a form says."""

    field: str | None
    """Of which field it is said; null: of several, or of none."""
    text: str


class FormMeaning(TypedDict):
    """What a form means as it stands."""

    line: str | None
    """The first line of a cell that means the same; null where a line cannot say it."""
    note: str | None
    """What has to be known of that line, or why there is none."""
    problems: list[FieldProblem]
