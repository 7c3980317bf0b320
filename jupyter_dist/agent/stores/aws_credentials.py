"""AWS credentials and endpoints of a host, in the order of AWS's own tools.

1. Keys in the environment.
2. A role for a Kubernetes service account, with the token of its pod (IRSA on EKS).
3. Credentials of the container's platform (SageMaker, ECS, EKS Pod Identity).
4. The role of the EC2 machine.
https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html
"""

from __future__ import annotations

import datetime
import http.client
import json
import re
import secrets
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from .store import EARLY_S, DeniedError, StoreError, body_of

__all__ = ["Credentials", "endpoint_of", "partition_of", "region_of"]

_NONE_S = 10.0
"""Seconds until the next search if the host has no credentials."""
_TOKEN_FILE, _FULL_URI = "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"
_INSTANCE = "http://169.254.169.254"
_NEVER = ("AccessDenied", "InvalidIdentityToken")
_near = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opener without a proxy, for addresses of this machine."""


def region_of(environ: Mapping[str, str]) -> str:
    return environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def partition_of(region: str) -> str:
    """Return the partition of a region, as in ARNs.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference-arns.html
    """
    if region.startswith("us-gov-"):
        return "aws-us-gov"
    return "aws-cn" if region.startswith("cn-") else "aws"


def endpoint_of(service: str, environ: Mapping[str, str]) -> str:
    """Return the endpoint URL of an AWS service or of its replacement."""
    named = environ.get(f"AWS_ENDPOINT_URL_{service.upper()}") or environ.get("AWS_ENDPOINT_URL")
    region = region_of(environ)
    domain = "amazonaws.com.cn" if partition_of(region) == "aws-cn" else "amazonaws.com"
    return (named or f"https://{service}.{region}.{domain}").rstrip("/")


class Credentials:
    """AWS credentials of a host. A role's credentials expire after some hours, and are renewed before that.

    Without credentials, requests are not signed.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._found: dict[str, str] = {}
        self._good_until = 0.0

    def get(self) -> Mapping[str, str]:
        """Return the credentials as environment variables, empty if there are none.

        Raises StoreError if they are not available now, DeniedError if AWS denies them to this host.
        """
        if self._environ.get("AWS_ACCESS_KEY_ID"):
            return self._environ
        if time.time() > self._good_until:
            try:
                if (told := self._ask()) is not None:
                    self._take(told)
                elif self._found:
                    raise OSError(
                        "this machine no longer has a role, or the metadata service does not answer"
                    )
                else:
                    self._good_until = time.time() + _NONE_S
            except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
                if self._found and time.time() < self._good_until + EARLY_S:
                    return self._found  # the old credentials are still valid for a while
                if isinstance(error, StoreError):
                    raise
                raise StoreError(f"the role's credentials are not to be had: {error}") from None
        return self._found

    def _take(self, told: Mapping[str, Any]) -> None:
        expires = datetime.datetime.strptime(told["Expiration"][:19], "%Y-%m-%dT%H:%M:%S")
        self._found = {
            "AWS_ACCESS_KEY_ID": told["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": told["SecretAccessKey"],
            "AWS_SESSION_TOKEN": told.get("Token") or told.get("SessionToken") or "",
        }
        self._good_until = expires.replace(tzinfo=datetime.timezone.utc).timestamp() - EARLY_S

    def _ask(self) -> Mapping[str, Any] | None:
        relative = self._environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
        url = f"http://169.254.170.2{relative}" if relative else self._environ.get(_FULL_URI)
        if self._environ.get(_TOKEN_FILE):
            return self._of_service_account()
        if url:
            return self._of_container(url)
        if self._environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
            return None
        return self._of_instance()

    def _of_service_account(self) -> Mapping[str, Any]:
        """Get a role's credentials from STS with the pod's token.

        https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html
        """
        role = self._environ["AWS_ROLE_ARN"]
        asked = {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": "2011-06-15",
            "RoleArn": role,
            "RoleSessionName": self._environ.get("AWS_ROLE_SESSION_NAME")
            or f"jupyter-dist-{secrets.token_hex(4)}",
            # The platform replaces the file before its token expires, so read it each time.
            "WebIdentityToken": Path(self._environ[_TOKEN_FILE]).read_text().strip(),
        }
        url = endpoint_of("sts", self._environ) + "/"
        try:
            with urllib.request.urlopen(url, urllib.parse.urlencode(asked).encode(), timeout=20) as answer:
                tree = ElementTree.fromstring(answer.read())
        except urllib.error.HTTPError as error:
            told = body_of(error)
            code = re.search(r"<Code>(.*?)</Code>", told)
            why = re.search(r"<Message>(.*?)</Message>", told, re.DOTALL)
            said = f"{code[1] if code else error.code}: {why[1].strip() if why else error.reason}"
            if code and code[1] in _NEVER:
                raise DeniedError(
                    f"the service account of this pod may not assume the role {role} ({said}). Add the "
                    "account and the cluster's OIDC provider to the role's trust policy"
                ) from None
            raise StoreError(f"the role {role} is not to be had: {said}") from None
        except ElementTree.ParseError as error:
            raise ValueError(f"{url} answers something that is no XML: {error}") from None
        return {node.tag.rpartition("}")[2]: node.text or "" for node in tree.iter()}

    def _of_container(self, url: str) -> Mapping[str, Any]:
        """Get credentials from the container's platform.

        https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html
        """
        token = self._environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
        if (file := self._environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")) and not token:
            token = Path(file).read_text().strip()
        return dict(json.loads(_asked(url, {"authorization": token} if token else {}, 5)))

    def _of_instance(self) -> Mapping[str, Any] | None:
        """Get credentials of the EC2 machine's role; None if this is no EC2 machine, or it has no role.

        https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html
        """
        base = (self._environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or _INSTANCE).rstrip("/") + "/latest"
        roles = f"{base}/meta-data/iam/security-credentials/"
        try:
            ours = _asked(f"{base}/api/token", {"x-aws-ec2-metadata-token-ttl-seconds": "300"}, 1, "PUT")
            token = {"x-aws-ec2-metadata-token": ours.decode()}
            role = _asked(roles, token, 1).decode().split("\n")[0].strip()
        except urllib.error.HTTPError as error:
            if error.code >= 500:
                raise
            return None
        except OSError:
            return None
        return dict(json.loads(_asked(roles + role, token, 5))) if role else None


def _asked(url: str, headers: Mapping[str, str], timeout_s: float, method: str = "GET") -> bytes:
    request = urllib.request.Request(url, headers=dict(headers), method=method)
    with _near.open(request, timeout=timeout_s) as answer:
        body: bytes = answer.read()
        return body
