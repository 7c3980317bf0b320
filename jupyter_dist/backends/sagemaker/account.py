"""An AWS account and the user's credentials. Only boto3 sees the credentials.

The credentials have the same sources as for all of AWS's tools: the environment, a profile of ~/.aws, the
sign-in of `aws sso login`, or the role of the machine.
https://boto3.amazonaws.com/v1/documentation/api/latest/guide/credentials.html
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import threading
from collections.abc import Iterator
from typing import Any

from ...errors import DistError, InputError, LaunchError, MissingEngine, Unreachable
from ..job_watch import CredentialsExpired, InUse, NotThere

__all__ = ["AwsAccount", "needed_statement", "region_of"]

_TIMES = {"connect_timeout": 5, "read_timeout": 20, "retries": {"max_attempts": 2, "mode": "standard"}}
"""Timeouts of one request. The callers here retry much longer, and the view shows the error meanwhile."""
_BUSY = re.compile(
    r"Throttl|TooManyRequests|RequestLimitExceeded|SlowDown|ServiceUnavailable|Internal(Failure|Error|Server)"
    r"|RequestTimeout|LimitExceededException$|OperationAborted$"
)
_SIGNED_OUT = re.compile(
    r"Expired|InvalidClientTokenId|UnrecognizedClient|InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken"
    r"|MissingAuthenticationToken|IncompleteSignature"
)
_DENIED = re.compile(r"AccessDenied|Unauthorized|AuthorizationError|^403$|Forbidden")
_BEYOND_POLICY = re.compile(
    r"with an explicit deny|no (service control policy|resource control policy|permissions boundary) allows"
)
"""Denials that no further statement in the user's own policy lifts.

https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html
"""
_NO_CREDENTIALS = (
    *("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "TokenRetrievalError"),
    *(
        "SSOError",
        "SSOTokenLoadError",
        "UnauthorizedSSOTokenError",
        "ProfileNotFound",
        "LoginRefreshRequired",
    ),
    *("RefreshWithMFAUnsupportedError", "MetadataRetrievalError"),
)
"""Botocore's exceptions for missing credentials (its module exceptions)."""


def region_of(region: str | None, profile: str | None) -> str | None:
    """Return the selected region, without any request. Raises InputError if the profile does not exist."""
    found = region or os.environ.get("AWS_REGION")
    if found is not None and profile is None:
        return found
    try:
        import botocore.session
        from botocore.exceptions import ProfileNotFound
    except ImportError as error:
        raise MissingEngine(
            "the backend 'sagemaker' needs boto3: pip install \"jupyter-dist[sagemaker]\""
        ) from error
    session = botocore.session.Session(profile=profile)
    try:
        configured: str | None = session.get_config_variable("region")
    except ProfileNotFound as error:
        there = ", ".join(session.available_profiles) or "none"
        raise InputError(
            f"there is no profile {profile!r} in ~/.aws; there are: {there}. In a terminal: aws configure "
            f"--profile {shlex.quote(str(profile))}"
        ) from error
    return region or configured or os.environ.get("AWS_REGION")


class AwsAccount:
    """An account in a region. For several threads.

    The first request signs in. After a rejection, the next request signs in again, because the user may have
    renewed the credentials.
    """

    def __init__(self, profile: str | None, region: str) -> None:
        self._profile, self.region = profile, region
        self._lock = threading.Lock()
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        """Return a client of boto3's."""
        with self._lock:
            if service not in self._clients:
                import boto3
                from botocore.config import Config

                session = boto3.Session(profile_name=self._profile, region_name=self.region)
                self._clients[service] = session.client(service, config=Config(**_TIMES))
            return self._clients[service]

    @contextlib.contextmanager
    def asking(self, what: str, service: str = "sagemaker") -> Iterator[Any]:
        """Yield the service's client. `what` completes the error text after `cannot`, such as `write to S3`.

        Raises InUse, NotThere, CredentialsExpired, LaunchError for any other permanent error, and
        Unreachable.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield self.client(service)
        except DistError:
            raise
        except (BotoCoreError, ClientError) as error:
            raise self._told(what, error) from error

    def _told(self, what: str, error: Any) -> DistError:
        about = getattr(error, "response", None) or {}
        code = str(about.get("Error", {}).get("Code", ""))
        said = str(about.get("Error", {}).get("Message") or error).strip().split("\n")[0].rstrip(".")[:500]
        status = int(about.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        kinds = {base.__name__ for base in type(error).__mro__}
        if kinds & set(_NO_CREDENTIALS) or _SIGNED_OUT.search(code):
            with self._lock:
                self._clients.clear()
            return CredentialsExpired(
                f"cannot {what}: AWS knows no such user now ({code or type(error).__name__}): {said}. "
                f"{self._cure()}"
            )
        if code in ("ResourceInUse", "BucketAlreadyOwnedByYou"):
            return InUse(f"cannot {what}: {said}")
        if code == "ResourceLimitExceeded":
            return LaunchError(
                f"cannot {what}: the account's limit: {said}. Ask for more under Service Quotas, "
                "Amazon SageMaker"
            )
        if _BUSY.search(code) or status in (408, 429) or status >= 500:
            return Unreachable(f"AWS does not {what} at the moment: {code or status}: {said}")
        if _DENIED.search(code):
            statement = needed_statement(said, getattr(error, "operation_name", ""))
            add = f". Its policy needs: {statement}" if statement else ""
            return LaunchError(f"cannot {what}: it is not allowed ({code}): {said}{add}")
        if (
            code in ("ResourceNotFound", "ResourceNotFoundException", "NoSuchBucket", "NoSuchKey", "404")
            or "not found" in said
        ):
            return NotThere(f"cannot {what}: it is not there: {said}")
        if code or "ParamValidationError" in kinds:
            return LaunchError(f"cannot {what}: AWS answers {code or 'an error'}: {said}")
        return Unreachable(f"AWS does not {what} at the moment: {type(error).__name__}: {said}")

    def _cure(self) -> str:
        profile = [] if self._profile is None else ["--profile", self._profile]
        return (
            f"In a terminal: {shlex.join(['aws', 'sso', 'login', *profile])} or "
            f"{shlex.join(['aws', 'configure', *profile])}; or set AWS_ACCESS_KEY_ID where JupyterLab is "
            "started, and never in a notebook"
        )


def needed_statement(said: str, operation: str = "") -> str | None:
    """Return the statement that a policy lacks, from AWS's own message.

    None: the message does not name it, or a statement would not help.

    `User: arn:… is not authorized to perform: sagemaker:CreateTrainingJob on resource: arn:… because …`
    """
    if _BEYOND_POLICY.search(said):
        return None
    action = re.search(r"perform:? ([a-z0-9-]+:[A-Za-z0-9*]+)", said)
    if action is None:
        if not operation or not re.match(r"(Put|Get|List|Delete|Head|Create)", operation):
            return None
        named = {"ListObjectsV2": "ListBucket", "HeadBucket": "ListBucket", "DeleteObjects": "DeleteObject"}
        return json.dumps(
            {"Effect": "Allow", "Action": f"s3:{named.get(operation, operation)}", "Resource": "*"}
        )
    on = re.search(r"on resource:? \"?(arn:[^\s\"]+)", said)
    return json.dumps({"Effect": "Allow", "Action": action[1], "Resource": on[1] if on else "*"})
