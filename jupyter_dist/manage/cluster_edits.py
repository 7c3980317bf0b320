"""Edits of the saved clusters for the sidebar: save a cluster from a form, delete it, duplicate it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import backends, clusters
from ..errors import InputError, NameTaken
from ..options import NOT_SAVED
from ..plan.run_plan import make_plan, meant
from ..queries.answers.forms import Cluster, ClusterForgotten, ClusterSaved
from ..queries.forms import cluster_json

__all__ = ["delete", "duplicate", "save"]


def save(name: str, data: Mapping[str, Any], old_name: str | None = None) -> ClusterSaved:
    """Add a cluster or, with `old_name`, change (and rename) one. `data` has `backend` and `options`.

    The options are checked with the models of the magic's flags. Raises InputError.
    """
    clusters.check_name(name)
    backend, options = data.get("backend"), data.get("options", {})
    if not isinstance(backend, str) or not isinstance(options, Mapping):
        raise InputError("a cluster needs a `backend` and an object of `options`")
    given = {key: value for key, value in options.items() if value is not None}
    for key in NOT_SAVED:
        if key in given:
            raise InputError(f"{key!r} belongs to one cell and cannot be saved")
    given |= meant(backends.load(backend), given.get("np"))
    plan = make_plan({**given, "backend": backend}, spelled_as_flags=False, cluster=False, now=False)
    before = None if old_name is None else clusters.load().get(old_name)
    launched_from = before.launched_from if before is not None and before.backend == backend else None
    values = clusters.to_save(given, plan.run, plan.options)
    cluster = clusters.Cluster(name, backend, values, launched_from)
    try:
        clusters.add(cluster, old_name=old_name)
    except NameTaken:
        raise NameTaken(f"A cluster {name!r} already exists. Choose another name") from None
    return {**cluster_json(cluster), "warnings": list(plan.warnings)}


def delete(name: str) -> ClusterForgotten:
    """Delete a saved cluster. Raises InputError if there is none of that name."""
    clusters.remove(name)
    return {"name": name}


def duplicate(name: str, new_name: str | None = None) -> Cluster:
    """Save a copy under another name. By default the name gets the next free number."""
    known = clusters.load()
    if name not in known:
        raise InputError(f"no cluster {name!r}")
    if new_name is None:
        stem = name[:58]
        new_name = next(f"{stem}-{i}" for i in range(2, len(known) + 3) if f"{stem}-{i}" not in known)
    copy = clusters.Cluster(new_name, known[name].backend, known[name].options)
    clusters.add(copy)
    return cluster_json(copy)
