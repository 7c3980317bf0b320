"""The Rays that there are to run on, for people: those of this machine, and the one that RAY_ADDRESS names.

Nothing of Ray is imported here. A Ray is asked by a child process (cluster_state.py), which has `import ray`
behind it in a second or two where the machine is idle; a question to a Ray that is only reached through
`ray://` has a process started there, and takes several more. Whoever looks waits 8 s at the most. A question
that takes longer goes on meanwhile, and the next look has its answer.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import signal
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

__all__ = ["addresses", "ask", "detect", "of_this_machine", "site", "told"]

_PATIENCE_S = 8.0
"""The longest that a look takes: a view gives a backend 10 s."""
_CHILD_LIMIT_S = 100.0
"""A head starts a process for each client. Ray's client gives that 30 s, which on a busy head are too few now
and then, and cluster_state.py then asks for another one: three times that, and the imports before. Nobody
waits for it meanwhile. Another version's `ray://` takes a third of it: Ray itself says nothing for 31 s."""
_DIAL_LIMIT_S = 2.0
_FRESH_S = 10.0
_AT_MOST = 8
"""So many Rays are asked; each costs a process."""
_NONE_RUNS = "no Ray runs on this machine, and RAY_ADDRESS is not set: a run starts a Ray of its own here"


def detect() -> dict[str, Any]:
    """What a backend for Ray answers when it is asked what there is to run on. Never raises.

    Empty where Ray is not installed; else its version, and under "sites" one entry for each Ray that runs,
    as `site` makes it, or under "no_site" a sentence that says that none does.
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
    """What RAY_ADDRESS names, then the Rays of this machine; each once, as `--address` takes it."""
    named = environ.get("RAY_ADDRESS", "").strip()
    found = [] if named in ("", "auto", "local") else [named]
    yield from dict.fromkeys([*found, *of_this_machine()])


def of_this_machine(proc: Path = Path("/proc")) -> list[str]:
    """The addresses `host:port` of the Rays that this machine is a node of, from its processes' arguments.

    Those in another network namespace, such as a container's, are left out: their address is not ours.
    """
    found = []
    ours = _network(proc / "self")
    for entry in sorted(proc.glob("[0-9]*"), key=lambda path: int(path.name)):
        with contextlib.suppress(OSError):  # processes come and go, and some are not ours to look at
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
    """The state of each Ray (cluster_state.py); `{"problem": …}` of one that does not answer in time.

    Answers of the last seconds are given again. Never raises."""
    until = time.monotonic() + patience_s
    questions = {address: _question(address) for address in list(asked)[:_AT_MOST]}
    return {address: question.answer(until) for address, question in questions.items()}


def _apart(answers: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The addresses without those that lead to a Ray that another one leads to as well."""
    seen = set()
    for address, census in answers.items():
        identity = census.get("id")
        if identity is None or identity not in seen:
            yield address
        seen.add(identity)


def site(address: str, census: Mapping[str, Any]) -> dict[str, Any]:
    """A Ray as views get it: a name, the options that lead there, and what it has, free and in total."""
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
    """`2 nodes, 3 of 4 CPUs free, 1 of 2 GPUs free (A100), 5.2 GB of 8 GB free`."""
    gpus, memory = found["gpus"], found["memory_bytes"]
    kinds = f" ({', '.join(found['gpu_types'])})" if found["gpu_types"] else ""
    parts = [count(found["nodes"], "node"), f"{_amount(found['cpus'])} CPUs free"]
    parts.append(f"{_amount(gpus)} GPUs free{kinds}" if gpus["total"] else "no GPU")
    return ", ".join([*parts, f"{size(memory['free'])} of {size(memory['total'])} free"])


def _amount(found: Mapping[str, float]) -> str:
    return f"{found['free']:g} of {found['total']:g}"


class _Question:
    """One question to one Ray, which a thread and a child process wait for."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._began = time.monotonic()
        self._done = threading.Event()
        self._census: dict[str, Any] = {}
        threading.Thread(target=self._ask, name="jupyter-dist-ray-census", daemon=True).start()

    def serves(self) -> bool:
        """Whether whoever asks now gets this answer: it is on its way, or young enough."""
        return not self._done.is_set() or time.monotonic() - self._began < _FRESH_S

    def answer(self, until: float) -> dict[str, Any]:
        if self._done.wait(max(0.0, until - time.monotonic())):
            return self._census
        waited = time.monotonic() - self._began
        return {"problem": f"it has not answered for {waited:.0f} s: list the Rays again later"}

    def _ask(self) -> None:
        try:
            self._census = _unreachable(self._address) or _asked_by_child(self._address)
        except Exception as error:  # told, as everything that hinders an answer is
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
    """Why nobody listens at that address; None where somebody does. Ray takes 45 s to say so."""
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
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    # Ray's own lines may stand before ours.
    lines = [line for line in out.decode(errors="replace").split("\n") if line.startswith("{")]
    if not lines:
        return {"problem": "Ray's client ended without an answer: the Ray there may have another version"}
    census: dict[str, Any] = json.loads(lines[-1])
    return census
