"""`%dist attach kubernetes:KIND/NAME`: jobs in a real Kubernetes that others have made, shown as runs."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kube_plane.fixtures import plane  # noqa: F401
from kube_plane.plane import IN_SHARED, NAMESPACE, Plane

from jupyter_dist.backends.on_kubernetes.log_place import LogPlace, LogReading
from jupyter_dist.backends.on_kubernetes.named_job import taken_apart
from jupyter_dist.errors import InputError
from jupyter_dist.folder import runs
from jupyter_dist.job import State
from jupyter_dist.record.identity import start_ticks
from jupyter_dist.showing.run import Run
from jupyter_dist.start import attach

pytestmark = [pytest.mark.xdist_group(IN_SHARED), pytest.mark.timeout(240)]

PATHS = {"Job": "batch/v1", "PyTorchJob": "kubeflow.org/v1"}
SAYS = """
import os, select, socket, sys
said, about = 0, socket.create_connection(("{address}", {port}))
while not select.select([about], [], [], 0.01 if said % 3 else 0)[0]:
    print(os.environ["HOSTNAME"], said, flush=True)
    said += 1
sys.stdout.write(f"{{said}} lines")
"""
LONG = "import time\nprint('up', flush=True)\ntime.sleep(600)"
FAILS = "import sys\nprint('it goes wrong')\nsys.exit(3)"


@pytest.fixture(autouse=True)
def here(plane: Plane, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("JUPYTER_DIST_RUNS", str(tmp_path / "runs"))
    yield
    plane.mend()
    for kind in PATHS:
        for job in plane.api.get(_path(kind))["items"]:
            plane.api.delete(f"{_path(kind)}/{job['metadata']['name']}", {"propagationPolicy": "Background"})
    for run in map(Run, runs()):
        run.wait(60)
    until(lambda: not plane.pods(), "all pods to be gone")


def until(condition: Callable[[], Any], what: str, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s for {what}"
        time.sleep(0.05)


def _path(kind: str) -> str:
    return f"/apis/{PATHS[kind]}/namespaces/{NAMESPACE}/{kind.lower()}s"


def _template(code: str, name: str = "main", image: str = "theirs:1") -> dict[str, Any]:
    container = {"name": name, "image": image, "command": ["python3", "-c", code]}
    return {"spec": {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 1}}


def make_job(plane: Plane, name: str, code: str, pods: int = 1, **more: Any) -> None:
    """As `kubectl apply` does."""
    numbered = {"completionMode": "Indexed", "completions": pods, "parallelism": pods, "backoffLimit": 0}
    template = _template(code, **more)
    plane.api.post(_path("Job"), {"metadata": {"name": name}, "spec": {**numbered, "template": template}})


def make_pytorchjob(plane: Plane, name: str, code: str, workers: int) -> None:
    of_each = {
        role: {"replicas": count, "restartPolicy": "Never", "template": _template(code, "pytorch")}
        for role, count in (("Worker", workers), ("Master", 1))
    }
    head = {"apiVersion": PATHS["PyTorchJob"], "kind": "PyTorchJob", "metadata": {"name": name}}
    plane.api.post(_path("PyTorchJob"), {**head, "spec": {"pytorchReplicaSpecs": of_each}})


def more_lines(run: Run, rank: int, count: int = 20) -> None:
    there = len(run.log(rank).splitlines())
    until(lambda: len(run.log(rank).splitlines()) >= there + count, f"lines of {rank}: {run.status}")


def assert_whole(run: Run, rank: int, pod: str) -> None:
    """Each line once, in order, and the last one, which has no end."""
    *lines, last = run.log(rank).splitlines()
    assert lines == [f"{pod} {number}" for number in range(len(lines))]
    assert last == f"{len(lines)} lines"


@pytest.fixture
def talk(plane: Plane) -> Iterator[socket.socket]:
    """Until it is closed, programs say more."""
    with socket.create_server((plane.gateway, 0)) as server:
        yield server


def says(talk: socket.socket) -> str:
    address, port = talk.getsockname()
    return SAYS.format(address=address, port=port)


def test_each_pod_of_a_job_is_a_rank_also_when_watching_breaks_off(plane: Plane, talk: socket.socket) -> None:
    """In mid-run the API server is killed, and then the run's supervisor: no line is lost, or comes twice."""
    make_job(plane, "theirs", says(talk), 2)
    run = attach("kubernetes:job/theirs")
    assert run.job.world_size == 2
    assert (
        "# the Job theirs in the namespace team, which was made elsewhere\n# main in theirs:1\npython3"
        in (run.job.source)
    )
    more_lines(run, 1)
    assert run.status.state is State.RUNNING
    plane.kill_api()
    plane.start_api()
    more_lines(run, 1)
    supervisor = run.status.supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    until(lambda: start_ticks(supervisor.pid) != supervisor.start_ticks, "the supervisor's end")
    assert attach(f"kubernetes:{NAMESPACE}/jobs.batch/theirs").id == run.id
    more_lines(run, 0)
    talk.close()
    run.wait(60)
    assert str(run.state) == "succeeded", run.status.reason
    pods = [str(rank.host) for rank in run.status.ranks]
    assert [pod.startswith(f"theirs-{index}") for index, pod in enumerate(pods)] == [True, True], pods
    for rank, pod in enumerate(pods):
        assert_whole(run, rank, pod)


