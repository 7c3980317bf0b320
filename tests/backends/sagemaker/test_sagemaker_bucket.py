"""The account's SageMaker bucket, which the first run makes."""

from __future__ import annotations

import contextlib

import pytest

from jupyter_dist.backends.sagemaker.account import AwsAccount
from jupyter_dist.backends.sagemaker.client import SageMakerClient
from jupyter_dist.backends.sagemaker.options import SageMakerOptions
from jupyter_dist.errors import Unreachable

pytestmark = pytest.mark.needs("boto3")

ROLE = "arn:aws:iam::123456789012:role/Train"


@pytest.mark.parametrize(
    ("code", "error"), [("BucketAlreadyOwnedByYou", None), ("OperationAborted", Unreachable)]
)
def test_a_bucket_that_two_runs_make_at_once(
    code: str, error: type[Exception] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 refuses the second request, or tells to ask again while it works on the first."""
    from botocore.stub import Stubber

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    account = AwsAccount(None, "eu-west-1")
    client = SageMakerClient(account, SageMakerOptions(role=ROLE, region="eu-west-1"), "run")
    with Stubber(account.client("s3")) as stubber:
        stubber.add_client_error("head_bucket", "404", http_status_code=404)
        stubber.add_client_error("create_bucket", code, http_status_code=409)
        with contextlib.nullcontext() if error is None else pytest.raises(error):
            client._have_bucket()
        stubber.assert_no_pending_responses()
