"""The store of a mailbox as an agent's host sees it: objects by name, with the standard library alone.

`file:///path` is a folder (NFS, a Volume that is mounted). `s3://bucket/prefix` is S3, or what speaks like it
at AWS_ENDPOINT_URL; the credentials are in the environment under the names that every AWS tool reads, or
are given out by the container's platform, whose address is there. `https://….blob.…/container/prefix` is
Azure Blob Storage, with a shared access signature or with the identity that the platform gives a job.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import hashlib
import hmac
import json
import os
import re
import secrets
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Protocol
from xml.etree import ElementTree

__all__ = [
    "BlobStore",
    "Credentials",
    "DeniedError",
    "FolderStore",
    "S3Store",
    "Store",
    "StoreError",
    "container_of",
    "open_store",
    "signed",
]

_TIMEOUT_S = 20.0
_EARLY_S = 300.0
"""How long before they expire credentials are asked for anew."""
_FULL_URI = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
_NO_RENAME = (errno.ENOSYS, errno.EOPNOTSUPP)


class StoreError(OSError):
    """The store did not do it, this time: it is away, or says that it is busy (429, 503)."""


class DeniedError(StoreError):
    """Whoever asks here may not: that does not change by itself."""


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
    if parts.scheme in ("https", "http"):
        return BlobStore(url, environ)
    raise ValueError(f"an agent knows no store {url!r}: s3://…, https://….blob.…/… or file://…")


def container_of(url: str) -> tuple[str, str]:
    """The URL of a container of Azure Blob Storage, and what its objects' names begin with. The emulator, of
    which an IP address is known, has the account's name before the container's.
    https://learn.microsoft.com/azure/storage/common/storage-use-azurite"""
    parts = urllib.parse.urlsplit(url)
    names = parts.path.strip("/").split("/")
    own = 2 if re.fullmatch(r"[0-9.]+", parts.hostname or "") else 1
    prefix = "/".join(names[own:])
    return f"{parts.scheme}://{parts.netloc}/{'/'.join(names[:own])}", f"{prefix}/" if prefix else ""


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


