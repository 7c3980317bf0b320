"""Names in the manifests, which the API server checks."""

from __future__ import annotations

import re

from jupyter_dist.backends.kubernetes.manifests import job_object
from tests.backends.kubernetes.test_kubernetes import asked_job


def test_volumes_of_any_claim_have_a_name_that_the_cluster_accepts() -> None:
    """A claim's name may have dots and 253 characters, and a volume's may not."""
    claims = ["data", "data.v1", "data-v1", "x" * 70 + "a", "x" * 70 + "b", "y" * 58 + "-z"]
    job = job_object(asked_job(pvc=tuple(f"{claim}:/{at}" for at, claim in enumerate(claims))), 0)
    pod = job["spec"]["template"]["spec"]
    names = {
        one["persistentVolumeClaim"]["claimName"]: one["name"]
        for one in pod["volumes"]
        if "persistentVolumeClaim" in one
    }
    assert list(names) == claims
    assert len(set(names.values())) == len(claims)
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name) for name in names.values())
    mounted = {one["mountPath"]: one["name"] for one in pod["containers"][0]["volumeMounts"]}
    assert [mounted[f"/{at}"] for at in range(len(claims))] == list(names.values())
    assert names["data"] == "pvc-data"
