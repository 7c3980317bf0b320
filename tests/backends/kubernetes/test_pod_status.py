"""What pods wait for, and how they have ended."""

from __future__ import annotations

from typing import Any

from jupyter_dist.backends.kubernetes.pod_status import (
    ending_of,
    is_up,
    never_starts,
    own_container,
    waits_for,
)


def pod(name: str = "p", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name}, "spec": {"containers": [{}]}, "status": status}


def test_ends_of_pods_are_told_with_their_reason() -> None:
    killed = {"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
    assert ending_of(pod(phase="Running")) is None
    assert "OOMKilled, exit code 137: it had not enough memory (--memory)" in str(
        ending_of(pod(phase="Failed", containerStatuses=[killed]))
    )
    preempted = pod(
        phase="Running",
        conditions=[
            {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "PreemptionByScheduler",
                "message": "default-scheduler: preempting to accommodate a higher priority pod",
            }
        ],
    )
    preempted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert str(ending_of(preempted)).startswith("is taken away: PreemptionByScheduler: default-scheduler")
    lost = pod(phase="Running", reason="NodeLost", message="Node n which was running pod p is unresponsive")
    lost["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert "NodeLost: Node n" in str(ending_of(lost))


def test_the_container_that_has_failed_is_told_of() -> None:
    """The cluster sorts containers by name, and a proxy beside the ranks ends well."""
    proxy = {"name": "istio-proxy", "state": {"terminated": {"reason": "Completed", "exitCode": 0}}}
    ranks = {"name": "pytorch", "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
    told = str(ending_of(pod(phase="Failed", containerStatuses=[proxy, ranks])))
    assert "OOMKilled, exit code 137: it had not enough memory (--memory) (container pytorch)" in told


def test_init_containers_that_fail_are_told_of() -> None:
    """The ranks' container then waits without a reason of its own."""
    waiting = {"name": "ranks", "state": {"waiting": {"reason": "PodInitializing"}}}
    failed = {"name": "fetch", "state": {"terminated": {"reason": "Error", "exitCode": 3}}}
    statuses: dict[str, Any] = {"containerStatuses": [waiting], "initContainerStatuses": [failed]}
    assert ending_of(pod(phase="Failed", **statuses)) == "has ended: Error, exit code 3 (container fetch)"
    done = {"terminated": {"reason": "Completed", "exitCode": 0}}
    both: dict[str, Any] = {
        f"{kind}tatuses": [{"name": kind, "state": done}] for kind in ("initContainerS", "containerS")
    }
    assert "(container containerS)" in str(ending_of(pod(phase="Succeeded", **both)))
    image = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    statuses["initContainerStatuses"] = [{"name": "fetch", "state": {"waiting": image}}]
    assert "ImagePullBackOff: Back-off pulling image" in waits_for(
        1, [pod(phase="Pending", **statuses)], [], False
    )
    faulty = {"reason": "InvalidImageName", "message": "no image"}
    statuses["initContainerStatuses"] = [{"name": "fetch", "state": {"waiting": faulty}}]
    assert never_starts(pod(phase="Pending", **statuses)) == "never starts: InvalidImageName: no image"


def test_the_container_of_the_ranks_is_found_behind_a_proxy() -> None:
    """A service mesh may inject its own as the first one."""
    proxy = {"name": "linkerd-proxy", "env": [{"name": "LINKERD2_PROXY_LOG", "value": "warn"}]}
    ranks = {
        "name": "ranks",
        "env": [{"name": "JUPYTER_DIST_POD_UID"}],
        "resources": {"limits": {"cpu": "2"}},
    }
    injected = {**pod(phase="Running"), "spec": {"containers": [proxy, ranks]}}
    assert own_container(injected)["name"] == "ranks"
    assert own_container(pod()) == {}, "a pod of which no more is known"
    up: dict[str, Any] = {"state": {"running": {}}}
    starting = {"state": {"waiting": {"reason": "PodInitializing"}}}
    statuses = [{"name": "linkerd-proxy", **up}, {"name": "ranks", **starting}]
    injected["status"]["containerStatuses"] = statuses
    assert not is_up(injected), "the ranks' container waits for the proxy"
    statuses[1] = {"name": "ranks", **up}
    assert is_up(injected)
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}
    injected["status"] = {"phase": "Pending", "conditions": [condition]}
    assert "each pod asks for cpu 2" in waits_for(1, [injected], [], False)


def test_what_is_waited_for_is_told_once_and_of_all_pods() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    waiting = [
        pod(name, phase="Pending", conditions=[{**condition, "message": "0/3 nodes are available"}])
        for name in ("a", "b")
    ]
    told = waits_for(3, waiting, [], False)
    assert told == "0 of 3 pods are up: Unschedulable: 0/3 nodes are available (each pod asks for nothing)"
    assert waits_for(1, [], [], True).endswith("Kueue has not admitted the Job yet")
    said = {
        "reason": "Pending",
        "message": "couldn't assign flavors: insufficient unused quota",
        "type": "Normal",
    }
    event = {"involvedObject": {"kind": "Workload", "name": "x"}, **said}
    assert "insufficient unused quota" in waits_for(1, [], [event], True)
