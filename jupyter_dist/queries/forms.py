"""Choices for starting a run, as JSON: the backends with their forms, and the saved clusters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import backends
from .. import clusters as saved
from ..backends import detection
from ..cluster_form import arranged
from ..errors import DistError, MissingEngine
from ..options import NOT_SAVED, RunOptions
from .answers.forms import Backend, Cluster, ClusterList, ClusterRow, Site

__all__ = [
    "backend_list",
    "cluster_json",
    "cluster_list",
]

_DEFAULT = "local"
_FRESH_S = 15.0


def backend_list(folder: Path | None = None) -> list[Backend]:
    """Return all backends, the default first: detection, installation hint, form schemas, and any problem.

    `folder`: the notebook's folder, if this process does not run there. Blocks for at most 10 s, whatever a
    backend does.
    """
    names = sorted(backends.names(), key=lambda name: name != _DEFAULT)
    # Results are cached for a while, because the check for GPUs starts a process.
    found = detection.ask(names, fresh_s=_FRESH_S, folder=folder)
    return [_backend(name, answer) for name, answer in found.items()]


def _backend(name: str, found: detection.Found) -> Backend:
    problem = None if found.problem is None else str(found.problem)
    hint, cell = _install(name, found.lacks or found.problem)
    if not found.available:
        return {
            "name": name,
            "available": False,
            "problem": problem,
            "install": hint,
            "install_cell": cell,
            "detail": {},
            "capabilities": {},
            "schema": None,
            "run_schema": None,
        }
    able = backends.declared(name).capabilities
    hidden = {*NOT_SAVED, *(() if able.hosts else ("hosts", "hostfile"))}
    if not able.restarts:
        hidden.add("max_restarts")
    layout = arranged(backends.declared(name).options, RunOptions, hidden)
    return {
        "name": name,
        "available": True,
        "problem": problem if found.lacks is None else str(found.lacks),
        "install": hint,
        "install_cell": cell,
        "detail": found.facts,
        "sites": [_site(site) for site in found.sites],
        "no_site": found.no_site,
        "places": [*layout.places],
        "capabilities": {"hosts": able.hosts, "restarts": able.restarts, "warm": able.warm},
        "schema": None if found.schema is None else dict(found.schema),
        "run_schema": _without(RunOptions.model_json_schema(), hidden),
        "first": [*layout.first],
        "sections": [{"title": title, "fields": [*fields]} for title, fields in layout.sections],
    }


def _install(name: str, problem: DistError | None) -> tuple[str | None, str | None]:
    """Return what to run if a backend's engine is missing: in a terminal, and as a cell."""
    if not isinstance(problem, MissingEngine):
        return None, None
    return backends.install_hint(name), backends.install_cell(name)


def _site(told: Mapping[str, Any]) -> Site:
    """Return a site for the views: only those of the backend's values that a view can show."""
    options, problem = told.get("options"), told.get("problem")
    site: Site = {
        "name": told["name"],
        "options": options if isinstance(options, dict) else {},
        "problem": None if problem is None else str(problem),
    }
    if isinstance(told.get("told"), str):
        site["told"] = told["told"]
    if isinstance(told.get("nodes"), int):
        site["nodes"] = told["nodes"]
    for key in ("cpus", "gpus", "memory_bytes"):
        amount = told.get(key)
        if isinstance(amount, Mapping) and all(_is_number(amount.get(part)) for part in ("free", "total")):
            site[key] = {"free": amount["free"], "total": amount["total"]}
    if isinstance(told.get("gpu_types"), list):
        site["gpu_types"] = [str(name) for name in told["gpu_types"]]
    return site


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _without(schema: dict[str, Any], hidden: set[str]) -> dict[str, Any]:
    properties = {name: value for name, value in schema["properties"].items() if name not in hidden}
    return {**schema, "properties": properties}


def cluster_list() -> ClusterList:
    """Return the saved clusters in the file's order, each with its problem if any, and the file's path."""
    try:
        known = saved.load()
    except DistError as error:
        return {"clusters": [], "path": str(saved.path()), "problem": str(error)}
    rows: list[ClusterRow] = [
        {**cluster_json(cluster), "problem": saved.problem(cluster)} for cluster in known.values()
    ]
    return {"clusters": rows, "path": str(saved.path()), "problem": None}


def cluster_json(cluster: saved.Cluster) -> Cluster:
    """Return a saved cluster as JSON for the views."""
    return {
        "name": cluster.name,
        "backend": cluster.backend,
        "options": dict(cluster.options),
        "launched_from": cluster.launched_from,
    }