class Credentials:
    """Those of the environment, else those of the container's role, which are good for some hours and are
    asked for anew before they expire. Neither: requests are not signed.
    https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html"""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._found: dict[str, str] = {}
        self._good_until = 0.0

    def get(self) -> Mapping[str, str]:
        """As variables. Raises StoreError where the platform does not give them now."""
        relative = self._environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
        url = f"http://169.254.170.2{relative}" if relative else self._environ.get(_FULL_URI)
        if self._environ.get("AWS_ACCESS_KEY_ID") or not url:
            return self._environ
        if time.time() > self._good_until:
            self._ask(url)
        return self._found

    def _ask(self, url: str) -> None:
        token = self._environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
        if (file := self._environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")) and not token:
            with open(file) as held:
                token = held.read().strip()
        request = urllib.request.Request(url, headers={"authorization": token} if token else {})
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                told = json.load(answer)
            expires = datetime.datetime.strptime(told["Expiration"][:19], "%Y-%m-%dT%H:%M:%S")
            self._found = {
                "AWS_ACCESS_KEY_ID": told["AccessKeyId"],
                "AWS_SECRET_ACCESS_KEY": told["SecretAccessKey"],
                "AWS_SESSION_TOKEN": told.get("Token") or "",
            }
        except (OSError, ValueError, KeyError) as error:
            if time.time() > self._good_until + _EARLY_S:
                raise StoreError(f"the role's credentials are not to be had: {error}") from None
            return  # those from before are still good for a while
        self._good_until = expires.replace(tzinfo=datetime.timezone.utc).timestamp() - _EARLY_S


class S3Store:
    """S3 over HTTP, each request signed as
    https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html says."""

    def __init__(self, bucket: str, prefix: str, environ: Mapping[str, str]) -> None:
        self._credentials = Credentials(environ)
        region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
        domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
        # With the bucket in the path, which every store that speaks S3 understands.
        self._base = f"{(endpoint or f'https://s3.{region}.{domain}').rstrip('/')}/{bucket}"
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
        headers = signed(method, url, data, self._region, self._credentials.get(), now)
        try:
            return _exchange(method, url, headers, data)
        except urllib.error.HTTPError as error:
            told = error.read(4096).decode(errors="replace")
            if error.code == 404 and method != "PUT" and "NoSuchBucket" not in told:
                return None
            code = re.search(r"<Code>(.*?)</Code>", told)
            if error.code == 403 and code and code[1] == "AccessDenied":
                raise DeniedError(self._denied(method, name)) from None
            raise StoreError(f"the store answers {error.code} {code[1] if code else error.reason}") from None
        except (OSError, ValueError) as error:
            raise StoreError(f"the store does not answer: {error}") from None

    def _denied(self, method: str, name: str) -> str:
        """With the statement that all of this module needs: whoever may not list is denied what is not there,
        too."""
        listing = method == "GET" and not name
        action = "ListBucket" if listing else f"{ {'GET': 'Get', 'PUT': 'Put'}.get(method, 'Delete') }Object"
        arn = f"arn:aws:s3:::{self._base.rpartition('/')[2]}"
        actions = [f"s3:{each}" for each in ("GetObject", "PutObject", "DeleteObject", "ListBucket")]
        statement = {"Effect": "Allow", "Action": actions, "Resource": [arn, f"{arn}/{self._prefix}*"]}
        return (
            f"this host's role is not allowed s3:{action} on {arn}/{name}. Its policy needs: "
            f"{json.dumps(statement)}"
        )


def _exchange(method: str, url: str, headers: Mapping[str, str], data: bytes) -> bytes:
    """The answer's body. What urllib raises passes through."""
    # urllib would say that it is a form.
    headers = {**headers, "content-type": "application/octet-stream"}
    request = urllib.request.Request(
        url, data=data if method == "PUT" else None, headers=headers, method=method
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
        body: bytes = answer.read()
        return body


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


class BlobStore:
    """Azure Blob Storage over HTTP. https://learn.microsoft.com/rest/api/storageservices/blob-service-rest-api"""

    def __init__(self, url: str, environ: Mapping[str, str]) -> None:
        self._base, self._prefix = container_of(url)
        self._environ, self._signature = environ, environ.get("JUPYTER_DIST_MAILBOX_SAS", "")
        self._token, self._good_until = "", 0.0

    def put(self, name: str, data: bytes) -> None:
        self._ask("PUT", name, data=data)

    def get(self, name: str) -> bytes | None:
        return self._ask("GET", name)

    def names(self, prefix: str) -> list[str]:
        found: list[str] = []
        query = {"restype": "container", "comp": "list", "prefix": self._prefix + prefix}
        while True:
            answer = self._ask("GET", "", query=query) or b""
            try:
                tree = ElementTree.fromstring(answer.removeprefix("\ufeff".encode()))
            except ElementTree.ParseError as error:
                raise StoreError(f"the store listed something that is no XML: {error}") from None
            found += [node.text or "" for node in tree.iterfind("Blobs/Blob/Name")]
            query["marker"] = tree.findtext("NextMarker") or ""
            if not query["marker"]:
                return [name[len(self._prefix) :] for name in found]

    def remove(self, names: list[str]) -> None:
        for name in names:
            self._ask("DELETE", name)

    def _ask(
        self, method: str, name: str, *, query: Mapping[str, str] | None = None, data: bytes = b""
    ) -> bytes | None:
        path = f"/{urllib.parse.quote(self._prefix + name, safe='/-_.~')}" if name else ""
        asked = "&".join(filter(None, (urllib.parse.urlencode(query or {}), self._signature)))
        headers = {"x-ms-version": "2021-08-06", "x-ms-blob-type": "BlockBlob"}
        if not self._signature:
            headers["authorization"] = f"Bearer {self._identity()}"
        url = f"{self._base}{path}?{asked}"
        try:
            return _exchange(method, url, headers, data)
        except urllib.error.HTTPError as error:
            code = error.headers.get("x-ms-error-code") or error.reason
            if error.code == 404 and code != "ContainerNotFound" and method != "PUT":
                return None
            if error.code == 403 and code.startswith(("Authorization", "Insufficient")):
                raise DeniedError(
                    f"this host may not {method} in {self._base} ({code}): its identity needs the role "
                    "'Storage Blob Data Contributor' there"
                ) from None
            raise StoreError(f"the store answers {error.code} {code}") from None
        except (OSError, ValueError) as error:
            raise StoreError(f"the store does not answer: {error}") from None

    def _identity(self) -> str:
        """A token of the job's identity: of the user on whose behalf it runs, or of its machine, as the
        credentials of azure-ai-ml and azure-identity ask Azure ML for one."""
        if time.time() < self._good_until:
            return self._token
        endpoint, query, headers = self._environ.get("OBO_ENDPOINT"), {}, {}
        if not endpoint:
            endpoint, query = self._environ.get("MSI_ENDPOINT"), {"api-version": "2017-09-01"}
            headers = {"secret": self._environ.get("MSI_SECRET", "")}
            if client := self._environ.get("DEFAULT_IDENTITY_CLIENT_ID"):
                query["clientid"] = client
        query["resource"] = "https://storage.azure.com"
        url = f"{endpoint}?{urllib.parse.urlencode(query)}"
        try:
            if not endpoint:
                raise DeniedError("this host has no identity, and no signature for its mailbox")
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=5) as answer:
                told = json.load(answer)
            self._token = told["access_token"]
            self._good_until = int(told["expires_on"]) - _EARLY_S
        except DeniedError:
            raise
        except (OSError, ValueError, KeyError) as error:
            raise StoreError(f"a token of the job's identity is not to be had: {error}") from None
        return self._token
