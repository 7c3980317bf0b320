"""Runs on a real Kubernetes whose API server, nodes and pods go away, or which says no."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.backends.kubernetes.api_server import Cluster
from jupyter_dist.backends.kubernetes.backend import Kubernetes
from jupyter_dist.backends.kubernetes.exec_transport import ExecTransport, Site
from jupyter_dist.conformance.deadlines import Deadline
from jupyter_dist.conformance.run_control import Runs, story, wait_until
from jupyter_dist.conformance.target import Target
from jupyter_dist.hosts.links.link import LinkError
from jupyter_dist.hosts.links.stream import StreamLink
from jupyter_dist.job import State
from jupyter_dist.record import reader
from jupyter_dist.showing.run import Run
from tests.rigs.kubernetes.control_plane import (
    IN_SHARED,
    NAMESPACE,
    Plane,
    mounted_folder,
    rules,
    shared_plane,
)
from tests.rigs.stopwatch import Stopwatch

pytestmark = pytest.mark.xdist_group(IN_SHARED)

UP = "import time\nprint('up', flush=True)\n"
FOREVER = UP + "time.sleep(600)"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with shared_plane(tmp_path_factory) as plane, plane.as_user():
        yield plane


@pytest.fixture
def plane(cluster: Plane) -> Iterator[Plane]:
    """Whole at the beginning of each test, and nothing of a run is left in it at its end."""
    cluster.mend()
    yield cluster
    cluster.mend()
    deadline = Deadline()
    while left := [*cluster.pods(), *_objects(cluster, "services"), *_objects(cluster, "jobs")]:
        assert not deadline.passed(), [one["metadata"]["name"] for one in left]
        time.sleep(0.05)


def _objects(plane: Plane, what: str) -> list[Any]:
    group = "/api/v1" if what == "services" else "/apis/batch/v1"
    return list(plane.api.get(f"{group}/namespaces/{NAMESPACE}/{what}")["items"])


@pytest.fixture
def runs(plane: Plane, tmp_path: Path) -> Iterator[Runs]:
    flags = {"image": "any", "grace": 60}
    started = Runs(
        Target("kubernetes", np=2, flags=flags, startup_s=10.0, lives=plane.lives), tmp_path / "runs"
    )
    yield started
    started.close()


def told(run: Run, *words: str) -> str:
    """Wait until what the run says of itself has all these words."""

    def said() -> str | None:
        reason = run.status.reason or ""
        return reason if all(word in reason for word in words) else None

    found = wait_until(said, f"{words} in {run.status.reason!r}", run)
    assert found is not None
    return found


PRINT = """
import itertools, os, sys, time, jupyter_dist as dist
print("up", flush=True)
for number in itertools.count(1):
    print("rank", dist.rank(), "line", number)
    if number % 1000 == 0:
        sys.stdout.flush()
        if os.path.exists({enough!r}):
            break
        time.sleep(0.75)
number
"""


@pytest.fixture
def mounted() -> Iterator[tuple[Path, str]]:
    with mounted_folder() as found:
        yield found


def test_no_line_is_lost_or_doubled_while_the_api_server_is_away_for_30_seconds(
    plane: Plane,
    runs: Runs,
    tmp_path: Path,
    mounted: tuple[Path, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """First it hangs, which only pings see; then it is killed. Eight ranks on two nodes print all along. When
    it is back, it takes another token, which stands where the old one did."""
    token, kubeconfig = tmp_path / "token", json.loads(plane.kubeconfig.read_text())
    token.write_text(plane.account_token("first"))
    kubeconfig["users"][0]["user"] = {"tokenFile": str(token)}
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    folder, template = mounted
    cell = PRINT.format(enough=str(folder / "enough"))
    run = runs.until_up(runs.start(cell, np=8, processes_per_host=4, pod_template=template))
    assert {pod["spec"]["nodeName"] for pod in plane.pods()} == set(plane.nodes)
    with plane.api_hangs():
        began, watch = time.monotonic(), Stopwatch()
        told(run, "has not answered since")
        assert watch.under(12)
        time.sleep(max(0.0, began + 12 - time.monotonic()))
    wait_until(lambda: not run.status.reason, "the connections to be there again", run)
    token.write_text(plane.account_token("second"))
    plane.api.delete(f"/api/v1/namespaces/{NAMESPACE}/secrets/first")
    began = time.monotonic()
    plane.kill_api()
    told(run, "has not answered since")
    time.sleep(max(0.0, began + 18 - time.monotonic()))
    plane.start_api()
    wait_until(lambda: not run.status.reason, "the connections to be there once more", run)
    (folder / "enough").touch()
    runs.wait(run)
    assert run.status.state is State.SUCCEEDED, story(run)
    assert min(run.results) >= 20_000, "they have printed all along"
    for rank, last in enumerate(run.results):
        lines = reader.output(run.folder, rank).decode().splitlines()[1:]
        assert lines == [f"rank {rank} line {number}" for number in range(1, last + 1)]


def test_a_run_that_waits_says_why(plane: Plane, runs: Runs, wait_for: Callable[..., Any]) -> None:
    """No node is large enough, no such image, no quota. Stopped, they leave nothing behind."""
    few = {"metadata": {"name": "few"}, "spec": {"hard": {"count/pods": "2"}}}
    quotas = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas"
    plane.api.post(quotas, few)

    def counted(pods: str) -> bool:
        return bool(plane.api.get(f"{quotas}/few").get("status", {}).get("used") == {"count/pods": pods})

    # What is made while a new quota is counted for the first time may be left out of it.
    wait_for(lambda: counted("0"), what="the quota to be in force")
    try:
        large = runs.start(UP, np=1, cpus_per_worker=100)
        unknown = runs.start(UP, np=1, image="missing/image:1")
        said = told(large, "Unschedulable", "Insufficient cpu")
        assert "each pod asks for cpu 100" in said
        assert "missing/image:1" in told(unknown, "ImagePullBackOff")
        wait_for(lambda: counted("2"), what="the quota to be used up")
        crowded = runs.start(UP, np=1)
        assert "exceeded quota: few" in told(crowded, "FailedCreate")
    finally:
        plane.api.delete(f"{quotas}/few")
    other = runs.finish(UP, np=1, python="/nowhere/python")
    assert "its image has no Python 3." in str(other.status.reason)
    assert "at '/nowhere/python'" in str(other.status.reason)
    for run in (large, unknown, crowded):
        run.stop()
    for run in (large, unknown, crowded):
        assert runs.wait(run).status.state is State.STOPPED


def test_what_is_not_allowed_is_named(plane: Plane, runs: Runs) -> None:
    def without(resource: str) -> list[dict[str, Any]]:
        return [rule for rule in rules() if rule["resources"] != [resource]]

    plane.grant(without("jobs"))
    try:
        assert "you may not create jobs.batch" in Kubernetes().detect()["no_site"]
        run = runs.finish(UP)
        assert run.status.state is State.FAILED
        assert "we may make no Job in the namespace 'team'" in str(run.status.reason)
        plane.grant(without("services"))
        run = runs.finish(UP)
        assert "we may make no Service" in str(run.status.reason)
        plane.grant(without("pods/exec"))
        run = runs.finish(UP)
        assert "the verbs get and create on pods/exec" in str(run.status.reason)
    finally:
        plane.grant(rules())
    assert "no_site" not in Kubernetes().detect()


RESTARTED = """
import time, jupyter_dist as dist
kept = dist.checkpoint_dir()
seen = sorted(path.name for path in kept.iterdir())
(kept / f"attempt {dist.attempt()} rank {dist.rank()}").touch()
print("up", flush=True)
if dist.attempt() < 2:
    time.sleep(600)
