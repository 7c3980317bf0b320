"""Mailbox store in a container of Azure Blob Storage, for the driver."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from ...agent.stores.blob_store import container_of
from ...agent.stores.store import StoreError
from ...errors import DistError
from .object_store import ByRequests

__all__ = ["ContainerStore"]

_TIMES = {"connection_timeout": 5, "read_timeout": 20}
_TRIES = 2
"""Retries, one second apart: a busy store may refuse one of many parallel requests.

The caller retries much longer, and shows the error to the user meanwhile."""


class ContainerStore(ByRequests):
    """A folder of a container. Readers see a whole upload or none."""

    def __init__(self, url: str, credential: Callable[[], Any]) -> None:
        """`url`: a URL for `container_of`. `credential`: returns a credential of Azure's client library.

        The store calls `credential` again after a refusal. `credential` may raise a DistError.
        """
        self._container, self._prefix = container_of(url)
        self._credential, self._client = credential, None

    def put(self, name: str, data: bytes | BinaryIO) -> None:
        with self._blobs("write to") as blobs:
            blobs.upload_blob(self._prefix + name, data, overwrite=True)

    def put_file(self, name: str, file: BinaryIO) -> None:
        self.put(name, file)  # the client library uploads a large file in blocks

    def get(self, name: str) -> bytes | None:
        with self._blobs("read from") as blobs:
            from azure.core.exceptions import ResourceNotFoundError

            try:
                data: bytes = blobs.download_blob(self._prefix + name).readall()
                return data
            except ResourceNotFoundError:
                return None

    def names(self, prefix: str) -> list[str]:
        with self._blobs("list") as blobs:
            listed = blobs.list_blob_names(name_starts_with=self._prefix + prefix)
            return [name[len(self._prefix) :] for name in listed]

    # A batch request needs permissions that a container's signature lacks, so each blob is a request.
    def discard(self, name: str) -> None:
        with self._blobs("remove from") as blobs:
            from azure.core.exceptions import ResourceNotFoundError

            with contextlib.suppress(ResourceNotFoundError):
                blobs.delete_blob(self._prefix + name)

    @contextlib.contextmanager
    def _blobs(self, what: str) -> Iterator[Any]:
        from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
        from azure.storage.blob import ContainerClient, LinearRetry

        try:
            if self._client is None:
                again = LinearRetry(backoff=1, retry_total=_TRIES, random_jitter_range=1)
                self._client = ContainerClient.from_container_url(
                    self._container, credential=self._credential(), retry_policy=again, **_TIMES
                )
            yield self._client
        except DistError as error:
            raise StoreError(str(error)) from error
        except AzureError as error:
            status = getattr(error, "status_code", None)
            if isinstance(error, ClientAuthenticationError) or status in (401, 403):
                self._client = None
            code = error.error_code if isinstance(error, HttpResponseError) else type(error).__name__
            code = getattr(code, "value", code)
            said = str(error.message).strip().split("\n")[0][:300]
            raise StoreError(f"cannot {what} {self._container}: {code or status}: {said}") from error
