"""The request of the backend `databricks`: checks of its options, the job and its cluster."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import InputError, MissingEngine
from ...hosts.openssh import OLDEST
from .options import _RUNTIME_OF, NEWEST_RUNTIME, DatabricksOptions
from .prices import cloud_of, cost_line, has_gpus, usd_per_hour
from .workspace import check_profile

__all__ = ["check_cluster", "cluster_hosts", "host_list", "job_request", "price", "run_name", "spread"]


_PYTHON_OF = {"9": "3.8", "10": "3.8", "11": "3.9", "12": "3.9", "13": "3.10", "14": "3.10"}
_PYTHON_OF |= {"15": "3.11", "16": "3.12", "17": "3.12"}
"""Python by the runtime's major version: https://docs.databricks.com/aws/en/release-notes/runtime/"""
_OWN_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
_SHARED = ("USER_ISOLATION", "DATA_SECURITY_MODE_STANDARD", "LEGACY_TABLE_ACL", "LEGACY_PASSTHROUGH")
"""Access modes in which Spark accepts no RDDs, and so no barrier tasks from Python."""
_SPOT = {
    "aws": "SPOT_WITH_FALLBACK",
    "azure": "SPOT_WITH_FALLBACK_AZURE",
    "gcp": "PREEMPTIBLE_WITH_FALLBACK_GCP",
}


def check_cluster(world_size: int, asked: DatabricksOptions) -> list[str]:
    """Check the options without any request, and return warnings. Raises InputError."""
    if not _has_sdk():
        raise MissingEngine(
            "the backend 'databricks' needs databricks-sdk: pip install \"jupyter-dist[databricks]\""
        )
    if asked.volume is None:
        raise InputError("the backend 'databricks' needs a Volume: --volume /Volumes/CATALOG/SCHEMA/VOLUME")
    if asked.cluster_id is None and not asked.new_cluster:
        raise InputError(
            "the backend 'databricks' needs a cluster: --cluster-id ID, or --new-cluster --node-type "
            "g4dn.xlarge --workers 2"
        )
    check_profile(asked.host, asked.profile, os.environ)
    if not asked.new_cluster:
        return []
    if asked.node_type is None and asked.policy is None:
        raise InputError("--new-cluster needs --node-type, such as g4dn.xlarge, or a --policy that names one")
    if asked.nodes > world_size:
        raise InputError(
            f"{asked.nodes} workers for {world_size} ranks: {asked.nodes - world_size} would be "
            f"idle and cost money. Use --workers {world_size}, or -np {asked.nodes}"
        )
    _check_runtime(_runtime_of(asked), "--runtime", asked.other_python)
    return [cost_line(asked.node_type, _workers(asked), spot=asked.spot)]


def price(options: Mapping[str, Any]) -> float | None:
    """Return the list price of a new cluster in USD per hour. None: it is not known."""
    asked = DatabricksOptions(**options)
    return usd_per_hour(asked.node_type, _workers(asked)) if asked.new_cluster else None


def _check_runtime(runtime: str, whose: str, other_python: bool) -> None:
    """Raise InputError if the runtime has another Python, before anything costs money.

    Without --other-python, only the same Python version reads the payload.
    """
    python = _PYTHON_OF.get(runtime.partition(".")[0])
    if python == "3.8":
        raise InputError(
            f"{whose} {runtime} has Python {python}, and ranks need Python {OLDEST} or newer: choose a newer "
            "runtime"
        )
    if python is not None and python != _OWN_PYTHON and not other_python:
        fitting = _RUNTIME_OF.get(_OWN_PYTHON)
        cure = f"a runtime {fitting} has it" if fitting else f"run the notebook with Python {python}"
        if not fitting and python == OLDEST:  # only ranks have such a Python
            cure = "choose a newer runtime"
        raise InputError(
            f"{whose} {runtime} has Python {python}, but the notebook has Python {_OWN_PYTHON}: {cure}. "
            "Or add --other-python"
        )


