"""Mailbox stores for a host, by URL, with the standard library only.

`file:///path` is a folder (NFS, a mounted Volume), `s3://bucket/prefix` is S3, and
`https://….blob.…/container/prefix` is Azure Blob Storage.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import shutil
import urllib.parse
from collections.abc import Mapping
from typing import BinaryIO

from .blob_store import BlobStore
from .s3_store import S3Store
from .store import Store, StoreError

__all__ = ["FolderStore", "open_store"]

_PIECE = 1 << 20
_NO_RENAME = (errno.ENOSYS, errno.EOPNOTSUPP)


def open_store(url: str, environ: Mapping[str, str]) -> Store:
    """Open the store of a URL. Raises ValueError if the kind of the URL is unknown."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        return FolderStore(urllib.parse.unquote(parts.path))
    if parts.scheme == "s3":
        return S3Store(parts.netloc, parts.path.strip("/"), environ)
    if parts.scheme in ("https", "http"):
        return BlobStore(url, environ)
    raise ValueError(f"an agent cannot use the store {url!r}. Use s3://…, https://….blob.…/… or file://…")


class FolderStore:
    """A folder that the driver and the hosts share."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._renames = True

    def put(self, name: str, data: bytes) -> None:
        self.put_file(name, io.BytesIO(data))

    def put_file(self, name: str, source: BinaryIO) -> None:
        """Write an object from the rest of a file, piece by piece. Raises StoreError."""
        begin = source.tell()
        path = os.path.join(self._root, name)
        part = os.path.join(os.path.dirname(path), f".{secrets.token_hex(8)}")
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            if self._renames:
                self._write(part, source)
                try:
                    os.replace(part, path)
                    return
                except OSError as error:
                    if error.errno not in _NO_RENAME:
                        raise
                # A Databricks Volume has no renames. There a file is visible, complete, when it is closed.
                # https://github.com/earth-mover/icechunk/issues/2341
                self._renames = False
                os.unlink(part)
                source.seek(begin)
            self._write(path, source)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise StoreError(f"cannot write {path!r}: {error.strerror or error}") from error

    @staticmethod
    def _write(path: str, source: BinaryIO) -> None:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            shutil.copyfileobj(source, file, _PIECE)

    def get(self, name: str) -> bytes | None:
        try:
            with open(os.path.join(self._root, name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"cannot read {name!r}: {error.strerror or error}") from error

    def fetch(self, name: str, file: BinaryIO) -> bool:
        try:
            with open(os.path.join(self._root, name), "rb") as source:
                shutil.copyfileobj(source, file, _PIECE)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StoreError(f"cannot read {name!r}: {error.strerror or error}") from error
        return True

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
