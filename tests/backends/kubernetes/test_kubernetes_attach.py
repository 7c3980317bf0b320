"""`%dist attach kubernetes:KIND/NAME`: jobs in a real Kubernetes that others have made, shown as runs."""

from __future__ import annotations

import contextlib
import functools
import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.backends.kubernetes.attached import AttachedPods
from jupyter_dist.backends.kubernetes.job_lookup import Ranks, taken_apart
from jupyter_dist.backends.kubernetes.log_position import LogPlace, LogReading
from jupyter_dist.backends.kubernetes.logs import RankLog, Rest
from jupyter_dist.conformance.deadlines import wait_until as until
from jupyter_dist.conformance.run_control import wait_for_end
from jupyter_dist.errors import InputError
from jupyter_dist.folder import runs
from jupyter_dist.job import State
from jupyter_dist.record.process_identity import start_ticks
from jupyter_dist.showing.run import Run
from jupyter_dist.start import attach
from tests.rigs.kubernetes.control_plane import IN_SHARED, NAMESPACE, Plane, rules
from tests.rigs.kubernetes.fixtures import plane  # noqa: F401

pytestmark = pytest.mark.xdist_group(IN_SHARED)

PATHS = {
    "Job": "batch/v1",
    "PyTorchJob": "kubeflow.org/v1",
    "MPIJob": "kubeflow.org/v2beta1",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
}
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
        wait_for_end(run)
    until(lambda: not plane.pods(), "all pods to be gone")


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


def make(plane: Plane, kind: str, name: str, spec: dict[str, Any]) -> None:
    head = {"apiVersion": PATHS[kind], "kind": kind, "metadata": {"name": name}}
    plane.api.post(_path(kind), {**head, "spec": spec})


def replicas(code: str, container: str = "main", **counts: int) -> dict[str, Any]:
    template = _template(code, container)
    each = {"restartPolicy": "Never", "template": template}
    return {role: {"replicas": count, **each} for role, count in counts.items()}


def more_lines(run: Run, rank: int, count: int = 20) -> None:
    """Wait for them, of a program that says more and more."""
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


class Relay:
    """A way to the API server on which all connections can be cut."""

    def __init__(self, port: int) -> None:
        self._port, self._open = port, set[socket.socket]()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near = self._listening.accept()[0]
                self._open.add(near)
                self._threads.append(threading.Thread(target=self._pass_on, args=(near,)))
                self._threads[-1].start()

    def _pass_on(self, near: socket.socket) -> None:
        with near, socket.create_connection(("127.0.0.1", self._port)) as far, contextlib.suppress(OSError):
            while True:
                for source in select.select([near, far], [], [])[0]:
                    data = source.recv(1000)
                    if not data:
                        return
                    (far if source is near else near).sendall(data)

    def connections(self) -> int:
        return sum(near.fileno() >= 0 for near in set(self._open))

    def cut(self) -> None:
        cut = [near for near in set(self._open) if near.fileno() >= 0]
        self._open.clear()
        for near in cut:
            with contextlib.suppress(OSError):
                near.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listening.close()
        self.cut()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def relay(plane: Plane, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Relay]:
    made = Relay(int(plane.url.rpartition(":")[2]))
    config = plane.kubeconfig.read_text().replace(plane.url, f"https://localhost:{made.port}")
    (tmp_path / "kubeconfig").write_text(config)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    yield made
    made.close()


def test_each_pod_of_a_job_is_a_rank_also_when_watching_breaks_off(
    plane: Plane, talk: socket.socket, relay: Relay
) -> None:
    """In mid-run all connections are cut, again and again, and its supervisor is killed: no line is lost or
    comes twice."""
    make_job(plane, "theirs", says(talk), 2)
    run = attach("kubernetes:job/theirs")
    assert run.job.world_size == 2
    assert (
        "# the Job theirs in the namespace team, which was made elsewhere\n# main in theirs:1\npython3"
        in (run.job.source)
    )
    more_lines(run, 1)
    until(lambda: run.status.state is State.RUNNING, "a running state")
    for _ in range(3):
        more_lines(run, 0)
        # Lines that had arrived before the last cut can be new, too.
        until(lambda: relay.connections() >= 2, "both logs to be read")
        relay.cut()
        more_lines(run, 1)
    supervisor = run.status.supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    until(lambda: start_ticks(supervisor.pid) != supervisor.start_ticks, "the supervisor's end")
    assert attach(f"kubernetes:{NAMESPACE}/jobs.batch/theirs").id == run.id
    more_lines(run, 0)
    talk.close()
    wait_for_end(run)
    assert str(run.state) == "succeeded", run.status.reason
    pods = [str(rank.host) for rank in run.status.ranks]
    assert [pod.startswith(f"theirs-{index}") for index, pod in enumerate(pods)] == [True, True], pods
    for rank, pod in enumerate(pods):
        assert_whole(run, rank, pod)


