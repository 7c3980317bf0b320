"""The options of the backend `databricks`, their checks, and the job and the cluster that they ask for."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from ...errors import InputError, MissingEngine
from ...form import Form
from ..ranks.agent_options import AgentOptions, Line
from ..ranks.gpu_options import GpuOptions
from .node_prices import cloud_of, cost_line, has_gpus
from .signing_in import check_profile

__all__ = [
    "DatabricksOptions",
    "check_cluster",
    "cluster_hosts",
    "host_list",
    "job_request",
    "run_name",
    "spread",
]

_RUNTIME_OF = {"3.10": "14.3.x", "3.11": "15.4.x", "3.12": "16.4.x"}
"""By Python, the newest runtime with long-term support that has it."""
_PYTHON_OF = {"13": "3.10", "14": "3.10", "15": "3.11", "16": "3.12", "17": "3.12"}
"""By the runtime's major version: https://docs.databricks.com/aws/en/release-notes/runtime/"""
_OWN_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
_SHARED = ("USER_ISOLATION", "DATA_SECURITY_MODE_STANDARD", "LEGACY_TABLE_ACL", "LEGACY_PASSTHROUGH")
"""Access modes in which Spark takes no RDDs, and so no barrier tasks from Python."""
_SPOT = {
    "aws": "SPOT_WITH_FALLBACK",
    "azure": "SPOT_WITH_FALLBACK_AZURE",
    "gcp": "PREEMPTIBLE_WITH_FALLBACK_GCP",
}
_SECRETS = ("--token", "--client-id", "--client-secret", "--password", "--azure-client-secret")
_OF_NEW = ("node_type", "workers", "runtime", "policy", "spot")


def _volume(value: str | None) -> str | None:
    if value is None:
        return None
    path = value.removeprefix("dbfs:").rstrip("/")
    if not re.fullmatch(r"/Volumes(/[^/\0\n]+){3,}", path) or ".." in path.split("/"):
        raise ValueError(f"needs the path of a Volume, /Volumes/CATALOG/SCHEMA/VOLUME, got {value!r:.100}")
    return path


def _host(value: str | None) -> str | None:
    if value is None:
        return None
    parts = urllib.parse.urlsplit(value if "//" in value else f"https://{value}")
    here = parts.hostname in ("localhost", "127.0.0.1")
    if not parts.hostname or parts.username or (parts.scheme != "https" and not here):
        raise ValueError("needs the address of a workspace, such as https://adb-1.2.azuredatabricks.net")
    return f"{parts.scheme}://{parts.netloc}"


def _runtime(value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"\d+\.\d+\.x-[\w.-]+", value):
        raise ValueError(f"needs a runtime's key such as 15.4.x-cpu-ml-scala2.12, got {value!r:.100}")
    return value


class DatabricksOptions(AgentOptions, GpuOptions):
    """Options of the backend `databricks`."""

    form: ClassVar[Form] = Form(
        first=("profile", "volume", "cluster_id", "new_cluster", "np"),
        sections={
            "New cluster": ("node_type", "workers", "runtime", "policy", "spot"),
            "Account": ("host",),
        },
    )

    profile: Line = Field(
        default=None,
        title="Profile",
        description="Whom to sign in as: a profile of ~/.databrickscfg, as `databricks auth login` writes "
        "it. Default: the environment, else DEFAULT",
        json_schema_extra={"metavar": "NAME", "wanted": "the name of a profile"},
    )
    host: Annotated[str | None, AfterValidator(_host)] = Field(
        default=None,
        title="Workspace",
        description="The workspace, where no profile names it",
        json_schema_extra={"metavar": "URL", "wanted": "the address of a workspace"},
    )
    volume: Annotated[str | None, AfterValidator(_volume)] = Field(
        default=None,
        title="Volume",
        description="The Unity Catalog Volume that all passes through which the ranks write",
        json_schema_extra={
            "metavar": "PATH",
            "wanted": "the path of a Volume, /Volumes/CATALOG/SCHEMA/NAME",
        },
    )
    cluster_id: Line = Field(
        default=None,
        title="Cluster",
        description="Run on this cluster; it is started where it does not run",
        json_schema_extra={"metavar": "ID", "wanted": "a cluster's id such as 1122-101500-abcdefgh"},
    )
    new_cluster: bool = Field(
        default=False, title="New cluster", description="Run on a cluster that is made for this run alone"
    )
    node_type: Line = Field(
        default=None,
        title="Node type",
        description="The machines of the new cluster, such as g4dn.xlarge",
        json_schema_extra={"metavar": "TYPE", "wanted": "the name of a node type"},
    )
    workers: int | None = Field(
        default=None,
        ge=0,
        title="Workers of the cluster",
        description="How many machines the new cluster has beside its driver; the ranks are spread over them "
        "evenly. 0: the driver's alone. Default: 1",
        json_schema_extra={"ranks": True},
    )
    runtime: Annotated[str | None, AfterValidator(_runtime)] = Field(
        default=None,
        title="Runtime",
        description="The Databricks runtime of the new cluster. Default: the ML runtime with this Python",
        json_schema_extra={"metavar": "KEY", "wanted": "a runtime's key such as 15.4.x-cpu-ml-scala2.12"},
    )
    policy: Line = Field(
        default=None,
        title="Policy",
        description="The id of the cluster policy that the new cluster is made by",
        json_schema_extra={"metavar": "ID", "wanted": "the id of a cluster policy"},
    )
    spot: bool = Field(
        default=False,
        title="Spot machines",
        description="Take spot machines for the new cluster's workers, where there are any",
    )

    @property
    def mailbox(self) -> str:
        """The folder of the Volume that all runs leave their mail in."""
        return f"{self.volume}/jupyter-dist"

    @property
    def nodes(self) -> int:
        """On how many machines of a new cluster there can be ranks."""
        return max(1, 1 if self.workers is None else self.workers)

    @property
    def ranks(self) -> int | None:
        return self.nodes if self.new_cluster else None

    @classmethod
    def instead_of(cls, flag: str) -> str | None:
        if flag in _SECRETS:
            return (
                "would stand in the notebook for everybody to read: sign in with `databricks auth login` "
                "and name its --profile, or set DATABRICKS_TOKEN where JupyterLab is started"
            )
        return "is for --volume now: /Volumes/CATALOG/SCHEMA/VOLUME" if flag == "--dbfs" else None


