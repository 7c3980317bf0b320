"""What pods wait for, and how they have ended."""

from __future__ import annotations

from typing import Any

from jupyter_dist.backends.kubernetes.pod_status import ending_of, waits_for


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
