"""The store of a mailbox as an agent's host sees it: objects by name, with the standard library alone.

`file:///path` is a folder (NFS, a Volume that is mounted). `s3://bucket/prefix` is S3, or what speaks like it
at AWS_ENDPOINT_URL; the credentials are in the environment under the names that every AWS tool reads.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import hashlib
import hmac
import os
import re
import secrets
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Protocol
from xml.etree import ElementTree

__all__ = ["FolderStore", "S3Store", "Store", "StoreError", "open_store", "signed"]

_TIMEOUT_S = 20.0
_NO_RENAME = (errno.ENOSYS, errno.EOPNOTSUPP)


class StoreError(OSError):
    """The store did not do it, this time: it is away, or says that it is busy (429, 503)."""


class Store(Protocol):
    """Objects by name. What is written is seen whole or not at all. Every method may raise StoreError."""

    def put(self, name: str, data: bytes) -> None: ...

    def get(self, name: str) -> bytes | None:
        """None where there is no such object."""
        ...

    def names(self, prefix: str) -> list[str]:
        """The names that begin like this, in no order."""
        ...

    def remove(self, names: list[str]) -> None:
        """One that is gone is no error."""
        ...


def open_store(url: str, environ: Mapping[str, str]) -> Store:
    """Raises ValueError for a URL that is of no kind that is known here."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        return FolderStore(urllib.parse.unquote(parts.path))
    if parts.scheme == "s3":
        return S3Store(parts.netloc, parts.path.strip("/"), environ)
    raise ValueError(f"an agent knows no store {url!r}: s3://… or file://…")


class FolderStore:
    """A folder that the driver and the hosts see."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._renames = True

    def put(self, name: str, data: bytes) -> None:
        path = os.path.join(self._root, name)
        part = os.path.join(os.path.dirname(path), f".{secrets.token_hex(8)}")
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            if self._renames:
                self._write(part, data)
                try:
                    os.replace(part, path)
                    return
                except OSError as error:
                    if error.errno not in _NO_RENAME:
                        raise
                # A Databricks Volume has no renames. There, a file is seen when it is closed, and whole.
                # https://github.com/earth-mover/icechunk/issues/2341
                self._renames = False
                os.unlink(part)
            self._write(path, data)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise StoreError(f"cannot write {path!r}: {error.strerror or error}") from error

    @staticmethod
    def _write(path: str, data: bytes) -> None:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)

    def get(self, name: str) -> bytes | None:
        try:
            with open(os.path.join(self._root, name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"cannot read {name!r}: {error.strerror or error}") from error

    def names(self, prefix: str) -> list[str]:
        folder, _, begin = prefix.rpartition("/")
        try:
            names = os.listdir(os.path.join(self._root, folder))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(f"cannot list {folder!r}: {error.strerror or error}") from error
        return [f"{folder}/{name}" for name in names if name.startswith(begin) and not name.startswith(".")]

    def remove(self, names: list[str]) -> None:
        for name in names:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._root, name))


class S3Store:
    """S3 over HTTP, each request signed as
    https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html says."""

    def __init__(self, bucket: str, prefix: str, environ: Mapping[str, str]) -> None:
        self._environ = environ
        region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
        # With the bucket in the path, which every store that speaks S3 understands.
        self._base = f"{(endpoint or f'https://s3.{region}.amazonaws.com').rstrip('/')}/{bucket}"
        self._prefix = f"{prefix}/" if prefix else ""
        self._region = region

    def put(self, name: str, data: bytes) -> None:
        self._ask("PUT", self._prefix + name, data=data)

    def get(self, name: str) -> bytes | None:
        return self._ask("GET", self._prefix + name)

    def names(self, prefix: str) -> list[str]:
        found: list[str] = []
        query = {"list-type": "2", "prefix": self._prefix + prefix}
        while True:
            answer = self._ask("GET", "", query=query)
            try:
                tree = ElementTree.fromstring(answer or b"")
            except ElementTree.ParseError as error:
                raise StoreError(f"the store listed something that is no XML: {error}") from None
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
        self, method: str, name: str, *, query: Mapping[str, str] | None = None, data: bytes = b""
    ) -> bytes | None:
        url = f"{self._base}/{urllib.parse.quote(name, safe='/-_.~')}"
        if query:
            url += "?" + urllib.parse.urlencode(sorted(query.items()), quote_via=urllib.parse.quote)
        now = datetime.datetime.now(datetime.timezone.utc)
        headers = signed(method, url, data, self._region, self._environ, now)
        headers["content-type"] = "application/octet-stream"  # urllib would say that it is a form
        request = urllib.request.Request(
            url, data=data if method == "PUT" else None, headers=headers, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError as error:
            told = error.read(4096).decode(errors="replace")
            if error.code == 404 and method != "PUT" and "NoSuchBucket" not in told:
                return None
            code = re.search(r"<Code>(.*?)</Code>", told)
            raise StoreError(f"the store answers {error.code} {code[1] if code else error.reason}") from None
        except (OSError, ValueError) as error:
            raise StoreError(f"the store does not answer: {error}") from None


def signed(
    method: str,
    url: str,
    data: bytes,
    region: str,
    environ: Mapping[str, str],
    now: datetime.datetime,
) -> dict[str, str]:
    """The headers of a request to S3, its signature included; unsigned where there are no credentials."""
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
