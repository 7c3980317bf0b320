"""The open Spark session of this process, a notebook's kernel.

This module reads it, never opens or closes it.
"""

from __future__ import annotations

import sys
import urllib.parse
from typing import Any

from .sessions import GATEWAY, REMOTE, slots_of

__all__ = ["connected_here", "inherited", "master_here", "slots_here"]


def _context() -> Any:
    """Return the active SparkContext of this process, or None."""
    core = sys.modules.get("pyspark.core.context") or sys.modules.get("pyspark.context")
    context = None if core is None else getattr(core.SparkContext, "_active_spark_context", None)
    there = getattr(context, "_jsc", None) is not None and getattr(context, "_gateway", None) is not None
    return context if there else None


def _remote() -> str | None:
    """Return the URL, with its token, of this process's Spark Connect session.

    None if there is no session, or if the session does not reveal its URL.
    """
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
    except Exception:  # these are private names of PySpark: if they are missing, the run reports its session
        return None


def connected_here() -> str | None:
    """Return the Spark Connect server of this process's session. A run creates its own session there."""
    remote = _remote()
    return None if remote is None else remote.partition("/;")[0].rstrip("/")


def master_here() -> str | None:
    """Return the master of this process's SparkContext, which a run shares."""
    context = _context()
    return None if context is None else str(context.master)


def slots_here() -> int | None:
    """Return how many tasks its executors can run at the same time, or None if that is unknown."""
    context = _context()
    if context is None:
        return None
    try:
        return slots_of(context)
    except Exception:
        return None


def inherited() -> dict[str, str]:
    """Return the secret variables with which a run's processes connect to the session's cluster."""
    remote, context = _remote(), _context()
    if remote is not None:
        return {REMOTE: remote}
    if context is None:
        return {}
    parameters = context._gateway.gateway_parameters
    python = urllib.parse.quote(str(context.pythonExec))
    return {GATEWAY: f"{parameters.port} {python} {parameters.auth_token}"}
