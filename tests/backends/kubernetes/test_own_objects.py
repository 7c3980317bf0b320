"""Objects with a chosen name, which an earlier run may have left."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jupyter_dist.backends.kubernetes.allocation import PodAllocation, new_handle
from jupyter_dist.backends.kubernetes.api_server import Cluster
from jupyter_dist.backends.kubernetes.manifests import RUN, service_object
from jupyter_dist.backends.kubernetes.own_objects import OwnObjects
from jupyter_dist.errors import LaunchError
from jupyter_dist.folder import RunFolder
from tests.backends.kubernetes.test_kubernetes import Stub, asked_job, stub  # noqa: F401

pytest.importorskip("kubernetes")


def test_a_service_that_the_cluster_still_deletes_is_waited_for(stub: Stub) -> None:
    """The cluster deletes a Service some time after the Job of the same name that owned it."""
    job = asked_job(job_name="mnist")
    handle = new_handle(job, 0)
    objects = OwnObjects(Cluster(handle["context"], handle["namespace"]), job, handle)
    body = service_object(job, 0, {"metadata": {"uid": "of the new Job"}})
    left: dict[str, Any] = {"name": "mnist", "uid": "s", "labels": {RUN: "earlier"}}
    owner = {"kind": "Job", "name": "mnist", "uid": "of the earlier Job"}
    stub.answers = {
        "POST services": [(409, {"message": "exists"}), (409, {"message": "exists"}), (201, body)],
        "GET mnist": [(200, {"metadata": {**left, "ownerReferences": [owner]}}), (404, {"message": "gone"})],
    }
    assert objects.make("/api/v1/namespaces/team/services", body) == body
    theirs = {"metadata": {**left, "ownerReferences": [{**owner, "kind": "PyTorchJob"}]}}
    stub.answers = {"POST services": [(409, {"message": "exists"})], "GET mnist": [(200, theirs)]}
    with pytest.raises(LaunchError, match="already has a Service 'mnist'"):
        objects.make("/api/v1/namespaces/team/services", body)


def test_the_pods_of_an_earlier_trainjob_of_that_name_are_not_used(stub: Stub, tmp_path: Path) -> None:
    """Kubeflow's Trainer labels its pods with the job's name alone."""
    job = asked_job(1, kind="trainjob", job_name="mnist")
    allocation = PodAllocation(new_handle(job, 0), job, RunFolder(tmp_path))
    meta = {"name": "mnist", "uid": "t", "creationTimestamp": "2026-01-01T00:00:10Z", "labels": {RUN: job.id}}
    stub.answers = {
        "POST trainjobs": [(201, {"metadata": meta})],
        "GET mnist": [(200, {"metadata": meta, "spec": {}})],
        "GET events": [(200, {"items": []})],
    }
    allocation.ask()
    try:
        for created, is_up in (("2026-01-01T00:00:09Z", False), ("2026-01-01T00:00:10Z", True)):
            annotations = {"batch.kubernetes.io/job-completion-index": "0"}
            pod = {
                "metadata": {
                    "name": "p",
                    "uid": "p",
                    "creationTimestamp": created,
                    "annotations": annotations,
                },
                "spec": {"containers": [{"name": "node"}]},
                "status": {
                    "phase": "Running",
                    "containerStatuses": [{"name": "node", "state": {"running": {}}}],
                },
            }
            assert allocation._all_up(cast(Any, SimpleNamespace(pods={"p": pod}))) is is_up
    finally:
        allocation.leave()
