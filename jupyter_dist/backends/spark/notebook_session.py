"""The Spark session that this process, a notebook's kernel, has open: looked at, never opened or closed."""

from __future__ import annotations

import sys
import urllib.parse
from typing import Any

from .sessions import GATEWAY, REMOTE, slots_of

__all__ = ["connected_here", "inherited", "master_here", "slots_here"]


def _context() -> Any:
    """The SparkContext of this process that has not been stopped; None where there is none."""
    core = sys.modules.get("pyspark.core.context") or sys.modules.get("pyspark.context")
    context = None if core is None else getattr(core.SparkContext, "_active_spark_context", None)
    there = getattr(context, "_jsc", None) is not None and getattr(context, "_gateway", None) is not None
    return context if there else None


def _remote() -> str | None:
    """The URL, with its token, of this process's session of Spark Connect; None where there is none, and for
    one that does not say how it gets to its server."""
    connect = sys.modules.get("pyspark.sql.connect.session")
    if connect is None:
        return None
    try:
        session = connect.SparkSession.active()  # raises if there is none
        if session is None or session.is_stopped:
            return None
        builder = session.client._builder
        ours = {name: value for name, value in builder._params.items() if name != "session_id"}
        named = "".join(f";{name}={urllib.parse.quote(str(value))}" for name, value in ours.items())
        return f"sc://{builder.endpoint}/{named}"
    except Exception:  # private names of PySpark's: without them the run says which session it takes
        return None


def connected_here() -> str | None:
    """The server of Spark Connect that this process has a session with. A run makes one of its own there."""
    remote = _remote()
    return None if remote is None else remote.partition("/;")[0].rstrip("/")


def master_here() -> str | None:
    """The master of this process's SparkContext, which a run shares."""
    context = _context()
    return None if context is None else str(context.master)


def slots_here() -> int | None:
    """How many tasks its executors can run at the same time; None where that is not known."""
    context = _context()
    if context is None:
        return None
    try:
        return slots_of(context)
    except Exception:
        return None


def inherited() -> dict[str, str]:
    """What a run's processes need in their environment to get to the session's cluster. It is secret."""
    remote, context = _remote(), _context()
    if remote is not None:
        return {REMOTE: remote}
    if context is None:
        return {}
    parameters = context._gateway.gateway_parameters
    python = urllib.parse.quote(str(context.pythonExec))
    return {GATEWAY: f"{parameters.port} {python} {parameters.auth_token}"}
