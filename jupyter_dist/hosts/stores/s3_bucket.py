"""Mailbox store in an S3 bucket, for the driver, through boto3.

boto3 uses the user's profile and region. fsspec's file system would need other options for them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO

from ...agent.stores.store import StoreError
from ...errors import DistError
from .object_store import BulkStore

__all__ = ["BucketStore"]

_AT_ONCE = 8
_MOST_REMOVED = 1000
"""Maximum number of objects in one DeleteObjects request."""


class BucketStore(BulkStore):
    """A folder of a bucket. Readers see a whole upload or none."""

    def __init__(self, asking: Callable[[str], contextlib.AbstractContextManager[Any]], url: str) -> None:
        """`asking`: a context with an S3 client, which converts errors to DistErrors. `url`: s3://…"""
        self._asking = asking
        self._bucket, _, prefix = url.removeprefix("s3://").partition("/")
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    def put(self, name: str, data: bytes) -> None:
        with self._s3("write to") as s3:
            s3.put_object(Bucket=self._bucket, Key=self._prefix + name, Body=data)

    def put_file(self, name: str, file: BinaryIO) -> None:
        from boto3.exceptions import Boto3Error

        # One request accepts at most 5 GB, so boto3 uploads large files in parts.
        with self._s3("write to") as s3:
            try:
                s3.upload_fileobj(file, self._bucket, self._prefix + name)
            except Boto3Error as error:
                raise StoreError(f"cannot write to the bucket {self._bucket!r}: {error}") from error

    def get(self, name: str) -> bytes | None:
        with self._s3("read from") as s3:
            try:
                data: bytes = s3.get_object(Bucket=self._bucket, Key=self._prefix + name)["Body"].read()
                return data
            except s3.exceptions.NoSuchKey:
                return None

    def get_all(self, names: Sequence[str]) -> dict[str, bytes]:
        if len(names) < 2:
            found = [self.get(name) for name in names]
        else:
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                found = list(pool.map(self.get, names))
        return {name: data for name, data in zip(names, found, strict=True) if data is not None}

    def names(self, prefix: str) -> list[str]:
        with self._s3("list") as s3:
            pages = s3.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix + prefix
            )
            return [entry["Key"][len(self._prefix) :] for page in pages for entry in page.get("Contents", [])]

    def remove(self, names: list[str]) -> None:
        for begin in range(0, len(names), _MOST_REMOVED):
            keys = [{"Key": self._prefix + name} for name in names[begin : begin + _MOST_REMOVED]]
            with self._s3("remove from") as s3:
                told = s3.delete_objects(Bucket=self._bucket, Delete={"Objects": keys, "Quiet": True})
            for error in told.get("Errors", [])[:1]:
                raise StoreError(f"cannot remove {error.get('Key')}: {error.get('Code')}")

    @contextlib.contextmanager
    def _s3(self, what: str) -> Iterator[Any]:
        try:
            with self._asking(f"{what} the bucket {self._bucket!r}") as client:
                yield client
        except DistError as error:
            raise StoreError(str(error)) from error
