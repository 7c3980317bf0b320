"""What a run can be started with: the backends with their forms, and the saved clusters, as JSON."""

from __future__ import annotations

import threading
import time
from typing import Any

from .. import backends
from .. import clusters as saved
from ..errors import DistError
from ..options import NOT_SAVED, RunOptions

__all__ = [
    "backend_list",
    "cluster_list",
]

_DEFAULT = "local"
_FRESH_S = 15.0
_detected: dict[str, tuple[float, dict[str, Any]]] = {}
_detect_lock = threading.Lock()


def backend_list() -> list[dict[str, Any]]:
    """All backends, the default one first: what was detected, how to install what is missing, the schemas
    of their forms."""
    return [_backend(name) for name in sorted(backends.names(), key=lambda name: name != _DEFAULT)]


def _backend(name: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": name,
        "available": False,
        "detail": {},
        "problem": None,
        "install": None,
        "capabilities": {},
        "schema": None,
        "run_schema": None,
    }
    try:
        backend = backends.load(name)
    except DistError as error:
        return {**found, "problem": str(error), "install": backends.install_hint(name)}
    able = backend.capabilities
    hidden = {*NOT_SAVED, *(() if able.hosts else ("hosts", "hostfile"))}
    if not able.restarts:
        hidden.add("max_restarts")
    return {
        **found,
        "available": True,
        "detail": _detail(name),
        "capabilities": {"hosts": able.hosts, "restarts": able.restarts, "warm": able.warm},
        "schema": backend.options.model_json_schema(),
        "run_schema": _without(RunOptions.model_json_schema(), hidden),
    }


def _detail(name: str) -> dict[str, Any]:
    """What the backend finds; kept for a while, because asking for GPUs starts a process."""
    with _detect_lock:
        known = _detected.get(name)
        if known is None or time.monotonic() - known[0] > _FRESH_S:
            known = _detected[name] = (time.monotonic(), backends.load(name).detect())
        return known[1]


def _without(schema: dict[str, Any], hidden: set[str]) -> dict[str, Any]:
    properties = {name: value for name, value in schema["properties"].items() if name not in hidden}
    return {**schema, "properties": properties}


def cluster_list() -> dict[str, Any]:
    """The saved clusters in the file's order, each with what is wrong with it, and the file's path."""
    try:
        known = saved.load()
    except DistError as error:
        return {"clusters": [], "path": str(saved.path()), "problem": str(error)}
    rows = [cluster.to_json() | {"problem": saved.problem(cluster)} for cluster in known.values()]
    return {"clusters": rows, "path": str(saved.path()), "problem": None}
