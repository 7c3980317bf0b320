"""What one running Ray has: `python cluster_state.py ADDRESS` writes one line of JSON and ends.

The module is a program of its own because Ray's client ends its process when it loses the cluster, brings
threads and takes signals. It imports nothing of this package. A process that holds Ray's client anyway may
call `of_gcs` and `of_client`.

    {"id": "…", "ray": "2.60.0", "python": "3.11.7",
     "nodes": [{"address": "10.0.0.2", "free": {"CPU": 3.0, "GPU": 1.0, "memory": 8e9}, "total": {…}}],
     "free": {"CPU": 3.0, "GPU": 1.0, "memory": 8e9},
     "autoscaler": {"launching": [{"type": "gpu", "count": 1, "details": ""}], "failed": […],
                    "infeasible": [{"GPU": 8.0}], "types": {"gpu": {"resources": {"GPU": 8.0}, "max": 4}}}}

Resources are called as Ray calls them; memory is in bytes. `free` is that of all nodes; a node's own is null
where only a client was asked, which is not told it. `autoscaler` is null where none runs, or where
nothing can be learned about it; where the cluster cannot be asked the line is `{"problem": "…"}`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["main", "of_client", "of_gcs", "sign_in"]

_TRIES = 4
_COUNTED = ("CPU", "GPU", "memory")
_TYPE = "accelerator_type:"
"""Nodes say the kind of their GPUs with a resource of this name, such as `accelerator_type:A100`."""


def sign_in(*, own: bool = False) -> None:
    """Show the user's token to a Ray on this machine, as Ray's own drivers do there, unless RAY_AUTH_MODE is
    set. `own`: it is about to be started for the run, and has one made where there is none.
    https://docs.ray.io/en/latest/ray-security/token-auth.html
    """
    with contextlib.suppress(ImportError, AttributeError):  # an older Ray has no tokens
        tokens = _module("ray._private.authentication.authentication_token_setup")
        if own:
            tokens.enable_token_auth_by_default()
            tokens.ensure_token_if_auth_enabled(create_token_if_missing=True)
        else:
            tokens.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)


def of_gcs(address: str, timeout_s: float = 5.0) -> dict[str, Any]:
    """The census of the Ray whose GCS listens at `host:port`. Raises what Ray's client raises.

    No driver is registered there, and no Ray is needed on this machine: the question is the one that
    `ray status` asks (https://docs.ray.io/en/latest/cluster/cli.html#ray-status).
    """
    autoscaler_pb2 = _module("ray.core.generated.autoscaler_pb2")
    sign_in()
    client = _module("ray._raylet").GcsClient(address)
    reply = autoscaler_pb2.GetClusterStatusReply.FromString(client.get_cluster_status(timeout_s=timeout_s))
    known = _kept(client, b"CLUSTER_METADATA", b"cluster", timeout_s)
    about = json.loads(known) if known else {}
    identity = _kept(client, b"ray_cluster_id", b"cluster", timeout_s)
    dead = autoscaler_pb2.NodeStatus.Value("DEAD")
    states = reply.cluster_resource_state.node_states
    nodes = [
        _node(node.node_ip_address, node.available_resources, node.total_resources)
        for node in states
        if node.status != dead
    ]
    names = sorted({name for node in nodes for name in node["total"]})
    return {
        "id": None if identity is None else identity.hex(),
        "ray": about.get("ray_version"),
        "python": about.get("python_version"),
        "nodes": nodes,
        "free": {name: sum(node["free"].get(name, 0.0) for node in nodes) for name in names},
        "autoscaler": _autoscaler(client, states, reply.autoscaling_state, timeout_s),
    }


def _kept(client: Any, key: bytes, namespace: bytes, timeout_s: float) -> bytes | None:
    """A value of the GCS's store; None where there is none."""
    found: bytes | None = client.internal_kv_get(key, namespace, timeout=timeout_s)
    return found


def _node(address: str, free: Mapping[str, float] | None, total: Mapping[str, float]) -> dict[str, Any]:
    counted = _counted(total)
    # A resource that is used up is not among those that are free.
    left = None if free is None else {name: float(free.get(name, 0.0)) for name in counted}
    return {"address": address, "free": left, "total": counted}


def _counted(amounts: Mapping[str, float]) -> dict[str, float]:
    return {name: float(amount) for name, amount in amounts.items() if _counts(name)}


def _counts(name: str) -> bool:
    """Whether a resource is one to be told: not the marks of single nodes, nor shares of placement groups."""
    return (
        name in _COUNTED
        or name.startswith(_TYPE)
        or not (name.startswith("node:") or "_group_" in name or name == "object_store_memory")
    )


def _autoscaler(client: Any, nodes: Any, state: Any, timeout_s: float) -> dict[str, Any] | None:
    """What the autoscaler is about to do; None where none runs.

    Ray's present autoscaler reports it to the GCS. The one before it, which older `ray up` starts, leaves a
    text in the GCS's store instead: of that one no more is known than that it runs.
    """
    raylet, autoscaler_pb2 = _module("ray._raylet"), _module("ray.core.generated.autoscaler_pb2")
    if not (_adds(nodes) if state.autoscaler_state_version else _added_before(client, timeout_s)):
        return None
    config = _kept(
        client,
        raylet.GCS_AUTOSCALER_CLUSTER_CONFIG_KEY.encode(),
        raylet.GCS_AUTOSCALER_STATE_NAMESPACE.encode(),
        timeout_s,
    )
    groups = autoscaler_pb2.ClusterConfig.FromString(config or b"").node_group_configs
    waiting = [
        {"type": asked.ray_node_type_name, "count": asked.count, "details": ""}
        for asked in state.pending_instance_requests
    ]
    started = [
        {"type": node.ray_node_type_name, "count": 1, "details": node.details}
        for node in state.pending_instances
    ]
    failed = [
        {"type": asked.ray_node_type_name, "count": asked.count, "details": asked.reason}
        for asked in state.failed_instance_requests
    ]
    return {
        "launching": [*waiting, *started],
        "failed": failed,
        "infeasible": [dict(request.resources_bundle) for request in state.infeasible_resource_requests],
        "types": {
            group.name: {"resources": dict(group.resources), "max": group.max_count} for group in groups
        },
    }


def _adds(nodes: Any) -> bool:
    """Whether an autoscaler that reports to the GCS can add nodes.

    One runs on every head, and where nobody told it of a cloud it only watches. Nodes that an autoscaler
    works with, the head among them, know their kind by a name.
    """
    return any(node.ray_node_type_name for node in nodes)


def _added_before(client: Any, timeout_s: float) -> bool:
    """The same of the autoscaler before. One that only watches makes each node a kind of its own, called
    after the node's id: https://github.com/ray-project/ray/blob/master/python/ray/autoscaler/_private/util.py
    """
    told = _kept(client, b"__autoscaling_status", b"", timeout_s)
    report = json.loads(told).get("autoscaler_report") if told else None
    kinds = report["active_nodes"] if report else ()
    return not all(re.fullmatch("node_[0-9a-f]{32,}", kind) for kind in kinds)


def of_client(context: Any = None) -> dict[str, Any]:
    """The census of the Ray that this process is connected to, as a driver or through `ray://`.

    `context`: what `ray.init("ray://…")` has returned, which tells the versions there.
    """
    ray = _module("ray")
    nodes = [node for node in ray.nodes() if node["Alive"]]
    return {
        "id": None,
        "ray": getattr(context, "ray_version", ray.__version__),
        "python": getattr(context, "python_version", ".".join(map(str, sys.version_info[:3]))),
        "nodes": [_node(node["NodeManagerAddress"], None, node["Resources"]) for node in nodes],
        "free": _counted(ray.available_resources()),
        "autoscaler": None,
    }


def _connected(address: str) -> Any:
    """What `ray.init` returns. Of the processes that Ray starts for its clients one in fifteen does not come
    up, and the next one does: https://github.com/ray-project/ray/issues/63202"""
    for _ in range(_TRIES - 1):
        try:
            return _module("ray").init(address, logging_level="ERROR", log_to_driver=False)
        except ConnectionError as error:
            said = str(error)
            if "Starting Ray client server failed" not in said and "psutil.ZombieProcess" not in said:
                raise
    return _module("ray").init(address, logging_level="ERROR", log_to_driver=False)


def _module(name: str) -> Any:
    """A module of Ray's, whose types are its own business."""
    return importlib.import_module(name)


def main(address: str) -> None:
    """Write the census of one Ray to stdout."""
    try:
        found = of_client(_connected(address)) if "://" in address else of_gcs(address)
    except BaseException as error:  # of whatever kind Ray's client raises, and it has many
        said = str(error).strip().split("\n")[0]
        found = {"problem": f"{type(error).__name__}: {said}" if said else type(error).__name__}
    print(json.dumps(found), flush=True)
    # Ray's threads and exit handlers take seconds, and nobody waits for them.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
