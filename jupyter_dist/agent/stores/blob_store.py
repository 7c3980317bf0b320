"""Mailbox store in Azure Blob Storage, with the standard library."""

from __future__ import annotations

import http.client
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import BinaryIO

from .store import EARLY_S, DeniedError, StoreError, exchange, listing

__all__ = ["BlobStore", "container_of"]


def container_of(url: str) -> tuple[str, str]:
    """Return the URL of a container of Azure Blob Storage, and the prefix of its objects' names.

    A URL with an IP address means the emulator. There the account's name precedes the container's name.
    https://learn.microsoft.com/azure/storage/common/storage-use-azurite
    """
    parts = urllib.parse.urlsplit(url)
    names = parts.path.strip("/").split("/")
    own = 2 if re.fullmatch(r"[0-9.]+", parts.hostname or "") else 1
    prefix = "/".join(names[own:])
    return f"{parts.scheme}://{parts.netloc}/{'/'.join(names[:own])}", f"{prefix}/" if prefix else ""


class BlobStore:
    """Blob store with a shared access signature, or with the identity of the platform's job.

    https://learn.microsoft.com/rest/api/storageservices/blob-service-rest-api
    """

    def __init__(self, url: str, environ: Mapping[str, str]) -> None:
        self._base, self._prefix = container_of(url)
        self._environ, self._signature = environ, environ.get("JUPYTER_DIST_MAILBOX_SAS", "")
        self._token, self._good_until = "", 0.0

    def put(self, name: str, data: bytes) -> None:
        self._ask("PUT", name, data=data)

    def get(self, name: str) -> bytes | None:
        return self._ask("GET", name)

    def fetch(self, name: str, file: BinaryIO) -> bool:
        return self._ask("GET", name, into=file) is not None

    def names(self, prefix: str) -> list[str]:
        found: list[str] = []
        query = {"restype": "container", "comp": "list", "prefix": self._prefix + prefix}
        while True:
            tree = listing(self._ask("GET", "", query=query))
            found += [node.text or "" for node in tree.iterfind("Blobs/Blob/Name")]
            query["marker"] = tree.findtext("NextMarker") or ""
            if not query["marker"]:
                return [name[len(self._prefix) :] for name in found]

    def remove(self, names: list[str]) -> None:
        for name in names:
            self._ask("DELETE", name)

    def _ask(
        self,
        method: str,
        name: str,
        *,
        query: Mapping[str, str] | None = None,
        data: bytes = b"",
        into: BinaryIO | None = None,
    ) -> bytes | None:
        path = f"/{urllib.parse.quote(self._prefix + name, safe='/-_.~')}" if name else ""
        asked = "&".join(filter(None, (urllib.parse.urlencode(query or {}), self._signature)))
        headers = {"x-ms-version": "2021-08-06", "x-ms-blob-type": "BlockBlob"}
        if not self._signature:
            headers["authorization"] = f"Bearer {self._identity()}"
        url = f"{self._base}{path}?{asked}"
        try:
            return exchange(method, url, headers, data, into)
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
        """Return a token of the job's identity: the user for whom it runs, or its machine.

        The request to Azure ML is the same as in the credentials of azure-ai-ml and azure-identity.
        """
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
            self._good_until = int(told["expires_on"]) - EARLY_S
        except DeniedError:
            raise
        except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
            raise StoreError(f"a token of the job's identity is not to be had: {error}") from None
        return self._token
