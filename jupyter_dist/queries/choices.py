"""Backends and saved clusters as JSON for the sidebar, and the one-rank test of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import backends
from .. import clusters as saved
from ..backends import detecting
from ..clusters import Cluster
from ..errors import DistError, InputError, MissingEngine
from ..options import NOT_SAVED, RunOptions
from ..plan.planning import make_plan

__all__ = [
    "backend_list",
    "cluster_delete",
    "cluster_duplicate",
    "cluster_list",
    "cluster_save",
    "cluster_test",
]

_DEFAULT = "local"
_FRESH_S = 15.0
_HELLO = """\
import platform
import jupyter_dist as dist

where = f"{platform.node()}, Python {platform.python_version()}"
print(f"hello from rank {dist.rank()} of {dist.world_size()} on {where}")
"""


def backend_list() -> list[dict[str, Any]]:
    """All backends, the default one first: what was detected, how to install what is missing, the schemas
    of their forms, and what is wrong with one. Blocks for 10 s at the most, whatever a backend does."""
    names = sorted(backends.names(), key=lambda name: name != _DEFAULT)
    # Kept for a while, because asking for GPUs starts a process.
    return [_backend(name, found) for name, found in detecting.ask(names, fresh_s=_FRESH_S).items()]


def _backend(name: str, found: detecting.Found) -> dict[str, Any]:
    problem = None if found.problem is None else str(found.problem)
    shown: dict[str, Any] = {"name": name, "available": found.available, "problem": problem}
    if not found.available:
        install = backends.install_hint(name) if isinstance(found.problem, MissingEngine) else None
        nothing: dict[str, Any] = {"detail": {}, "capabilities": {}, "schema": None, "run_schema": None}
        return {**shown, "install": install, **nothing}
    able = backends.declared(name).capabilities
    hidden = {*NOT_SAVED, *(() if able.hosts else ("hosts", "hostfile"))}
    if not able.restarts:
        hidden.add("max_restarts")
    return {
        **shown,
        "install": None,
        "detail": found.detail,
        "capabilities": {"hosts": able.hosts, "restarts": able.restarts, "warm": able.warm},
        "schema": found.schema,
        "run_schema": _without(RunOptions.model_json_schema(), hidden),
    }


def _without(schema: dict[str, Any], hidden: set[str]) -> dict[str, Any]:
    properties = {name: value for name, value in schema["properties"].items() if name not in hidden}
    return {**schema, "properties": properties}


def cluster_list() -> dict[str, Any]:
    """The saved clusters in the file's order, each with what is wrong with it, and the file's path."""
    try:
        known = saved.load()
    except DistError as error:
        return {"clusters": [], "path": str(saved.path()), "problem": str(error)}
    rows = [_shown(cluster) | {"problem": saved.problem(cluster)} for cluster in known.values()]
    return {"clusters": rows, "path": str(saved.path()), "problem": None}


def _shown(cluster: Cluster) -> dict[str, Any]:
    return {"name": cluster.name, "backend": cluster.backend, "options": dict(cluster.options)}


def cluster_save(name: str, data: Mapping[str, Any], old_name: str | None = None) -> dict[str, Any]:
    """Add a cluster or, with `old_name`, change (and rename) one; `data`: `backend` and `options`.

    Checked with the models that the magic's flags are made from. Raises InputError.
    """
    saved.check_name(name)
    backend, options = data.get("backend"), data.get("options", {})
    if not isinstance(backend, str) or not isinstance(options, Mapping):
        raise InputError("a cluster needs a `backend` and an object of `options`")
    given = {key: value for key, value in options.items() if value is not None}
    for key in NOT_SAVED:
        if key in given:
            raise InputError(f"{key!r} belongs to one cell and cannot be saved")
    plan = make_plan({**given, "backend": backend}, spelled_as_flags=False, cluster=False)
    cluster = Cluster(name, backend, saved.to_save(given, plan.run, plan.options))
    try:
        saved.add(cluster, old_name=old_name)
    except InputError as error:
        if "already" in str(error):
            raise InputError(f"there is a cluster {name!r} already: take another name") from None
        raise
    return {**_shown(cluster), "warnings": list(plan.warnings)}


def cluster_delete(name: str) -> dict[str, Any]:
    """Forget a cluster. Raises InputError when there is none of that name."""
    saved.remove(name)
    return {"name": name}


def cluster_duplicate(name: str, new_name: str | None = None) -> dict[str, Any]:
    """Save a copy under another name: by default the name with the next free number."""
    known = saved.load()
    if name not in known:
        raise InputError(f"no cluster {name!r}")
    if new_name is None:
        stem = name[:58]
        new_name = next(f"{stem}-{i}" for i in range(2, len(known) + 3) if f"{stem}-{i}" not in known)
    copy = Cluster(new_name, known[name].backend, known[name].options)
    saved.add(copy)
    return _shown(copy)


def cluster_test(name: str) -> dict[str, Any]:
    """Start a run of one rank that says hello on a cluster; returns its id at once. Blocks for a second."""
    from .. import start

    cluster = saved.get(name)
    options = backends.declared(cluster.backend).options
    fields = options.model_json_schema()["properties"]
    # One rank has no room for what the cluster says of several.
    alone = {key: options.model_fields[key].default for key, about in fields.items() if about.get("ranks")}
    given = {**alone, "cluster": name, "np": 1, "cold": True, "ship_modules": "none"}
    plan = make_plan(given, spelled_as_flags=False)
    # The namespace stands for a notebook's; nothing of this process goes along.
    origin = start.Origin(label=f"test of {name}", directory=Path.cwd())
    run = start.start_cell(_HELLO, {"__name__": "__main__"}, plan, origin)
    return {"run_id": run.id}
