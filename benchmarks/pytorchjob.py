"""How long from a PyTorchJob's submission until its first line is seen, ours and with kubectl?

The API server is real; the operator is the tests' stand-in. Nodes and pods are namespaces of this machine.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

# The cluster is that of the tests, which are no package.
from tests.rigs.kubernetes.binaries import lacking
from tests.rigs.kubernetes.control_plane import Plane, rules

from ._contenders import ours
from ._engines import Shared
from ._processes import Failed, Family, last_line
from ._race import Benchmark, Column, Contender, Measure

__all__ = ["benchmark"]

_LIMIT_S = 120.0
_AGAIN_S = 0.05
_STAMP = re.compile(r"@@\d+ \d+\.\d+@@")
_CODE = 'import os, time\nprint(f"@@{os.getpid()} {time.time():.6f}@@", flush=True)\n'
"""What each of the two ranks runs."""


def benchmark(quick: bool = False) -> Benchmark:
    cluster = Shared(_cluster)
    return Benchmark(
        name="kubernetes",
        title="To the first line of a PyTorchJob",
        contenders=[
            Contender("jupyter-dist, warm", partial(_ours, cluster=cluster), ours=True),
            Contender("kubectl apply, kubectl logs -f", partial(_kubectl, cluster=cluster)),
        ],
        columns=[
            Column("written", "first line of every rank, s", _s),
            Column("first", "the first one seen, s", _s),
            Column("seen", "all seen, s", _s),
        ],
        headline="first",
        rounds=1 if quick else 5,
        warm_up=0 if quick else 1,
        packages=["ipykernel"],
    )


def _s(seconds: float) -> str:
    return f"{seconds:.2f}"


@contextlib.contextmanager
def _cluster() -> Iterator[str]:
    """The kubeconfig of one that both use."""
    why = lacking()
    if why:
        raise Failed(why)
    with tempfile.TemporaryDirectory(prefix="jdkube-", ignore_cleanup_errors=True) as folder:
        # The plane hides two folders above its own from the pods.
        place = Path(folder, "of", "plane")
        place.parent.mkdir()
        with Plane(place) as plane:
            logs = {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get"]}
            applies = {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": ["patch"]}
            plane.grant([*rules(), logs, applies])
            yield str(plane.kubeconfig)


def _sample(seen: dict[str, float], sent: float) -> dict[str, float]:
    """From when which stamp was seen to the columns."""
    written = [float(stamp.strip("@").split()[1]) for stamp in seen]
    if len(written) != 2:
        raise Failed(f"lines of {len(written)} of 2 ranks arrived")
    found = {"written": max(written), "first": min(seen.values()), "seen": max(seen.values())}
    return {name: when - sent for name, when in found.items()}


@contextlib.contextmanager
def _ours(folder: Path, *, cluster: Shared) -> Iterator[Measure]:
    with cluster.lent() as kubeconfig, ours(folder, f"%env KUBECONFIG={kubeconfig}") as found:
        flags = "--backend kubernetes --kind pytorchjob --image any -np 2"
        code = f"%%distribute {flags}\n{_CODE}"

        def measure() -> dict[str, float]:
            cell = found.run(code, timeout_s=_LIMIT_S, watch=_STAMP)
            return _sample(dict(cell.seen), cell.sent)

        yield measure


@contextlib.contextmanager
def _kubectl(folder: Path, *, cluster: Shared) -> Iterator[Measure]:
    program = shutil.which("kubectl")
    if program is None:
        raise Failed("there is no kubectl")
    numbers = itertools.count()
    with cluster.lent() as kubeconfig:
        kubectl = [program, "--kubeconfig", kubeconfig]

        def measure() -> dict[str, float]:
            name, family = f"by-hand-{next(numbers)}", Family()
            file = folder / f"{name}.json"
            file.write_text(json.dumps(_job(name)))
            seen: dict[str, float] = {}
            sent = time.time()
            try:
                apply = [*kubectl, "apply", "--validate=false", "-f", str(file)]
                done = subprocess.run(apply, env=family.environ(), capture_output=True, text=True)
                if done.returncode:
                    raise Failed(f"kubectl apply: {last_line(done.stderr)}")
                pods = [f"{name}-master-0", f"{name}-worker-0"]
                threads = [
                    threading.Thread(target=_follow, args=(kubectl, pod, seen, family)) for pod in pods
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            finally:
                family.end()
                delete = [*kubectl, "delete", "--wait=false", "-f", str(file)]
                subprocess.run(delete, stdin=subprocess.DEVNULL, capture_output=True)
            return _sample(seen, sent)

        yield measure


def _follow(kubectl: list[str], pod: str, seen: dict[str, float], family: Family) -> None:
    """Until its line is there: as long as the pod is not up, kubectl is asked again."""
    deadline = time.monotonic() + _LIMIT_S
    while time.monotonic() < deadline:
        argv = [*kubectl, "logs", "-f", pod]
        with subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=family.environ()
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if match := _STAMP.search(line.decode(errors="replace")):
                    seen[match[0]] = time.time()
                    process.terminate()
                    return
        time.sleep(_AGAIN_S)


def _job(name: str) -> dict[str, Any]:
    container = {"name": "pytorch", "image": "any", "command": ["python3", "-c", _CODE]}
    template = {"spec": {"containers": [container]}}
    replicas = {"replicas": 1, "restartPolicy": "Never", "template": template}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": {"Master": replicas, "Worker": replicas}},
    }
