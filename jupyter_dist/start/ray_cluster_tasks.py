"""Tasks of the runs that launch a Ray cluster, keep a connection to it open, and take it down.

Each function here is the cell of such a run (see ray_clusters.py). Ray's own launcher does the work, in child
processes whose output is written to the run's log (https://docs.ray.io/en/latest/cluster/cli.html).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from .. import clusters
from ..backends.ray import port_forward_program
from ..backends.ray.cluster_file import LauncherFile
from ..clusters import Cluster
from ..errors import DistError
from ..manage import stop
from . import ray_clusters

__all__ = ["attach", "down", "up"]

_RAY = (sys.executable, "-m", "ray.scripts.scripts")
_DIRECT_S = 20.0
"""The server for `ray://` starts some seconds after the head."""
_DIAL_S = 3.0
_STOP_S = 10.0
_QUICK_S = 60.0
_AGAIN = (2.0, 5.0, 10.0, 30.0, 60.0)
"""Pauses after short connections. One more connection that is lost within a minute ends the run."""


def up(path: str, *, cluster: str, client_port: int) -> str:
    """Launch the cluster, or update it to the file's settings, and save it. Returns its address.

    If this machine cannot reach the head's port for `ray://`, as in a cloud, another run attaches to the
    cluster.
    """
    try:
        _run("`ray up`", [*_RAY, "up", "--yes", "--log-style", "pretty", path])
    except BaseException:
        print(f"\nNodes of the cluster may be running. End them with `%dist ray down {path}`", flush=True)
        raise
    head = _head(path)
    address = f"ray://{head}:{client_port}"
    if _reached(head, client_port, _DIRECT_S):
        _save(cluster, address, path)
    else:
        print(f"This machine cannot reach {head}:{client_port}. Another run attaches to it", flush=True)
        with _as_no_rank():
            file = LauncherFile(Path(path), cluster, "", client_port)
            run = ray_clusters.start("attach", file, cluster)
        forwarded = ray_clusters.wait_until_open(run, _QUICK_S)
        if forwarded is None:
            raise DistError(
                f"Run {run.id} cannot reach the head of the cluster. See its log: `%dist logs {run.id}`"
            )
        address = forwarded
        print(f"Run {run.id} keeps the connection open and shows the autoscaler's log", flush=True)
    print(f"The cluster {cluster} is up. Use it with %%distribute --cluster {cluster}", flush=True)
    return address


def attach(path: str, *, cluster: str, client_port: int, local_port: int) -> None:
    """Forward a port of this machine to the head's port for `ray://`, and show the autoscaler's log.

    Blocks until it is stopped. A lost connection is opened again. Raises DistError if that fails.
    """
    head = _head(path)
    direct = f"ray://{head}:{client_port}"
    known = clusters.load().get(cluster)
    keeps = known is not None and known.options.get("address") == direct and _reached(head, client_port, 0.0)
    told = False

    def look() -> None:
        nonlocal told
        if not told and _reached("127.0.0.1", local_port, 0.0):
            told = True
            _save(cluster, direct if keeps else f"ray://127.0.0.1:{local_port}", path)
            print(f"ray://127.0.0.1:{local_port} leads to the head of {cluster}", flush=True)

    program = [sys.executable, port_forward_program.__file__, path, str(local_port), str(client_port)]
    failures = 0
    while True:
        began = time.monotonic()
        try:
            _run("the connection", program, look)
            said = "the connection has ended"
        except DistError as error:
            said = str(error)
        failures = failures + 1 if time.monotonic() - began < _QUICK_S else 0
        if failures > len(_AGAIN):
            raise DistError(
                f"{said}, {failures} times in a row, each time within a minute. If the cluster is "
                f"down, start it with `%dist ray up {path}`"
            )
        pause = _AGAIN[max(0, failures - 1)]
        print(f"{said}. jupyter-dist connects again in {pause:g} s", flush=True)
        time.sleep(pause)


def down(path: str, *, cluster: str) -> None:
    """Terminate the cluster's nodes, and remove the saved cluster."""
    for folder in ray_clusters.under_way(Path(path)):
        if ray_clusters.purpose_of(folder)["verb"] == "attach":
            stop.stop(folder, wait_s=_STOP_S)
    _run("`ray down`", [*_RAY, "down", "--yes", path])
    known = clusters.load().get(cluster)
    if known is not None and known.launched_from == path:
        clusters.remove(cluster)
        print(f"The cluster {cluster} is down. It was removed from the saved clusters", flush=True)


def _save(name: str, address: str, path: str) -> None:
    """Save the cluster's address. Its other options stay."""
    known = clusters.load().get(name)
    options = {**(known.options if known is not None else {}), "address": address}
    clusters.add(Cluster(name, "ray", options, path), replace=True)


def _head(path: str) -> str:
    """Return the head's address. Raises DistError if the cluster is not up."""
    done = subprocess.run(
        [*_RAY, "get-head-ip", path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False
    )
    lines = done.stdout.split()
    if done.returncode or not lines:
        raise DistError(
            f"The cluster of {Path(path).name} has no running head. Start it with `%dist ray up {path}`"
        )
    return lines[-1]


def _reached(host: str, port: int, limit_s: float) -> bool:
    """Return whether Ray's server for `ray://` answers. If nobody listens, wait up to `limit_s`.

    An HTTP/2 server sends first. So a byte proves more than a connection, which a forwarded port always
    accepts.
    """
    until = time.monotonic() + limit_s
    while True:
        try:
            with socket.create_connection((host, port), timeout=_DIAL_S) as connection:
                if connection.recv(1):
                    return True
        except (ConnectionRefusedError, ConnectionResetError):
            pass
        except OSError:  # no host, or a firewall that drops packets: waiting does not help
            return False
        if time.monotonic() >= until:
            return False
        time.sleep(0.3)


def _run(what: str, argv: Sequence[str], look: Callable[[], None] | None = None) -> None:
    """Run a program until it ends, with its output in that of this process.

    If this function raises, the program ends too.

    Raises DistError if the program fails.
    """
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    try:
        while child.poll() is None:
            if look is not None:
                look()
            try:
                child.wait(0.3)
            except subprocess.TimeoutExpired:
                continue
    except BaseException:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
        raise
    if child.returncode:
        how = f"signal {-child.returncode}" if child.returncode < 0 else f"exit code {child.returncode}"
        raise DistError(f"{what} ended with {how}: see above")


@contextlib.contextmanager
def _as_no_rank() -> Iterator[None]:
    """Remove the environment variables that mark this process as a rank.

    A run started meanwhile is then independent. Otherwise it would end together with this run.
    """
    kept = ("JUPYTER_DIST_RUNS", "JUPYTER_DIST_CLUSTERS")
    ours = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("JUPYTER_DIST_") and name not in kept
    }
    for name in ours:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(ours)
