"""The connection to a Ray cluster: find its address, check its versions, make this process its driver.

Another version of Ray or Python is detected and named before anything of a run is sent. Ray's own errors
contain no cure for either.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import platform
import queue
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from ...errors import DistError, LaunchError, MissingEngine, Unreachable
from ...worker import foreign_names
from ...worker.host.machine import interfaces
from .cluster_discovery import of_this_machine
from .cluster_state import sign_in

__all__ = ["EMBEDDED_IP", "NAMESPACE", "check_listening", "connect", "find_address", "head_of"]

NAMESPACE = "jupyter-dist"
"""Namespace of our actors. Other programs cannot use their names by accident."""
EMBEDDED_IP = "127.0.0.2"
"""Listening address of a Ray cluster that was started for one run. The address identifies such a cluster."""
_DIAL_S = 3.0
_ASK_S = 60.0
_AGAIN_S = (0.5, 1.0, 2.0, 4.0)
_NO_SERVER = re.compile(
    "Starting Ray client server failed|Proxy failed to Connect to backend"
    r"|psutil\.(ZombieProcess|NoSuchProcess)"
)
"""Ray's error if the process that it starts for a client failed, and the pauses before further attempts.

It happens to one process in fifteen: https://github.com/ray-project/ray/issues/63202
"""
_connecting = threading.Lock()
"""Guards the connection: several of our threads use Ray, and a process has only one connection."""


def find_address(asked: str | None) -> str | None:
    """Return the address of the Ray cluster for a run. None: the run starts its own. Raises LaunchError."""
    named = os.environ.get("RAY_ADDRESS", "").strip()
    wanted = asked or named or "auto"
    if wanted == "local":
        return None
    if wanted != "auto":
        return wanted
    there = [address for address in of_this_machine() if head_of(address)[0] != EMBEDDED_IP]
    found = [address for address in there if _listens(address)]
    if len(found) > 1:
        raise LaunchError(
            f"Several Rays run on this machine, at {', '.join(found)}. Name one, as in --address "
            f"{found[0]}. Nothing was started."
        )
    if found:
        return found[0]
    if asked == "auto":
        raise LaunchError(
            "--address auto: no Ray runs on this machine. Start one with `ray start --head`, "
            "name another with --address ray://HOST:10001, or remove --address. Without "
            "--address the run starts a Ray of its own."
        )
    return None


def head_of(address: str) -> tuple[str, int]:
    """Return the host and the port of an address."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    return str(parts.hostname), parts.port or (10001 if parts.scheme == "ray" else 6379)


def _listens(address: str) -> bool:
    with contextlib.suppress(Unreachable):
        check_listening(address)
        return True
    return False


def check_listening(address: str) -> None:
    """Raise Unreachable if nobody answers at the address."""
    try:
        socket.create_connection(head_of(address), timeout=_DIAL_S).close()
    except OSError as error:
        host, port = head_of(address)
        raise Unreachable(f"no Ray answers at {host}:{port} ({error.strerror or error})") from None


def connect(address: str, runtime_env: Callable[[], Mapping[str, Any]] = dict) -> None:
    """Make this process a driver of the Ray cluster at that address. Blocks for seconds the first time.

    `runtime_env`: returns the runtime environment of everything that this process starts there.

    Raises Unreachable if nobody answers, and LaunchError if we cannot use the cluster.
    """
    with _connecting:
        for pause_s in (*_AGAIN_S, None):
            if _ray().is_initialized():
                return
            try:
                return _connect(address, runtime_env)
            except Unreachable as error:
                if pause_s is None or not _NO_SERVER.search(f"{error} {error.__cause__}"):
                    raise
                time.sleep(pause_s)


def _connect(address: str, runtime_env: Callable[[], Mapping[str, Any]]) -> None:
    check_listening(address)
    as_client = address.startswith("ray://")
    if as_client:
        _greet(address)
    else:  # this machine has to be one of its nodes
        sign_in()
        _compare(address, _versions_of_gcs(address))
    try:
        _ray().init(
            address=address,
            namespace=NAMESPACE,
            runtime_env=dict(runtime_env()) or None,
            log_to_driver=False,  # Ray would deduplicate the output, and ours has another transport
            configure_logging=False,
            logging_level="ERROR",
        )
    except Exception as error:
        # Only now: Ray starts a process for each client that asks anything, which takes seconds.
        if as_client and not _NO_SERVER.search(str(error)):
            with contextlib.suppress(Unreachable):
                _compare(address, _versions_by_client(address))
        said = " ".join(str(error).split())[:500]
        if isinstance(error, ConnectionError | TimeoutError):
            raise Unreachable(f"the Ray at {address} does not let us in: {said}") from error
        raise LaunchError(f"the Ray at {address} does not let us in: {said}. Nothing was started.") from error


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        cure = 'pip install "jupyter-dist[ray]"'
        raise MissingEngine(f"the backend 'ray' needs Ray ({error}): {cure}") from None
    return ray


