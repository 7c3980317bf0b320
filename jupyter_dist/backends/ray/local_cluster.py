"""A Ray cluster on this machine for one run, if no other is available. It starts and ends with the run.

    python -m jupyter_dist.backends.ray.local_cluster FOLDER GRACE TEMPORARY ARGUMENT…

The program runs `ray start ARGUMENT…` as its child until the run has ended. The program also ends if nobody
has watched the run for the grace time. The watcher is a supervisor or a backend process: each may die and be
restarted meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import IO, Any

from ...errors import LaunchError, Unreachable
from ...folder import RunFolder
from ...job import State
from ...processes.rank_processes import PACKAGE_ROOT
from ...worker.boot import set_name
from ...worker.gpus.devices import visible_gpus
from ...worker.host.machine import cores
from ...worker.host.ports import free_ports
from ...worker.process_groups import signal_if
from .cluster_state import sign_in
from .connection import EMBEDDED_IP, check_listening
from .options import RayOptions

__all__ = ["end", "main", "start"]

_START_S = 150.0
_TRIES = 3
_TIMED_OUT_S = 20.0
"""Time in seconds after which a failed start counts as a timeout, and is tried again.

Ray allows a node 30 s to start, and its helpers less. On a busy machine, a second start profits from the
files that the first one read from disk. A start that fails earlier has another reason.
"""
_PORTS = (
    *("ray-client-server", "metrics-export", "dashboard-agent-listen", "dashboard-agent-grpc"),
    "runtime-env-agent",
)
"""Values that Ray would choose itself, which takes seconds. Ray does not choose the first one at all."""
_BEGIN = """
from ray.scripts.scripts import main
try:
    from ray import _raylet
    from ray._private.node import Node

    def start_raylet(self, *given, **named):
        try:
            asked = self._ray_params
            for name, port in (
                ("dashboard_agent_listen_port", asked.dashboard_agent_listen_port),
                ("metrics_agent_port", asked.metrics_agent_port),
                ("metrics_export_port", asked.metrics_export_port),
                ("runtime_env_agent_port", asked.runtime_env_agent_port),
            ):
                _raylet.persist_port(self._session_dir, self._node_id, name, port)
        except Exception as error:
            print(f"Ray's helpers have to say their ports in time themselves: {error!r}", flush=True)
        return start(self, *given, **named)

    start, Node.start_raylet = Node.start_raylet, start_raylet
except (ImportError, AttributeError) as error:
    print(f"Ray's helpers have to say their ports in time themselves: {error!r}", flush=True)
main()
"""
"""`ray start` with fixed ports of Ray's helpers.

A raylet allows each helper 15 s to report its port, and ends otherwise. On a busy machine the helpers'
imports take longer.
"""
_LOOK_EVERY_S = 2.0
_END_S = 10.0
_STARTED = b"Ray runtime started"
_LONGEST = 1 << 20
_LATE_S = 60.0
"""Seconds beyond the grace time: the ranks and the actors that reserve their resources have ended by then."""


def start(folder: RunFolder, asked: RayOptions, workers: int) -> tuple[str, int]:
    """Start a Ray cluster with resources for the run. Blocks until it answers.

    Returns its address, and the argument of `end`. Raises LaunchError, and leaves nothing running then.
    """
    gpus, each = len(visible_gpus()), asked.gpus_per_worker
    if each is None:  # an elastic run can begin with fewer ranks
        each = 1 if gpus and not asked.is_elastic else 0
    wanted = each * workers
    if wanted > gpus:
        raise LaunchError(
            f"{workers} workers ask {wanted:g} GPUs, and a Ray of the run's own has those of this machine: "
            f"{gpus}. Name a cluster with --address, or train on the CPU with --gpus-per-worker 0. "
            "Nothing was started."
        )
    sign_in(own=True)  # otherwise every user of this machine could run code in it
    port, *others = free_ports(1 + len(_PORTS))
    temporary = tempfile.mkdtemp(prefix="jdray-")  # the paths of its sockets have to be short
    cpus = max(cores(), math.ceil(asked.cpus_per_worker * workers))
    argv = ["--head", "--block", "--node-ip-address", EMBEDDED_IP, "--port", str(port)]
    argv += ["--temp-dir", temporary, "--num-cpus", str(cpus), "--num-gpus", str(gpus)]
    argv += ["--include-dashboard", "false", "--include-log-monitor", "false", "--disable-usage-stats"]
    argv += ["--min-worker-port", "0", "--max-worker-port", "0"]
    argv.append("--no-monitor")  # an autoscaler, which cannot add a node here
    for name, of_it in zip(_PORTS, others, strict=True):
        argv += [f"--{name}-port", str(of_it)]
    if asked.resources:
        has = {name: amount * workers for name, amount in asked.resources.items()}
        argv += ["--resources", json.dumps(has)]
    # Read the output through this file: the other process removes the folder if Ray cannot be started.
    with open(os.path.join(temporary, "start.log"), "a+b") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, str(folder.path), str(asked.grace), temporary, *argv],
            cwd=PACKAGE_ROOT,
            env={**os.environ, "RAY_worker_niceness": "0"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        address = f"{EMBEDDED_IP}:{port}"
        deadline = time.monotonic() + _START_S
        while not _is_up(_said(log), address):
            if keeper.poll() is not None or time.monotonic() > deadline:
                end(keeper.pid)
                said = _said(log)[-1000:].decode(errors="replace").strip()
                raise LaunchError(
                    f"no Ray could be started on this machine; it said: {said}. Nothing was started."
                )
            time.sleep(0.1)
    return address, keeper.pid


def _said(log: IO[bytes]) -> bytes:
    return os.pread(log.fileno(), _LONGEST, 0)


def _is_up(said: bytes, address: str) -> bool:
    """Return whether the cluster and its node answer, according to Ray's output."""
    if _STARTED not in said:
        return False
    with contextlib.suppress(Unreachable):
        check_listening(address)
        return True
    return False