def test_the_pods_of_a_pytorchjob_are_ranks_and_how_it_fails_is_told(
    plane: Plane, talk: socket.socket
) -> None:
    """Master first. Why pods wait is said in the cluster's words."""
    of_each = replicas(says(talk), "pytorch", Worker=2, Master=1)
    make(plane, "PyTorchJob", "theirs", {"pytorchReplicaSpecs": of_each})
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
        wait_for_end(each)
    assert run.state is State.SUCCEEDED, run.status.reason
    pods = [f"theirs-{name}" for name in ("master-0", "worker-0", "worker-1")]
    assert [rank.host for rank in run.status.ranks] == pods
    for rank, pod in enumerate(pods):
        assert_whole(run, rank, pod)
    assert fails.state is State.FAILED
    assert "the Job fails has failed: BackoffLimitExceeded" in str(fails.status.reason)
    assert "has ended: Error, exit code 3" in str(fails.status.reason)
    assert fails.log(0) == "it goes wrong\n"


def test_the_pods_of_an_mpijob_and_of_a_trainjob_are_ranks(plane: Plane) -> None:
    """The launcher first, whose log has all that mpirun passes on."""
    who = "import os\nprint(os.environ['HOSTNAME'], flush=True)"
    of_each = replicas(f"{who}\nimport time\ntime.sleep(600)", Worker=2) | replicas(who, Launcher=1)
    make(plane, "MPIJob", "theirs", {"mpiReplicaSpecs": of_each, "slotsPerWorker": 1})
    trainer = {"numNodes": 2, "image": "any", "command": ["python3", "-c", who]}
    make(plane, "PyTorchJob", "theirs", {"pytorchReplicaSpecs": replicas(LONG, "pytorch", Master=1)})
    make(plane, "TrainJob", "also", {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer})
    by_mpi, trained = attach("kubernetes:mpijob/theirs"), attach("kubernetes:trainjob/also")
    for run, ranks in ((by_mpi, 3), (trained, 2)):
        wait_for_end(run)
        assert run.state.value == "succeeded", run.status
        hosts = [str(rank.host) for rank in run.status.ranks]
        assert len(hosts) == ranks
        assert [run.log(rank) for rank in range(ranks)] == [f"{host}\n" for host in hosts]
    launcher, *workers = [str(rank.host) for rank in by_mpi.status.ranks]
    assert launcher.startswith("theirs-launcher-")
    assert workers == ["theirs-worker-0", "theirs-worker-1"]


def _has_said(run: Run, text: str) -> bool:
    return run.log(0) == text


def test_who_ends_it_and_who_only_looks(plane: Plane) -> None:
    for name in ("ours", "deleted"):
        make_job(plane, name, LONG)
    ours, deleted = (attach(f"kubernetes:job/{name}") for name in ("ours", "deleted"))
    for run in (ours, deleted):
        until(functools.partial(_has_said, run, "up\n"), "its line")
    plane.api.delete(f"{_path('Job')}/deleted", {"propagationPolicy": "Background"})
    ours.stop()
    for run in (ours, deleted):
        wait_for_end(run)
        assert run.state is State.STOPPED, run.status
    assert "the Job deleted was deleted" in str(deleted.status.reason)
    assert plane.api.get(_path("Job"))["items"] == []
    known = AttachedPods().submit(ours.job, ours.folder, 0)
    poll = AttachedPods().poll(
        ours.job, ours.folder, known, None
    )  # as a supervisor sees it that comes after that
    assert (poll.state, poll.detail) == (State.STOPPED, "the Job ours was deleted")


def test_a_log_that_we_may_not_read_is_named(plane: Plane) -> None:
    plane.grant([rule for rule in rules() if rule["resources"] != ["pods/log"]])
    try:
        make_job(plane, "theirs", "print('x')")
        run = attach("kubernetes:job/theirs")
        wait_for_end(run)
        assert run.state is State.SUCCEEDED
        assert "the log of rank 0 is not all here: we may not read its log (pods " in str(run.status.told)
        assert "that needs get on pods/log" in str(run.status.told)
    finally:
        plane.grant(rules())


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
    with pytest.raises(
        InputError, match="region works only with a job that jupyter-dist did not start, as in sagemaker:JOB"
    ):
        attach("kubernetes:job/theirs", region="us-east-1")
    for name in ("theirs", "deployment/theirs", "job/", "/job/theirs", "a/b/job/theirs"):
        with pytest.raises(InputError, match="names no job: it is kubernetes:"):
            attach(f"kubernetes:{name}")
    assert taken_apart("team/PyTorchJobs.kubeflow.org/x") == ("team", "pytorchjob", "x")


