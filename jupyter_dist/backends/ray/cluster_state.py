"""A program that reports a Ray cluster's resources: `python cluster_state.py ADDRESS` writes a line of JSON.

The module is a separate program because of Ray's client. That client starts threads, handles signals, and
ends its process when it loses the cluster. The module imports nothing of this package. A process that already
uses Ray's client may call `of_gcs` and `of_client`.

    {"id": "…", "ray": "2.60.0", "python": "3.11.7",
     "nodes": [{"address": "10.0.0.2", "free": {"CPU": 3.0, "GPU": 1.0, "memory": 8e9}, "total": {…}}],
     "free": {"CPU": 3.0, "GPU": 1.0, "memory": 8e9},
     "autoscaler": {"launching": [{"type": "gpu", "count": 1, "details": ""}], "failed": […],
                    "infeasible": [{"GPU": 8.0}], "types": {"gpu": {"resources": {"GPU": 8.0}, "max": 4}}}}

Resources have Ray's names. Memory is in bytes. The outer `free` is the sum over all nodes. A node's own
`free` is null if only a client was asked, because a client cannot read it. `autoscaler` is null if none runs,
or if nothing can be found out about it. If the cluster does not answer, the line is `{"problem": "…"}`.
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
"""Prefix of a node's resource that names its kind of GPU, such as `accelerator_type:A100`."""


def sign_in(*, own: bool = False) -> None:
    """Set the user's token for a Ray cluster on this machine, as Ray's own drivers do.

    RAY_AUTH_MODE overrides.

    `own`: the cluster is about to be started for the run. A token is then created if there is none.
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
    """Return the state of the Ray cluster whose GCS listens at `host:port`. Raises what Ray's client raises.

    The call registers no driver there, and this machine needs no running Ray. `ray status` asks the same
    question (https://docs.ray.io/en/latest/cluster/cli.html#ray-status).
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
    """Return a value of the GCS's store, or None if there is none."""
    found: bytes | None = client.internal_kv_get(key, namespace, timeout=timeout_s)
    return found


def _node(address: str, free: Mapping[str, float] | None, total: Mapping[str, float]) -> dict[str, Any]:
    counted = _counted(total)
    # A resource that is used up is missing from the free resources.
    left = None if free is None else {name: float(free.get(name, 0.0)) for name in counted}
    return {"address": address, "free": left, "total": counted}


def _counted(amounts: Mapping[str, float]) -> dict[str, float]:
    return {name: float(amount) for name, amount in amounts.items() if _counts(name)}


def _counts(name: str) -> bool:
    """Return whether to report a resource: not a label of one node, nor a share of a placement group."""
    return (
        name in _COUNTED
        or name.startswith(_TYPE)
        or not (name.startswith("node:") or "_group_" in name or name == "object_store_memory")
    )


def _autoscaler(client: Any, nodes: Any, state: Any, timeout_s: float) -> dict[str, Any] | None:
    """Return what the autoscaler is about to do, or None if none runs.

    Ray's present autoscaler reports to the GCS. The legacy autoscaler of older `ray up` leaves a text in the
    GCS's store instead. Of the legacy one, this module reports only that it runs.
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
    """Return whether an autoscaler that reports to the GCS can add nodes.

    An autoscaler runs on every head. Without a cloud provider it only watches. If it manages nodes, each
    node, the head included, has a type name.
    """
    return any(node.ray_node_type_name for node in nodes)


def _added_before(client: Any, timeout_s: float) -> bool:
    """Return whether the legacy autoscaler can add nodes.

    If it only watches, each node is a type of its own, named after the node's id:
    https://github.com/ray-project/ray/blob/master/python/ray/autoscaler/_private/util.py
    """
    told = _kept(client, b"__autoscaling_status", b"", timeout_s)
    report = json.loads(told).get("autoscaler_report") if told else None
    kinds = report["active_nodes"] if report else ()
    return not all(re.fullmatch("node_[0-9a-f]{32,}", kind) for kind in kinds)


def of_client(context: Any = None) -> dict[str, Any]:
    """Return the state of the cluster to which this process is connected, as a driver or through `ray://`.

    `context`: the result of `ray.init("ray://…")`, which has the versions of the cluster.
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
    """Connect, and return the result of `ray.init`.

    One in fifteen of the processes that Ray starts for its clients fails, and the next one succeeds:
    https://github.com/ray-project/ray/issues/63202
    """
    for _ in range(_TRIES - 1):
        try:
            return _module("ray").init(address, logging_level="ERROR", log_to_driver=False)
        except ConnectionError as error:
            said = str(error)
            if "Starting Ray client server failed" not in said and "psutil.ZombieProcess" not in said:
                raise
    return _module("ray").init(address, logging_level="ERROR", log_to_driver=False)


def _module(name: str) -> Any:
    """Import a module of Ray's, without its types."""
    return importlib.import_module(name)


def main(address: str) -> None:
    """Write the state of one cluster to stdout."""
    try:
        found = of_client(_connected(address)) if "://" in address else of_gcs(address)
    except BaseException as error:  # Ray's client raises many kinds
        said = str(error).strip().split("\n")[0]
        found = {"problem": f"{type(error).__name__}: {said}" if said else type(error).__name__}
    print(json.dumps(found), flush=True)
    # Skip Ray's threads and exit handlers: they take seconds, and nobody waits for them.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
