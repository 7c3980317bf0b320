"""The objects of a mailbox: their names, their seals, and their order.

    RUN/DIRECTION/NODE-SESSION-NUMBER   direction: up (from the host) or down (to it)
    RUN/down/NODE-SESSION-served        a courier has answered in that session: for no other one it is

A session is one connection; the driver opens it, and the one whose name sorts last is the one that is there.
Its objects are numbered from 0 on in each direction, written once and never changed. They hold whole frames
(frames.py) behind a seal: an HMAC of the name and the content with the run's key, which is never in the
store. So whoever can write to the store can lose objects, and nothing else.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Iterable

__all__ = ["MOST_BYTES", "SessionOrder", "object_name", "parse", "session_name", "sign", "verify"]

MOST_BYTES = 4 << 20
"""Of an object, more or less: it ends with the frame that goes beyond."""
_SEAL_BYTES = hashlib.sha256().digest_size
_NAME = re.compile(r"[^/]+/(up|down)/(\d+)-([0-9a-z]+)-(\d{8,})")


def object_name(run: str, direction: str, node: int, session: str, number: int) -> str:
    return f"{run}/{direction}/{node}-{session}-{number:08d}"


def session_name(run: str, node: int, session: str) -> str:
    """Of what the courier leaves that serves a session. One that comes after it, such as on the machine that
    replaces one that was taken away, would do all over again what the session's letters ask for."""
    return f"{run}/down/{node}-{session}-served"


def parse(name: str) -> tuple[str, int, str, int] | None:
    """Direction, node, session and number; None for something else that lies in the store."""
    match = _NAME.fullmatch(name)
    return None if match is None else (match[1], int(match[2]), match[3], int(match[4]))


def sign(key: bytes, name: str, content: bytes) -> bytes:
    """An object: the seal, then the content."""
    return _seal(key, name, content) + content


def verify(key: bytes, name: str, data: bytes) -> bytes | None:
    """The content; None where the seal is not the run's."""
    seal, content = data[:_SEAL_BYTES], data[_SEAL_BYTES:]
    return content if hmac.compare_digest(seal, _seal(key, name, content)) else None


def _seal(key: bytes, name: str, content: bytes) -> bytes:
    return hmac.new(key, name.encode() + b"\0" + content, hashlib.sha256).digest()


class SessionOrder:
    """The order of one session's objects in one direction: each one once, and none before its turn."""

    def __init__(self) -> None:
        self.next = 0
        """The number of the one that has to come now."""
        self._hole_since: float | None = None

    def due(self, listed: Iterable[int]) -> list[int]:
        """Of the numbers that a listing shows, those whose turn it is, in order. `took` tells what became
        of them. Doubled ones and those that were taken before are left out."""
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
        """For how long later objects have been there, and the one whose turn it is has not."""
        return 0.0 if self._hole_since is None else time.monotonic() - self._hole_since
