"""Mailbox store in a Unity Catalog Volume, for the driver, through the Files API.

On a cluster the same folder is a path (/Volumes/…) and does not need this module. fsspec's file system
`dbfs` uses the older DBFS API, which does not support Volumes.
https://docs.databricks.com/api/workspace/files
"""

from __future__ import annotations

import contextlib
import io
import posixpath
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from ...agent.stores.store import StoreError
from ...errors import DistError
from .object_store import ByRequests

__all__ = ["VolumeStore"]

_PAGE = 1000
_LARGE_BYTES = 1 << 30
"""One request of the Files API accepts at most 5 GB. The client uploads larger files in parts."""


class VolumeStore(ByRequests):
    """A folder of a Volume. Readers see a whole upload or none."""

    def __init__(self, asking: Callable[[str], contextlib.AbstractContextManager[Any]], root: str) -> None:
        """`asking`: returns a context with the `WorkspaceClient`, which converts errors to DistErrors."""
        self._asking, self._root = asking, root.rstrip("/")

    def put(self, name: str, data: bytes) -> None:
        self.put_file(name, io.BytesIO(data))

    def put_file(self, name: str, file: BinaryIO) -> None:
        path, size = f"{self._root}/{name}", file.seek(0, io.SEEK_END)
        with self._files("write to the Volume", large=size > _LARGE_BYTES) as files:
            from databricks.sdk.errors import NotFound

            try:
                file.seek(0)
                files.upload(path, file, overwrite=True)
            except NotFound:  # an upload does not create a missing folder
                files.create_directory(posixpath.dirname(path))
                file.seek(0)
                files.upload(path, file, overwrite=True)

    def get(self, name: str) -> bytes | None:
        with self._files("read from the Volume") as files:
            from databricks.sdk.errors import NotFound

            try:
                with files.download(f"{self._root}/{name}").contents as content:
                    data: bytes = content.read()
                    return data
            except NotFound:
                return None

    def names(self, prefix: str) -> list[str]:
        folder, _, begin = prefix.rpartition("/")
        with self._files("list the Volume") as files:
            from databricks.sdk.errors import NotFound

            try:
                listed = list(files.list_directory_contents(f"{self._root}/{folder}", page_size=_PAGE))
            except NotFound:
                return []
        names = (posixpath.basename(str(entry.path)) for entry in listed if not entry.is_directory)
        # A host that writes through the path creates temporary names with a dot:
        # agent/stores/folder_store.py.
        return [f"{folder}/{name}" for name in names if name.startswith(begin) and not name.startswith(".")]

    def remove_folder(self, name: str) -> None:
        """Remove a folder and its contents. A missing folder is no error."""
        with self._files("remove a folder of the Volume") as files:
            from databricks.sdk.errors import NotFound

            with contextlib.suppress(NotFound):
                for entry in list(files.list_directory_contents(f"{self._root}/{name}", page_size=_PAGE)):
                    inner = f"{name}/{posixpath.basename(str(entry.path))}"
                    if entry.is_directory:
                        self.remove_folder(inner)
                    else:
                        self.discard(inner)
                files.delete_directory(f"{self._root}/{name}")

    def discard(self, name: str) -> None:
        with self._files("remove from the Volume") as files:
            from databricks.sdk.errors import NotFound

            with contextlib.suppress(NotFound):
                files.delete(f"{self._root}/{name}")

    @contextlib.contextmanager
    def _files(self, what: str, *, large: bool = False) -> Iterator[Any]:
        try:
            with self._asking(what) as client:
                from databricks.sdk.service.files import FilesAPI

                # `FilesAPI` needs one request per file. `client.files` first requests signed URLs of the
                # cloud, which is worthwhile only for large files.
                yield client.files if large else FilesAPI(client.api_client)
        except DistError as error:
            raise StoreError(str(error)) from error