STAMPED = [b"2026-01-31T12:00:0%d.%d00000000Z line %d\n" % (n // 4, n % 4, n) for n in range(12)]


def test_a_log_that_is_cut_off_goes_on_at_its_place() -> None:
    """Whatever the order of its times; and what the node keeps no more is a hole that is told."""
    log = [*STAMPED[:5], STAMPED[3], *STAMPED[5:]]
    for cut in range(len(STAMPED)):
        first = LogReading(LogPlace())
        lines = first.take(b"".join(log[:cut]) + b"2026-01-31T12")
        place = first.place
        since = -1 if place.since is None else place.since
        told = [line for line in log if 1769860800 + int(line[18:19]) >= since]
        again = LogReading(place)
        lines += again.take(b"".join(told))
        assert [text for _, text in lines] == [line.partition(b"Z ")[2] for line in log], cut
        kept = LogReading(place)
        late = b"".join(text for _, text in kept.take(STAMPED[-1]))
        hole = b"[jupyter_dist: lines are missing here, the node has them no more]\n" if cut else b""
        assert late == hole + b"line 11\n", cut


class Nodes:
    """What nodes keep of their containers' logs, by the pod and whether it is the one before."""

    namespace = "team"

    def __init__(self) -> None:
        self.logs: dict[tuple[str, bool], bytes] = {}

    def follow(self, path: str, read_s: float, **query: str | int) -> Iterator[bytes]:
        since = str(query.get("sinceTime", ""))[:19].encode()
        for line in self.logs[path.split("/")[-2], "previous" in query].splitlines(keepends=True):
            if line[:19] >= since:
                yield line


def a_pod(name: str, restarts: int = 0, ended: bool = True, **more: Any) -> dict[str, Any]:
    state = {"terminated" if ended else "running": {"startedAt": "2026-01-31T12:00:00Z"}}
    status = {"name": "main", "restartCount": restarts, "state": state}
    meta = {"name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-31T12:00:00Z"}
    return {
        "metadata": {**meta, **more},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Failed" if ended else "Running", "containerStatuses": [status]},
    }


def test_a_container_that_is_started_again_and_a_pod_in_place_of_another_go_on_in_its_log(
    tmp_path: Path, wait_for: Callable[..., Any]
) -> None:
    nodes, pods = Nodes(), [a_pod("a", ended=False)]
    nodes.logs["a", False] = b"".join(STAMPED[:3])
    log = RankLog(nodes, tmp_path / "rank" / "output.log", lambda: pods, None, None)  # type: ignore[arg-type]
    wait_for(lambda: log.position["size"] == 21, what="the first three lines")
    nodes.logs = {("a", True): b"".join(STAMPED[:5]), ("a", False): STAMPED[5], ("b", False): STAMPED[6]}
    pods[:] = [a_pod("a", restarts=1), a_pod("b")]
    wait_for(lambda: log.rest is Rest.NONE, what="all of it")
    log.close()
    assert (tmp_path / "rank" / "output.log").read_bytes() == b"".join(b"line %d\n" % n for n in range(7))


def test_pods_without_a_number_are_ranks_in_their_order() -> None:
    job = {"metadata": {"name": "job"}, "spec": {"parallelism": 2, "completions": 5}}
    ranks = Ranks("job", job, {})
    first = [a_pod("a", ended=False), a_pod("b")]
    assert {rank: len(pods) for rank, pods in ranks.take(first).items()} == {0: 1, 1: 1}
    ranks.take([*first, a_pod("c", creationTimestamp="2026-01-31T12:00:05Z", ended=False)])
    assert ranks.of == {"uid-a": 0, "uid-b": 1, "uid-c": 1}, "b has failed"
    ranks.take([*first, a_pod("d", creationTimestamp="2026-01-31T12:00:06Z")])
    assert ranks.of["uid-d"] == 1, "and c is gone"
    again = Ranks("job", job, ranks.of)
    again.take([first[0], a_pod("e", ended=False, creationTimestamp="2026-01-31T12:00:07Z")])
    assert again.of["uid-e"] == 1
