"""Detection of running Ray clusters, for people: those of this machine, and the one of RAY_ADDRESS.

This module imports nothing of Ray. A child process (cluster_state.py) asks each cluster. Its `import ray`
takes a second or two on an idle machine. If a cluster is available only through `ray://`, it starts a process
for the question, which takes several seconds more. A caller waits 8 s at most. A longer question continues in
the background, and the next call returns its answer.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ...text.format import count, size
from ...worker.process_groups import kill_group

__all__ = ["addresses", "ask", "detect", "of_this_machine", "site", "told"]

_PATIENCE_S = 8.0
"""Longest time in seconds of one call: a view allows a backend 10 s."""
_CHILD_LIMIT_S = 100.0
"""Longest time in seconds of one child process. Nobody waits that long for it.

A head starts a process for each client, within the 30 s that Ray's client allows. A busy head sometimes needs
longer, and cluster_state.py then asks for another process: three times, plus the imports. With another
version's `ray://` a question takes a third of the limit: Ray reports nothing for 31 s.
"""
_DIAL_LIMIT_S = 2.0
_FRESH_S = 10.0
_AT_MOST = 8
"""Largest number of clusters that are asked. Each costs a process."""
_NONE_RUNS = "no Ray runs on this machine, and RAY_ADDRESS is not set: a run starts a Ray of its own here"


def detect() -> dict[str, Any]:
    """Return what a backend for Ray detects. Never raises.

    The answer is empty if Ray is not installed. Otherwise it has Ray's version and "sites" with one entry per
    running cluster, as `site` builds it. If none runs, "no_site" has a sentence that reports this.
    """
    try:
        version = importlib.metadata.version("ray")
    except importlib.metadata.PackageNotFoundError:
        return {}
    asked = list(addresses(os.environ))
    if not asked:
        return {"Ray": version, "no_site": _NONE_RUNS}
    answers = ask(asked)
    return {"Ray": version, "sites": [site(address, answers[address]) for address in _apart(answers)]}


def addresses(environ: Mapping[str, str]) -> Iterator[str]:
    """Return the address of RAY_ADDRESS, then those of this machine's clusters, as `--address` accepts them.

    Each address occurs once.
    """
    named = environ.get("RAY_ADDRESS", "").strip()
    found = [] if named in ("", "auto", "local") else [named]
    yield from dict.fromkeys([*found, *of_this_machine()])


def of_this_machine(proc: Path = Path("/proc")) -> list[str]:
    """Return the addresses `host:port` of the clusters of which this machine is a node.

    The source is the arguments of the machine's processes. A process in another network namespace, such as a
    container's, is skipped: its address is not valid here.
    """
    found = []
    ours = _network(proc / "self")
    for entry in sorted(proc.glob("[0-9]*"), key=lambda path: int(path.name)):
        with contextlib.suppress(OSError):  # a process may have ended, or be another user's
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if os.path.basename(words[0]) == "raylet" and _network(entry) in (None, ours):
                found += [word.partition("=")[2] for word in words if word.startswith("--gcs-address=")]
    return list(dict.fromkeys(found))


def _network(process: Path) -> str | None:
    try:
        return os.readlink(process / "ns" / "net")
    except OSError:
        return None


def ask(asked: Iterable[str], *, patience_s: float = _PATIENCE_S) -> dict[str, dict[str, Any]]:
    """Return the state of each cluster (cluster_state.py), or `{"problem": …}` after a timeout.

    Answers of the last seconds are returned again. Never raises.
    """
    until = time.monotonic() + patience_s
    questions = {address: _question(address) for address in list(asked)[:_AT_MOST]}
    return {address: question.answer(until) for address, question in questions.items()}


def _apart(answers: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Return the addresses, without those that lead to the same cluster as another address."""
    seen = set()
    for address, census in answers.items():
        identity = census.get("id")
        if identity is None or identity not in seen:
            yield address
        seen.add(identity)


