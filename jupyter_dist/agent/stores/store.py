"""What a store is to a mailbox: objects by name. What can go wrong there, and how one is asked by HTTP."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from typing import Protocol
from xml.etree import ElementTree

__all__ = ["EARLY_S", "DeniedError", "Store", "StoreError", "exchange", "listing"]

EARLY_S = 300.0
"""How long before they expire credentials are asked for anew."""
_TIMEOUT_S = 20.0


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


def exchange(method: str, url: str, headers: Mapping[str, str], data: bytes) -> bytes:
    """The answer's body. What urllib raises passes through."""
    # urllib would say that it is a form.
    headers = {**headers, "content-type": "application/octet-stream"}
    request = urllib.request.Request(
        url, data=data if method == "PUT" else None, headers=headers, method=method
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
        body: bytes = answer.read()
        return body


def listing(answer: bytes | None) -> ElementTree.Element:
    """What a store answers that is asked for names. Raises StoreError where it is no XML."""
    try:
        return ElementTree.fromstring((answer or b"").removeprefix("\ufeff".encode()))
    except ElementTree.ParseError as error:
        raise StoreError(f"the store listed something that is no XML: {error}") from None
