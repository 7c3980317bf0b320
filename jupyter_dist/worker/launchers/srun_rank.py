"""The rendezvous of a task that srun has started, from Slurm's variables."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping

__all__ = ["counts", "meeting", "names"]


def meeting(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that depend on Slurm's choice of nodes. They replace those for one machine."""
    nodes = list(names(environ.get("SLURM_STEP_NODELIST", "")))
    tasks = counts(environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    node = int(environ.get("SLURM_NODEID", "0"))
    found = {} if "OMP_NUM_THREADS" in environ else {"OMP_NUM_THREADS": str(_threads(environ, tasks, node))}
    if len(nodes) < 2 or len(nodes) != len(tasks):
        alone = sys.platform == "linux" and "GLOO_SOCKET_IFNAME" not in environ
        return {**found, **({"GLOO_SOCKET_IFNAME": "lo"} if alone else {})}
    found["MASTER_ADDR"] = nodes[0]
    at_once = _tasks_at_once(environ) or max(tasks)
    turns = range(0, max(tasks), at_once)
    places = [
        name
        for dealt in turns
        for name, count in zip(nodes, tasks)
        for _ in range(min(at_once, count - dealt))
    ]
    ports = [worker.rpartition(":")[2] for worker in environ.get("JUPYTER_DIST_TF_WORKERS", "").split(",")]
    found["JUPYTER_DIST_TF_WORKERS"] = ",".join(f"{name}:{port}" for name, port in zip(places, ports))
    interface = _interface_towards(nodes[0 if node else 1])
    if interface is not None:
        own = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
        found |= {name: value for name, value in own.items() if name not in environ}
    return found


def names(text: str) -> Iterator[str]:
    """Expand a node list. `h[1-2,05],login` is h1, h2, h05 and login; a name may have several brackets."""
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        head, bracket, rest = part.partition("[")
        if not bracket:
            yield part
            continue
        inside, _, tail = rest.partition("]")
        for span in inside.split(","):
            first, _, last = span.partition("-")
            for number in range(int(first), int(last or first) + 1):
                yield from names(f"{head}{number:0{len(first)}}{tail}")


def counts(text: str) -> list[int]:
    """Expand task counts. `2(x3),1` is two tasks on each of three nodes and one on the fourth."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        count, _, times = part.partition("(x")
        found += [int(count)] * int(times.rstrip(")") or 1)
    return found


def _tasks_at_once(environ: Mapping[str, str]) -> int:
    """Return how many tasks a node gets before the next node has its turn; 0 for all of them.

    Source: https://slurm.schedmd.com/dist_plane.html
    """
    kind = environ.get("SLURM_DISTRIBUTION", "")
    plane = environ.get("SLURM_DIST_PLANESIZE", "")
    if kind.startswith("plane") and plane.isdigit():
        return int(plane)
    return 1 if kind.startswith("cyclic") else 0


def _threads(environ: Mapping[str, str], tasks: list[int], node: int) -> int:
    """Return the number of cores of the task."""
    here = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    if environ.get("SLURM_CPUS_PER_TASK", "").isdigit():
        return min(here, int(environ["SLURM_CPUS_PER_TASK"]))
    mine = tasks[node] if node < len(tasks) else 1
    everybodys = here == (os.cpu_count() or 1)
    return max(1, here // mine if everybodys else here)


def _interface_towards(host: str) -> str | None:
    import socket

    from ..host.machine import interface_of

    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)  # a datagram socket sends nothing here
            return interface_of(probe.getsockname()[0])
    except OSError:
        return None
