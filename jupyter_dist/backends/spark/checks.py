"""Checks before anything starts: whether Spark can run the request, and what is installed here."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
from typing import Any

from ...errors import InputError, MissingEngine
from . import notebook_session
from .options import SparkOptions, host_and_port

__all__ = ["check_spark", "found_here"]


def check_spark(world_size: int, asked: SparkOptions) -> list[str]:
    """Return warnings. Raises InputError, and MissingEngine with what to install."""
    asked.check_roles(world_size)
    if asked.on_driver:
        return []
    if importlib.util.find_spec("pyspark") is None:
        raise MissingEngine("backend 'spark' needs PySpark: pip install \"jupyter-dist[spark]\"")
    if asked.driver_address is not None:
        host_and_port(asked.driver_address)
    url, here = asked.master or notebook_session.connected_here() or "", None
    if not url:
        here = notebook_session.master_here()
        url = "" if here else os.environ.get("SPARK_REMOTE", "")
    there = here or (url.partition(";")[0] if url.startswith("sc://") else None)
    for flag, given in (("--conf", asked.conf), ("--python", asked.python)):
        if given and there is not None:
            raise InputError(
                f"{flag} works only with a Spark session of the run's own, but this run uses the "
                f"session of {there}. Remove {flag}, or name a cluster without Spark Connect with "
                "--master"
            )
    if here is not None:
        return [
            f"the ranks run in the notebook's Spark session ({here}), and end with its kernel. "
            "With --master, a run has its own session and continues without the kernel"
        ]
    if not url.startswith("sc://") and _java() is None:
        raise MissingEngine(
            "backend 'spark' needs Java for a session of its own. Install it with apt-get "
            "install default-jre-headless (Spark 4 needs Java 17 or 21), or set JAVA_HOME. Spark "
            "Connect, --master sc://…, needs no Java"
        )
    return []


def found_here() -> dict[str, Any]:
    """Return facts for people: PySpark's version, the notebook's session and its slots. Never raises."""
    found: dict[str, Any] = {}
    try:
        found["PySpark"] = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return found
    if _java() is None:
        found["Java"] = "none"
    connected, here = notebook_session.connected_here(), notebook_session.master_here()
    if connected is not None or here is not None:
        found["session"] = connected or here
        slots = None if connected else notebook_session.slots_here()
        found |= {} if slots is None else {"task slots": slots}
    return found


def _java() -> str | None:
    """Return the Java that Spark's scripts use."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return shutil.which("java", path=os.path.join(home, "bin"))
    return shutil.which("java")