def check_cluster(world_size: int, asked: DatabricksOptions) -> list[str]:
    """What can be told without asking anybody; returns what the user has to know. Raises InputError."""
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
    given = [name for name in _OF_NEW if getattr(asked, name) not in (None, False)]
    if asked.cluster_id is not None and (asked.new_cluster or given):
        other = "--new-cluster" if asked.new_cluster else f"--{given[0].replace('_', '-')}"
        raise InputError(
            f"--cluster-id names a cluster that is there, and {other} is for a new one: leave one of them out"
        )
    check_profile(asked.host, asked.profile, os.environ)
    if not asked.new_cluster:
        return []
    if asked.node_type is None and asked.policy is None:
        raise InputError("--new-cluster needs --node-type, such as g4dn.xlarge, or a --policy that names one")
    if asked.nodes > world_size:
        raise InputError(
            f"{asked.nodes} workers for {world_size} ranks: {asked.nodes - world_size} would be idle, and "
            f"paid for: --workers {world_size}, or -np {asked.nodes}"
        )
    _check_runtime(_runtime_of(asked), "--runtime")
    return [cost_line(asked.node_type, _workers(asked), spot=asked.spot)]


def _check_runtime(runtime: str, whose: str) -> None:
    """What travels is pickled, which only the same Python reads. Raises InputError, before anything costs."""
    python = _PYTHON_OF.get(runtime.partition(".")[0])
    if python is not None and python != _OWN_PYTHON:
        fitting = _RUNTIME_OF.get(_OWN_PYTHON)
        cure = f"a runtime {fitting} has it" if fitting else f"run the notebook with Python {python}"
        raise InputError(
            f"{whose} {runtime} has Python {python}, and the notebook's is {_OWN_PYTHON}: {cure}"
        )


def spread(world_size: int, workers: int) -> tuple[int, ...]:
    """How many ranks each host takes, evenly, where there are so many workers for them."""
    used = max(1, min(workers, world_size))
    return tuple(world_size // used + (node < world_size % used) for node in range(used))


def host_list(slots: Sequence[int]) -> list[dict[str, Any]]:
    """The hosts of a run, as the workers of its cluster that they are."""
    return [{"name": f"worker{node}", "slots": each} for node, each in enumerate(slots)]


def cluster_hosts(found: Mapping[str, Any], world_size: int) -> tuple[int, ...]:
    """How the ranks are spread over the workers of a cluster that is there, as the workspace describes it.

    Raises InputError for one that they cannot run on.
    """
    name = f"the cluster {found.get('cluster_name') or found.get('cluster_id')!r}"
    mode = str(found.get("data_security_mode"))
    if mode in _SHARED:
        raise InputError(
            f"{name} has shared (standard) access ({mode}), in which Spark takes no tasks of this kind: "
            "name one with dedicated access, or --new-cluster"
        )
    _check_runtime(str(found.get("spark_version", "")), f"{name} runs")
    there = found.get("executors") if found.get("state") == "RUNNING" else None
    least = (found.get("autoscale") or {}).get("min_workers", 0)
    return spread(world_size, len(there) if there else int(found.get("num_workers") or least))


def run_name(run: str) -> str:
    """Under which the jobs of a run are listed."""
    return f"jupyter-dist {run}"


def job_request(
    run: str, attempt: int, program: str, slots: Sequence[int], asked: DatabricksOptions
) -> dict[str, Any]:
    """The body of a one-time run. The token is the run's own: asked for again, the same run is answered.
    https://docs.databricks.com/api/workspace/jobs/submit"""
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
        # The driver is on demand: with it the whole run would go.
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
    if known is None:
        raise InputError(
            f"no Databricks runtime with Python {_OWN_PYTHON} is known here: name one with --runtime"
        )
    kind = "gpu" if asked.node_type is not None and has_gpus(asked.node_type) else "cpu"
    return f"{known}-{kind}-ml-scala2.12"
