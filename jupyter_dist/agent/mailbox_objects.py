"""The objects of a mailbox: their names, their signatures, and their order.

    RUN/DIRECTION/NODE-SESSION-NUMBER   direction: up (from the host) or down (to it)
    RUN/down/NODE-SESSION-served        a mailbox relay has answered in this session: no other relay may

A session is one connection. The driver opens it, and the session whose name sorts last is the current one.
In each direction its objects are numbered from 0, written once and never changed. An object is a signature
and whole frames (frames.py). The signature is an HMAC of the name and the content with the run's key. The
key is never in the store. So a stranger who can write to the store can remove objects, but not forge them.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Iterable
from typing import BinaryIO

__all__ = [
    "HOLE_S",
    "MOST_BYTES",
    "SessionOrder",
    "digest_of",
    "object_name",
    "parse",
    "session_name",
    "sign",
    "verify",
]

HOLE_S = 8.0
"""How long an object may be missing while later ones exist. After that its content is needed again."""
MOST_BYTES = 4 << 20
"""Approximate maximum size of an object. The frame that exceeds the size is the last one."""
_SEAL_BYTES = hashlib.sha256().digest_size
_NAME = re.compile(r"[^/]+/(up|down)/(\d+)-([0-9a-z]+)-(\d{8,})")


def digest_of(file: BinaryIO) -> str:
    """Return the SHA-256 of a file's whole content, read piece by piece."""
    file.seek(0)
    digest = hashlib.sha256()
    while data := file.read(1 << 20):
        digest.update(data)
    return digest.hexdigest()


def object_name(run: str, direction: str, node: int, session: str, number: int) -> str:
    return f"{run}/{direction}/{node}-{session}-{number:08d}"


def session_name(run: str, node: int, session: str) -> str:
    """Return the name of the object with which a mailbox relay claims a session.

    A later relay, for example on a replacement machine, would repeat all requests of the session's objects.
    """
    return f"{run}/down/{node}-{session}-served"


def parse(name: str) -> tuple[str, int, str, int] | None:
    """Return direction, node, session and number; None if the name is not a mailbox object's."""
    match = _NAME.fullmatch(name)
    return None if match is None else (match[1], int(match[2]), match[3], int(match[4]))


def sign(key: bytes, name: str, content: bytes) -> bytes:
    """Return an object: the signature, then the content."""
    return _seal(key, name, content) + content


def verify(key: bytes, name: str, data: bytes) -> bytes | None:
    """Return the content; None if the signature is not from the run's key."""
    seal, content = data[:_SEAL_BYTES], data[_SEAL_BYTES:]
    return content if hmac.compare_digest(seal, _seal(key, name, content)) else None


def _seal(key: bytes, name: str, content: bytes) -> bytes:
    return hmac.new(key, name.encode() + b"\0" + content, hashlib.sha256).digest()


class SessionOrder:
    """The order of one session's objects in one direction. Each object is due once, in order."""

    def __init__(self) -> None:
        self.next = 0
        """The number of the next object."""
        self._hole_since: float | None = None

    def due(self, listed: Iterable[int]) -> list[int]:
        """Return the numbers in a listing that are due, in order, without duplicates and earlier numbers.

        Call `took` for each object that was processed.
        """
        there = set(listed)
        found: list[int] = []
        while self.next + len(found) in there:
            found.append(self.next + len(found))
        beyond = bool(there) and max(there) >= self.next + len(found)
        if found or not beyond:
            self._hole_since = None
        elif self._hole_since is None:
            self._hole_since = time.monotonic()
        return found

    def took(self, number: int) -> None:
        assert number == self.next
        self.next += 1
        self._hole_since = None

    @property
    def hole_s(self) -> float:
        """Return for how many seconds the next object has been missing while later ones exist."""
        return 0.0 if self._hole_since is None else time.monotonic() - self._hole_since