def site(address: str, census: Mapping[str, Any]) -> dict[str, Any]:
    """Return a cluster as views show it: a name, the options that select it, and free and total resources."""
    found: dict[str, Any] = {"name": address, "options": {"address": address}, "problem": None}
    if "problem" in census:
        return {**found, "problem": census["problem"]}
    nodes, free = census["nodes"], census["free"]
    found["nodes"] = len(nodes)
    for key, name in (("cpus", "CPU"), ("gpus", "GPU"), ("memory_bytes", "memory")):
        total = sum(node["total"].get(name, 0.0) for node in nodes)
        found[key] = {"free": min(free.get(name, 0.0), total), "total": total}
    names = {name for node in nodes for name in node["total"]}
    kinds = [name.partition(":")[2] for name in sorted(names) if name.startswith("accelerator_type:")]
    return {**found, "gpu_types": kinds, "told": told({**found, "gpu_types": kinds})}


def told(found: Mapping[str, Any]) -> str:
    """Return the resources as text.

    An example is `2 nodes, 3 of 4 CPUs free, 1 of 2 GPUs free (A100), 5.2 GB of 8 GB free`.
    """
    gpus, memory = found["gpus"], found["memory_bytes"]
    kinds = f" ({', '.join(found['gpu_types'])})" if found["gpu_types"] else ""
    parts = [count(found["nodes"], "node"), f"{_amount(found['cpus'])} CPUs free"]
    parts.append(f"{_amount(gpus)} GPUs free{kinds}" if gpus["total"] else "no GPU")
    return ", ".join([*parts, f"{size(memory['free'])} of {size(memory['total'])} free"])


def _amount(found: Mapping[str, float]) -> str:
    return f"{found['free']:g} of {found['total']:g}"


class _Question:
    """One question to one cluster. A thread and a child process wait for the answer."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._began = time.monotonic()
        self._done = threading.Event()
        self._census: dict[str, Any] = {}
        threading.Thread(target=self._ask, name="jupyter-dist-ray-census", daemon=True).start()

    def serves(self) -> bool:
        """Return whether a caller gets this answer now: the answer is pending, or is recent enough."""
        return not self._done.is_set() or time.monotonic() - self._began < _FRESH_S

    def answer(self, until: float) -> dict[str, Any]:
        if self._done.wait(max(0.0, until - time.monotonic())):
            return self._census
        waited = time.monotonic() - self._began
        return {"problem": f"it has not answered for {waited:.0f} s: list the Rays again later"}

    def _ask(self) -> None:
        try:
            self._census = _unreachable(self._address) or _asked_by_child(self._address)
        except Exception as error:  # reported, like everything that prevents an answer
            self._census = {"problem": f"jupyter-dist cannot ask it: {error}"}
        self._began = time.monotonic()
        self._done.set()


_lock = threading.Lock()
_questions: dict[str, _Question] = {}


def _question(address: str) -> _Question:
    with _lock:
        known = _questions.get(address)
        if known is None or not known.serves():
            known = _questions[address] = _Question(address)
        return known


def _unreachable(address: str) -> dict[str, Any] | None:
    """Return why nobody listens at that address, or None if somebody does. Ray needs 45 s to report this."""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port or (10001 if parts.scheme == "ray" else None)
        if not host or not port or parts.scheme not in ("", "ray"):
            raise ValueError
    except ValueError:
        return {"problem": f"{address!r} is not an address such as 10.0.0.2:6379 or ray://10.0.0.2:10001"}
    try:
        socket.create_connection((host, port), timeout=_DIAL_LIMIT_S).close()
    except OSError as error:
        return {"problem": f"nobody answers at {host}:{port} ({error.strerror or error})"}
    return None


def _asked_by_child(address: str) -> dict[str, Any]:
    environ = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    child = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("cluster_state.py")), address],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with child:
        try:
            out, _ = child.communicate(timeout=_CHILD_LIMIT_S)
        except subprocess.TimeoutExpired:
            return {"problem": f"it did not report its resources within {_CHILD_LIMIT_S:g} s"}
        finally:
            if child.returncode is None:
                kill_group(child.pid)
    # Ray's own lines may precede ours.
    lines = [line for line in out.decode(errors="replace").split("\n") if line.startswith("{")]
    if not lines:
        return {"problem": "Ray's client ended without an answer: the Ray there may have another version"}
    census: dict[str, Any] = json.loads(lines[-1])
    return census
