"""Mailbox store in S3, or in an S3-compatible store at AWS_ENDPOINT_URL, with the standard library."""

from __future__ import annotations

import datetime
import hashlib
import hmac
import json
import re
import urllib.error
import urllib.parse
from collections.abc import Mapping
from typing import BinaryIO

from .aws_credentials import Credentials, endpoint_of, partition_of, region_of
from .store import DeniedError, StoreError, body_of, exchange, listing

__all__ = ["S3Store", "signed"]

_OF_REGION = re.compile(r"<Code>(PermanentRedirect|TemporaryRedirect|AuthorizationHeaderMalformed)</Code>")


class S3Store:
    """S3 over HTTP with signed requests.

    https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
    """

    def __init__(self, bucket: str, prefix: str, environ: Mapping[str, str]) -> None:
        self._credentials = Credentials(environ)
        self._environ, self._bucket, self._has_moved = environ, bucket, False
        self._prefix = f"{prefix}/" if prefix else ""
        self._use(region_of(environ))

    def _use(self, region: str) -> None:
        self._region = region
        # The bucket is in the path, which all S3-compatible stores accept.
        self._base = f"{endpoint_of('s3', {**self._environ, 'AWS_REGION': region})}/{self._bucket}"

    def put(self, name: str, data: bytes) -> None:
        self._ask("PUT", self._prefix + name, data=data)

    def get(self, name: str) -> bytes | None:
        return self._ask("GET", self._prefix + name)

    def fetch(self, name: str, file: BinaryIO) -> bool:
        return self._ask("GET", self._prefix + name, into=file) is not None

    def names(self, prefix: str) -> list[str]:
        found: list[str] = []
        query = {"list-type": "2", "prefix": self._prefix + prefix}
        while True:
            tree = listing(self._ask("GET", "", query=query))
            found += [
                node.text or "" for node in tree.iter() if node.tag.endswith("}Key") or node.tag == "Key"
            ]
            more = [node.text for node in tree.iter() if node.tag.endswith("NextContinuationToken")]
            if not more or not more[0]:
                return [name[len(self._prefix) :] for name in found]
            query["continuation-token"] = more[0]

    def remove(self, names: list[str]) -> None:
        for name in names:
            self._ask("DELETE", self._prefix + name)

    def _ask(
        self,
        method: str,
        name: str,
        *,
        query: Mapping[str, str] | None = None,
        data: bytes = b"",
        into: BinaryIO | None = None,
    ) -> bytes | None:
        url = f"{self._base}/{urllib.parse.quote(name, safe='/-_.~')}"
        if query:
            url += "?" + urllib.parse.urlencode(sorted(query.items()), quote_via=urllib.parse.quote)
        now = datetime.datetime.now(datetime.timezone.utc)
        headers = signed(method, url, data, self._region, self._credentials.get(), now)
        try:
            return exchange(method, url, headers, data, into)
        except urllib.error.HTTPError as error:
            told = body_of(error)
            region = _region_in(error, told)
            if region is not None and region != self._region and not self._has_moved:
                self._has_moved = True
                self._use(region)
                return self._ask(method, name, query=query, data=data, into=into)
            if error.code == 404 and method != "PUT" and "NoSuchBucket" not in told:
                return None
            code = re.search(r"<Code>(.*?)</Code>", told)
            if error.code == 403 and code and code[1] == "AccessDenied":
                raise DeniedError(self._denied(method, name)) from None
            raise StoreError(f"the store answers {error.code} {code[1] if code else error.reason}") from None
        except (OSError, ValueError) as error:
            raise StoreError(f"the store does not answer: {error}") from None

    def _denied(self, method: str, name: str) -> str:
        """Describe a denied request, with the policy statement that this module needs.

        Without the permission to list, S3 also denies requests for objects that do not exist.
        """
        listing = method == "GET" and not name
        action = "ListBucket" if listing else f"{ {'GET': 'Get', 'PUT': 'Put'}.get(method, 'Delete') }Object"
        arn = f"arn:{partition_of(self._region)}:s3:::{self._bucket}"
        actions = [f"s3:{each}" for each in ("GetObject", "PutObject", "DeleteObject", "ListBucket")]
        statement = {"Effect": "Allow", "Action": actions, "Resource": [arn, f"{arn}/{self._prefix}*"]}
        return (
            f"this host's role is not allowed s3:{action} on {arn}/{name}. Its policy needs: "
            f"{json.dumps(statement)}"
        )


def _region_in(error: urllib.error.HTTPError, told: str) -> str | None:
    """Return the region of the bucket, if S3 refuses a request because the bucket is in another region.

    https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
    """
    if error.code not in (301, 307, 400) or not _OF_REGION.search(told):
        return None
    found = re.search(r"<Region>(.*?)</Region>", told)
    region = error.headers.get("x-amz-bucket-region") or (found[1] if found else "")
    return region if re.fullmatch(r"[a-z0-9-]+", region) else None


def signed(
    method: str,
    url: str,
    data: bytes,
    region: str,
    environ: Mapping[str, str],
    now: datetime.datetime,
) -> dict[str, str]:
    """Return the headers of a request to S3, with its signature. Without credentials they are unsigned."""
    parts = urllib.parse.urlsplit(url)
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(data).hexdigest()
    headers = {"host": parts.netloc, "x-amz-content-sha256": digest, "x-amz-date": stamp}
    key, secret = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
    if not key or not secret:
        return headers
    if environ.get("AWS_SESSION_TOKEN"):
        headers["x-amz-security-token"] = environ["AWS_SESSION_TOKEN"]
    names = ";".join(sorted(headers))
    listed = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = f"{method}\n{parts.path}\n{parts.query}\n{listed}\n{names}\n{digest}"
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    told = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    signing = f"AWS4{secret}".encode()
    for word in (*scope.split("/"), told):
        signing = hmac.new(signing, word.encode(), hashlib.sha256).digest()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={names}, Signature={signing.hex()}"
    )
    return headers