def _has_started(temporary: str) -> bool:
    return _STARTED in Path(temporary, "start.log").read_bytes()


def end(pid: int) -> None:
    """End such a cluster. Repeatable. Does not wait."""
    with contextlib.suppress(OSError):
        signal_if(pid, signal.SIGTERM, _is_cluster)


def _is_cluster(pid: int) -> bool:
    return f"-m\0{__spec__.name}\0".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()


def _watched(folder: RunFolder) -> float:
    """Return when somebody last watched the run, or 0 if the run has ended."""
    state: Mapping[str, Any] = json.loads(folder.state.read_bytes())
    status = State(state["state"])
    return 0.0 if status.ended and not state.get("verdict") else float(state.get("heartbeat") or 0.0)


def _python(temporary: str) -> str:
    """Return a path of this Python that a shell reads as one word.

    Ray puts the path of its Python into a shell's command without quotes. All its processes use the path of
    the first one. https://github.com/ray-project/ray/blob/master/python/ray/_private/runtime_env/context.py
    """
    if shlex.quote(sys.executable) == sys.executable:
        return sys.executable
    environment = os.path.join(temporary, "python")
    os.symlink(sys.prefix, environment)
    return os.path.join(environment, os.path.relpath(sys.executable, sys.prefix))


def main(argv: list[str]) -> None:
    """Run a Ray cluster until nobody needs it."""
    folder, grace_s, temporary = RunFolder(Path(argv[0])), float(argv[1]), argv[2]
    set_name("jdist ray")
    ended: list[int] = []

    def on_term(signum: int, _: FrameType | None) -> None:
        ended.append(signum)

    signal.signal(signal.SIGTERM, on_term)

    python = _python(temporary)

    def begin() -> subprocess.Popen[bytes]:
        return subprocess.Popen([python, "-c", _BEGIN, "start", *argv[3:]], cwd="/")

    child, tried, tries = begin(), time.time(), 1
    begun = last = tried
    while not ended:
        if child.poll() is not None:
            if tries == _TRIES or time.time() - tried < _TIMED_OUT_S or _has_started(temporary):
                break
            child, tried, tries = begin(), time.time(), tries + 1
        time.sleep(0.05 if ended else _LOOK_EVERY_S if time.time() - begun > _START_S else 0.5)
        with contextlib.suppress(OSError, ValueError, KeyError):
            heard = _watched(folder)
            if not heard:
                break
            last = max(last, heard)
        if time.time() - last > grace_s + _LATE_S or not folder.path.is_dir():
            break
    # Ray's processes end with this child: they were started with --block.
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_END_S)
    child.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(_END_S)
    shutil.rmtree(temporary, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
