"""Mailbox store in any file system that fsspec supports, for the driver."""

from __future__ import annotations

import abc
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO

from ...agent.stores.folder_store import FolderStore
from ...agent.stores.store import StoreError
from ...errors import MissingEngine

_AT_ONCE = 8
_S3 = {
    "config_kwargs": {
        "connect_timeout": 5,
        "read_timeout": 20,
        # The caller retries itself, and shows the error to the user meanwhile.
        "retries": {"max_attempts": 1, "mode": "standard"},
    }
}

__all__ = ["BulkStore", "ByRequests", "ObjectStore", "driver_store"]


class BulkStore:
    """A store with methods for large objects and for many objects. This class is one for a folder.

    `put_file` writes an object from an open file, which may be larger than the memory. Raises StoreError.
    """

    def __init__(self, store: FolderStore) -> None:
        self.put_file = store.put_file
        self.put, self.get, self.names, self.remove = store.put, store.get, store.names, store.remove

    def get_all(self, names: Sequence[str]) -> dict[str, bytes]:
        """Return the content of each name that exists. Raises StoreError."""
        found = {name: self.get(name) for name in names}
        return {name: data for name, data in found.items() if data is not None}


class ByRequests(BulkStore, abc.ABC):
    """A store that needs a request for each object, and makes several requests in parallel.

    Subclasses implement `put`, `put_file`, `get`, `names` and `discard`.
    """

    @abc.abstractmethod
    def discard(self, name: str) -> None:
        """Remove an object. A missing object is no error. Raises StoreError."""

    def get_all(self, names: Sequence[str]) -> dict[str, bytes]:
        found = zip(names, _each(self.get, names), strict=True)
        return {name: data for name, data in found if data is not None}

    def remove(self, names: list[str]) -> None:
        _each(self.discard, names)


def _each(do: Callable[[str], Any], names: Sequence[str]) -> list[Any]:
    """Call `do` for each name in parallel: a request needs 0.1 s, and a run may leave hundreds of objects."""
    if len(names) < 2:
        return [do(name) for name in names]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(do, names))


class ObjectStore(BulkStore):
    """A folder of any fsspec file system. https://filesystem-spec.readthedocs.io/en/latest/api.html"""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        try:
            import fsspec
        except ImportError as error:
            raise MissingEngine(f"the store {url!r} needs fsspec: pip install fsspec") from error
        known = _S3 if url.startswith(("s3://", "s3a://")) else {}
        try:
            # A cached instance of fsspec would ignore later changes of the environment.
            self._system, root = fsspec.core.url_to_fs(
                url, **{"skip_instance_cache": True, **known, **options}
            )
        except (ImportError, ValueError) as error:
            raise MissingEngine(f"the store {url!r} cannot be used: {error}") from error
        self._root = root.rstrip("/")

    def put(self, name: str, data: bytes) -> None:
        self._do("pipe_file", f"{self._root}/{name}", data)

    def put_file(self, name: str, file: BinaryIO) -> None:
        # A file system uploads a local file in parts, and shows the object only when it is whole.
        self._do("put_file", file.name, f"{self._root}/{name}")

    def get(self, name: str) -> bytes | None:
        return self.get_all([name]).get(name)

    def get_all(self, names: Sequence[str]) -> dict[str, bytes]:
        paths = [f"{self._root}/{name}" for name in names]
        told = self._do("cat", paths, on_error="return") if paths else {}
        found = {}
        for name, path in zip(names, paths, strict=True):
            data = told.get(path)
            if isinstance(data, bytes):
                found[name] = data
            elif data is not None and not isinstance(data, FileNotFoundError):
                raise StoreError(f"the store cannot return {name}: {data}")
        return found

    def names(self, prefix: str) -> list[str]:
        folder, _, begin = prefix.rpartition("/")
        try:
            # Some of fsspec's file systems answer from a cache, which may be out of date.
            self._system.invalidate_cache()
            paths = self._system.ls(f"{self._root}/{folder}", detail=False)
        except FileNotFoundError:
            return []
        except Exception as error:
            raise _failure("list", error) from error
        names = (f"{folder}/{path.rstrip('/').rpartition('/')[2]}" for path in paths)
        return [name for name in names if name.startswith(f"{folder}/{begin}")]

    def remove(self, names: list[str]) -> None:
        if names:
            try:
                self._system.rm([f"{self._root}/{name}" for name in names])
            except FileNotFoundError:
                return
            except Exception as error:
                raise _failure("rm", error) from error

    def _do(self, call: str, *arguments: Any, **named: Any) -> Any:
        try:
            return getattr(self._system, call)(*arguments, **named)
        except Exception as error:
            raise _failure(call, error) from error


def _failure(call: str, error: Exception) -> StoreError:
    # Each file system raises the exceptions of its client library.
    return StoreError(f"the store did not do {call!r}: {type(error).__name__}: {str(error)[:200]}")


def driver_store(url: str, options: Mapping[str, Any]) -> BulkStore:
    """Open the store of a URL. Raises MissingEngine, which names the package to install."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        # With fsspec, readers of a local folder could see incomplete files.
        return BulkStore(FolderStore(urllib.parse.unquote(parts.path)))
    return ObjectStore(url, options)
