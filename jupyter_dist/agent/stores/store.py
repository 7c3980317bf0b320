"""Interface of a mailbox's store, objects by name, its errors, and its HTTP requests."""

from __future__ import annotations

import http.client
import shutil
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import BinaryIO, Protocol
from xml.etree import ElementTree

__all__ = ["EARLY_S", "DeniedError", "Store", "StoreError", "body_of", "exchange", "listing"]

EARLY_S = 300.0
"""How long before their expiry credentials are renewed."""
_TIMEOUT_S = 20.0
_PIECE = 1 << 20


class StoreError(OSError):
    """A request failed for now: the store does not answer, or is busy (429, 503)."""


class DeniedError(StoreError):
    """The store denies access to this host. A retry would fail too."""


class Store(Protocol):
    """Objects by name. Readers see a whole object or none. Every method may raise StoreError."""

    def put(self, name: str, data: bytes) -> None: ...

    def get(self, name: str) -> bytes | None:
        """Return an object's content; None if there is no such object."""
        ...

    def fetch(self, name: str, file: BinaryIO) -> bool:
        """Write an object's content to a file, piece by piece. Returns whether there is such an object."""
        ...

    def names(self, prefix: str) -> list[str]:
        """Return the names with this prefix, in no order."""
        ...

    def remove(self, names: list[str]) -> None:
        """Remove objects. A missing object is no error."""
        ...


def exchange(
    method: str, url: str, headers: Mapping[str, str], data: bytes, into: BinaryIO | None = None
) -> bytes:
    """Make an HTTP request. Returns the answer's body, or writes it to `into`.

    Raises urllib's exceptions. They are OSErrors, also if the connection ends in the middle of the answer.
    """
    # Without this header, urllib would declare the data a form.
    headers = {**headers, "content-type": "application/octet-stream"}
    request = urllib.request.Request(
        url, data=data if method == "PUT" else None, headers=headers, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            if into is not None:
                shutil.copyfileobj(answer, into, _PIECE)
                return b""
            body: bytes = answer.read()
            return body
    except http.client.HTTPException as error:  # no OSError: urllib passes it through
        raise ConnectionError(f"its answer is not whole: {error!r}") from None


def body_of(error: urllib.error.HTTPError) -> str:
    """Return the beginning of the body of an answer that is an error. Raises StoreError."""
    try:
        return error.read(4096).decode(errors="replace")
    except (OSError, http.client.HTTPException) as cut:
        raise StoreError(f"the answer {error.code} is not whole: {cut!r}") from None


def listing(answer: bytes | None) -> ElementTree.Element:
    """Parse a store's answer to a listing. Raises StoreError if it is no XML."""
    try:
        return ElementTree.fromstring((answer or b"").removeprefix("\ufeff".encode()))
    except ElementTree.ParseError as error:
        raise StoreError(f"the store listed something that is no XML: {error}") from None
