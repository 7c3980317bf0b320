"""What a refusal of the API server means for the user."""

from __future__ import annotations

import pytest

from jupyter_dist.backends.kubernetes.api_server import Refusal
from jupyter_dist.backends.kubernetes.job_kinds import KINDS
from jupyter_dist.backends.kubernetes.permissions import refused


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            'admission webhook "validation.gatekeeper.sh" denied the request: [labels] you must provide '
            'labels: {"owner"}',
            "a policy of the cluster allows no such Job: admission webhook",
        ),
        (
            "jobs.batch \"jd-1\" is forbidden: ValidatingAdmissionPolicy 'images' with binding 'all' denied "
            "request: the image is not from our registry",
            "a policy of the cluster allows no such Job",
        ),
        (
            'jobs.batch is forbidden: User "ada" cannot create resource "jobs" in API group "batch"',
            "docs/kubernetes.md has the Role that is needed",
        ),
        ("exceeded quota: jobs, requested: count/jobs.batch=1", "the quota of the namespace 'team'"),
    ],
)
def test_a_policy_is_told_from_a_missing_permission(message: str, said: str) -> None:
    told = refused(Refusal(403, "Forbidden", message), "Job", "team", KINDS["job"])
    assert said in told
    assert message in told
    assert ("the Role" in told) is ("cannot create" in message)