def spread(world_size: int, workers: int) -> tuple[int, ...]:
    """Return how many ranks each host gets, evenly, if there are that many workers."""
    used = max(1, min(workers, world_size))
    return tuple(world_size // used + (node < world_size % used) for node in range(used))


def host_list(slots: Sequence[int]) -> list[dict[str, Any]]:
    """Return the hosts of a run. Each host is a worker of the cluster."""
    return [{"name": f"worker{node}", "slots": each} for node, each in enumerate(slots)]


def cluster_hosts(found: Mapping[str, Any], world_size: int, other_python: bool = False) -> tuple[int, ...]:
    """Return how many ranks each worker of an existing cluster gets. `found`: the workspace's description.

    Raises InputError if the cluster cannot run the ranks.
    """
    name = f"the cluster {found.get('cluster_name') or found.get('cluster_id')!r}"
    mode = str(found.get("data_security_mode"))
    if mode in _SHARED:
        raise InputError(
            f"{name} has shared (standard) access ({mode}), and there Spark runs no tasks of this "
            "kind. Name a cluster with dedicated access, or use --new-cluster"
        )
    _check_runtime(str(found.get("spark_version", "")), f"{name} runs", other_python)
    there = found.get("executors") if found.get("state") == "RUNNING" else None
    least = (found.get("autoscale") or {}).get("min_workers", 0)
    return spread(world_size, len(there) if there else int(found.get("num_workers") or least))


def run_name(run: str) -> str:
    """Return the name of a run's jobs in the workspace's list."""
    return f"jupyter-dist {run}"


def job_request(
    run: str, attempt: int, program: str, slots: Sequence[int], asked: DatabricksOptions
) -> dict[str, Any]:
    """Return the body of a one-time run. The run has its own token: a second request returns the same run.

    https://docs.databricks.com/api/workspace/jobs/submit
    """
    parameters = ["--ranks", ",".join(map(str, slots))]
    task: dict[str, Any] = {
        "task_key": "ranks",
        "spark_python_task": {"python_file": program, "parameters": parameters, "source": "WORKSPACE"},
    }
    if asked.cluster_id is not None:
        task["existing_cluster_id"] = asked.cluster_id
    else:
        task["new_cluster"] = _new_cluster(run, asked)
    return {
        "run_name": run_name(run),
        "idempotency_token": f"jupyter-dist-{run}-{attempt}",
        "tasks": [task],
        "queue": {"enabled": True},
    }


def _new_cluster(run: str, asked: DatabricksOptions) -> dict[str, Any]:
    workers = _workers(asked)
    cluster: dict[str, Any] = {
        "spark_version": _runtime_of(asked),
        "num_workers": workers,
        "data_security_mode": "SINGLE_USER",
        "custom_tags": {"jupyter-dist-run": run},
    }
    if asked.node_type is not None:
        cluster["node_type_id"] = asked.node_type
    if asked.policy is not None:
        cluster |= {"policy_id": asked.policy, "apply_policy_default_values": True}
    if not workers:
        cluster["spark_conf"] = {
            "spark.databricks.cluster.profile": "singleNode",
            "spark.master": "local[*, 4]",
        }
        cluster["custom_tags"]["ResourceClass"] = "SingleNode"
    if asked.spot and asked.node_type is not None:
        # The driver is on demand: the loss of the driver would end the whole run.
        cloud = cloud_of(asked.node_type)
        cluster[f"{cloud}_attributes"] = {"availability": _SPOT[cloud], "first_on_demand": 1}
    return cluster


def _has_sdk() -> bool:
    try:
        return importlib.util.find_spec("databricks.sdk") is not None
    except ModuleNotFoundError:
        return False


def _workers(asked: DatabricksOptions) -> int:
    return 1 if asked.workers is None else asked.workers


def _runtime_of(asked: DatabricksOptions) -> str:
    if asked.runtime is not None:
        return asked.runtime
    known = _RUNTIME_OF.get(_OWN_PYTHON)
    if known is None and asked.other_python:
        known = NEWEST_RUNTIME
    if known is None:
        raise InputError(
            f"jupyter-dist finds no Databricks runtime with Python {_OWN_PYTHON} in its list. "
            "Name one with --runtime. Or add --other-python"
        )
    kind = "gpu" if asked.node_type is not None and has_gpus(asked.node_type) else "cpu"
    return f"{known}-{kind}-ml-scala2.12"