def _versions_of_gcs(address: str) -> Mapping[str, str]:
    """Return the versions that a cluster reports to a process that is not its driver yet."""
    try:
        raylet = importlib.import_module("ray._raylet")
        foreign_names.require("backends/ray/connection")
        client = raylet.GcsClient(address=address)
        told = json.loads(client.internal_kv_get(b"CLUSTER_METADATA", b"cluster", timeout=_ASK_S) or b"{}")
        nodes = client.get_all_node_info(timeout=_ASK_S).values()
    except foreign_names.ForeignNameMissing as error:
        raise LaunchError(f"{error} Nothing was started.") from None
    except Exception as error:
        raise Unreachable(f"the program at {address} does not answer like a Ray: {_line(error)}") from error
    here = {found for held in interfaces().values() for found in held} | {"127.0.0.1", "::1", EMBEDDED_IP}
    if not any(node.state == 0 and node.node_manager_address in here for node in nodes):
        host, _ = head_of(address)
        raise LaunchError(
            f"this machine is not a node of the Ray at {address}, and only nodes can use that "
            f"address. Connect as a client with --address ray://{host}:10001. Nothing was started."
        )
    return {"ray": told.get("ray_version", "?"), "python": told.get("python_version", "?")}


def _greet(address: str) -> None:
    """Raise Unreachable if no cluster accepts clients there. Ray's own client tries for half a minute."""
    from ray.core.generated import ray_client_pb2 as messages
    from ray.core.generated import ray_client_pb2_grpc as stubs

    with _as_client(address) as channel:
        if channel is not None:
            ping = messages.ClusterInfoRequest(type=messages.ClusterInfoType.PING)
            stubs.RayletDriverStub(channel).ClusterInfo(ping, timeout=_ASK_S)


def _versions_by_client(address: str) -> Mapping[str, str]:
    """Return the versions that a cluster reports to a client that it rejected.

    This call pickles nothing. Ray's own client begins with a pickled object, which another version may be
    unable to read.

    https://github.com/ray-project/ray/blob/master/src/ray/protobuf/ray_client.proto
    """
    from ray.core.generated import ray_client_pb2 as messages
    from ray.core.generated import ray_client_pb2_grpc as stubs

    wishes: queue.Queue[Any] = queue.Queue()
    wishes.put(messages.DataRequest(req_id=1, init=messages.InitRequest(ray_init_kwargs="{}")))
    wishes.put(messages.DataRequest(req_id=2, connection_info=messages.ConnectionInfoRequest()))
    wishes.put(messages.DataRequest(req_id=3, connection_cleanup=messages.ConnectionCleanupRequest()))
    who = [("client_id", uuid.uuid4().hex), ("reconnecting", "False")]
    with _as_client(address) as channel:
        if channel is None:
            return {}
        try:
            for answer in stubs.RayletDataStreamerStub(channel).Datapath(
                iter(wishes.get, None), metadata=who, timeout=_ASK_S
            ):
                if answer.WhichOneof("type") == "init" and not answer.init.ok:
                    said = answer.init.msg.strip().split("\n")[-1]  # the message is a traceback
                    kind = Unreachable if _NO_SERVER.search(said) else LaunchError
                    raise kind(f"the Ray at {address} accepts no clients: {said}. Nothing was started.")
                if answer.WhichOneof("type") == "connection_info":
                    about = answer.connection_info
                    return {"ray": about.ray_version, "python": about.python_version}
        finally:
            wishes.put(None)
    raise Unreachable(f"the program at {address} is not a Ray that accepts clients")


@contextlib.contextmanager
def _as_client(address: str) -> Iterator[Any]:
    """Return a channel to a cluster's client port. None if only Ray's own client can sign in."""
    import grpc

    if os.environ.get("RAY_USE_TLS") or os.environ.get("RAY_AUTH_MODE", "disabled") == "token":
        yield None
        return
    host, port = head_of(address)
    with grpc.insecure_channel(f"[{host}]:{port}" if ":" in host else f"{host}:{port}") as channel:
        try:
            yield channel
        except grpc.RpcError as error:
            why = getattr(error, "details", lambda: None)() or _line(error)
            raise Unreachable(f"the program at {address} is not a Ray that accepts clients: {why}") from error


def _compare(address: str, theirs: Mapping[str, str]) -> None:
    """Raise LaunchError if one of the two sides may be unable to read the other's pickles."""
    if not theirs:
        return
    ray = _ray()
    if theirs["ray"] != ray.__version__:
        raise LaunchError(
            f"the Ray at {address} is {theirs['ray']}, but the notebook has {ray.__version__}, "
            f'and the two cannot connect. Run pip install "ray=={theirs["ray"]}" here, or start '
            f"that Ray with {ray.__version__}. Nothing was started."
        )
    own = platform.python_version()
    # Ray requires the same Python version of nodes, and the same minor version of clients.
    parts = 2 if address.startswith("ray://") else 3
    if theirs["python"].split(".")[:parts] != own.split(".")[:parts]:
        raise LaunchError(
            f"the Ray at {address} has Python {theirs['python']}, but the notebook has Python "
            f"{own}. The two exchange pickles, which need the same version. Use the same Python "
            "for both. Nothing was started."
        )


def _line(error: BaseException) -> str:
    if isinstance(error, DistError):
        return str(error)
    said = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