seen
"""


def test_pods_that_are_taken_away_end_their_attempt_with_that_reason(plane: Plane, runs: Runs) -> None:
    """One is deleted, then one evicted; the others of their attempts end, and new pods take their place, with
    the checkpoints of those others. The namespace of another run is deleted meanwhile."""
    plane.api.post("/api/v1/namespaces", {"metadata": {"name": "short-lived"}})
    plane.grant(rules(), "short-lived")
    other = runs.start(FOREVER, np=1, namespace="short-lived")
    run = runs.until_up(runs.start(RESTARTED, max_restarts=2))
    runs.until_up(other)
    plane.api.delete("/api/v1/namespaces/short-lived")
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    first = str(run.status.ranks[1].host)
    plane.api.delete(f"{pods}/{first}")
    wait_until(lambda: run.status.attempt == 1, "the second attempt", run)
    lost = f"host {first} was lost: this pod, on node .*was deleted"
    assert re.search(lost, run.folder.supervisor_log.read_text()), story(run)
    second = str(runs.until_up(run).status.ranks[0].host)
    assert second != first
    low = "The node was low on resource: memory."
    plane.api.patch(f"{pods}/{second}", {"metadata": {"annotations": {"test/evict": low}}})
    assert runs.wait(run).status.state is State.SUCCEEDED, story(run)
    assert run.status.attempt == 2
    lost = f"host {second} was lost: .* has failed: Evicted: {re.escape(low)}"
    assert re.search(lost, run.folder.supervisor_log.read_text()), story(run)
    for seen in run.results:
        assert {"attempt 0 rank 0", "attempt 1 rank 1"} <= set(seen)
    assert runs.wait(other).status.state is State.FAILED
    assert "was deleted" in str(other.status.reason)


def test_another_pod_of_the_same_name_is_no_host_of_the_run(plane: Plane, runs: Runs) -> None:
    """It is told by its UID, before anything of ours is sent there."""
    run = runs.until_up(runs.start(FOREVER, np=1))
    pod = plane.pods()[0]
    site = Site(pod["metadata"]["name"], "an-older-one", pod["spec"]["containers"][0]["name"], "node", 1)
    link = StreamLink(site.name, ExecTransport(Cluster(), site, None, False), {}, [])
    link.open("stage")
    deadline = Deadline()
    with pytest.raises(LinkError, match="another pod has come to its name"):  # noqa: PT012
        while not deadline.passed():
            link.pump()
            time.sleep(0.01)
    run.stop()
    runs.wait(run)


def test_a_node_that_is_gone_ends_the_attempt_with_its_name(plane: Plane, runs: Runs) -> None:
    run = runs.until_up(runs.start(FOREVER, grace=8))
    lost = str(run.status.ranks[1].host)
    node = next(p["spec"]["nodeName"] for p in plane.pods() if p["metadata"]["name"] == lost)
    plane.end_node(node)
    assert node in told(run, "does not hear of node")
    assert runs.wait(run).status.state is State.FAILED
    assert f"host {lost} was lost" in str(run.status.reason)