def test_the_pods_of_a_pytorchjob_are_ranks_and_how_it_fails_is_told(
    plane: Plane, talk: socket.socket
) -> None:
    """Master first. Why pods wait is said in the cluster's words."""
    make_pytorchjob(plane, "theirs", says(talk), 2)
    make_job(plane, "fails", FAILS)
    make_job(plane, "waits", LONG, image="missing/this")
    run, fails, waits = (
        attach(f"kubernetes:{name}") for name in ("PyTorchJob/theirs", "job/fails", "job/waits")
    )
    until(lambda: "ImagePullBackOff" in str(waits.status.reason), f"the reason: {waits.status}")
    assert waits.state is State.PENDING
    for rank in range(3):
        more_lines(run, rank)
    talk.close()
    for each in (run, fails):
        each.wait(60)
    assert run.state is State.SUCCEEDED, run.status.reason
    pods = [f"theirs-{name}" for name in ("master-0", "worker-0", "worker-1")]
    assert [rank.host for rank in run.status.ranks] == pods
    for rank, pod in enumerate(pods):
        assert_whole(run, rank, pod)
    assert fails.state is State.FAILED
    assert "the Job fails has failed: BackoffLimitExceeded" in str(fails.status.reason)
    assert "has ended: Error, exit code 3" in str(fails.status.reason)
    assert fails.log(0) == "it goes wrong\n"


def test_who_ends_it_and_who_only_looks(plane: Plane) -> None:
    for name in ("ours", "deleted"):
        make_job(plane, name, LONG)
    ours, deleted = (attach(f"kubernetes:job/{name}") for name in ("ours", "deleted"))
    for run in (ours, deleted):
        more_lines(run, 0, 1)
    plane.api.delete(f"{_path('Job')}/deleted", {"propagationPolicy": "Background"})
    ours.stop()
    for run in (ours, deleted):
        run.wait(60)
        assert run.state is State.STOPPED, run.status
    assert "the Job deleted was deleted" in str(deleted.status.reason)
    assert plane.api.get(_path("Job"))["items"] == []


def test_what_cannot_be_attached_to(plane: Plane) -> None:
    make_job(plane, "theirs", "pass")
    with pytest.raises(InputError, match=r"no Job 'nobodys' in the namespace 'team', which has theirs$"):
        attach("kubernetes:job/nobodys")
    with pytest.raises(
        InputError, match="no PyTorchJob 'x' in the namespace 'team', which has no PyTorchJob at"
    ):
        attach("kubernetes:pytorchjob/x")
    with pytest.raises(InputError, match="we may not see the Job 'x' in the namespace 'kube-system'"):
        attach("kubernetes:kube-system/job/x")
    with pytest.raises(InputError, match=r"--context mars: .* has test"):
        attach("kubernetes:job/theirs", context="mars")
    with pytest.raises(InputError, match="region is for what runs elsewhere, as in sagemaker:JOB"):
        attach("kubernetes:job/theirs", region="us-east-1")
    for name in ("theirs", "deployment/theirs", "job/", "/job/theirs", "a/b/job/theirs"):
        with pytest.raises(InputError, match="names no job: it is kubernetes:"):
            attach(f"kubernetes:{name}")
    assert taken_apart("team/PyTorchJobs.kubeflow.org/x") == ("team", "pytorchjob", "x")


STAMPED = [b"2026-01-31T12:00:0%d.%d00000000Z line %d\n" % (n // 4, n % 4, n) for n in range(12)]


@pytest.mark.parametrize("cut", range(len(STAMPED)))
def test_a_log_that_is_cut_off_goes_on_at_its_place(cut: int) -> None:
    """Whatever the order of its times; and what the node keeps no more is a hole that is told."""
    log = [*STAMPED[:5], STAMPED[3], *STAMPED[5:]]
    first = LogReading(LogPlace())
    lines = first.take(b"".join(log[:cut]) + b"2026-01-31T12")
    place = first.place
    since = -1 if place.since is None else place.since
    told = [line for line in log if 1769860800 + int(line[18:19]) >= since]
    again = LogReading(place)
    lines += again.take(b"".join(told))
    assert [text for _, text in lines] == [line.partition(b"Z ")[2] for line in log]
    kept = LogReading(place)
    late = b"".join(text for _, text in kept.take(STAMPED[-1]))
    hole = b"[jupyter_dist: lines are missing here, the node has them no more]\n" if cut else b""
    assert late == hole + b"line 11\n"
