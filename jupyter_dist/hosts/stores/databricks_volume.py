"""The store of a mailbox that is a Unity Catalog Volume, as the driver sees it: through the Files API.

On a cluster the same folder is a path (/Volumes/…), which needs nothing of this. fsspec's own file system
`dbfs` speaks the older DBFS API, which knows no Volumes.
https://docs.databricks.com/api/workspace/files
"""

from __future__ import annotations

import contextlib
import io
import posixpath
from collections.abc import Callable, Iterator
from typing import Any

from ...agent.stores.store import StoreError
from ...errors import DistError
from .object_store import ByRequests

__all__ = ["VolumeStore"]

_PAGE = 1000


class VolumeStore(ByRequests):
    """A folder of a Volume. What is uploaded is seen whole or not at all."""

    def __init__(self, asking: Callable[[str], contextlib.AbstractContextManager[Any]], root: str) -> None:
        """`asking`: gives the `WorkspaceClient` and makes DistErrors of what it raises."""
        self._asking, self._root = asking, root.rstrip("/")

    def put(self, name: str, data: bytes) -> None:
        path = f"{self._root}/{name}"
        with self._files("write to the Volume") as files:
            from databricks.sdk.errors import NotFound

            try:
                files.upload(path, io.BytesIO(data), overwrite=True)
            except NotFound:  # a folder that is missing is not made by an upload
                files.create_directory(posixpath.dirname(path))
                files.upload(path, io.BytesIO(data), overwrite=True)

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
        # A host that writes by the path may leave a name with a dot for a moment:
        # agent/stores/folder_store.py.
        return [f"{folder}/{name}" for name in names if name.startswith(begin) and not name.startswith(".")]

    def remove_folder(self, name: str) -> None:
        """Remove a folder and all that lies in it. One that is gone is no error."""
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
    def _files(self, what: str) -> Iterator[Any]:
        try:
            with self._asking(what) as client:
                from databricks.sdk.service.files import FilesAPI

                # One request each. What the client has as `files` asks for signed URLs of the cloud first,
                # which pays for large files only.
                yield FilesAPI(client.api_client)
        except DistError as error:
            raise StoreError(str(error)) from error
