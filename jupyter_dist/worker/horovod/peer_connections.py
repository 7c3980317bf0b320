"""End a process's connections to ranks that it will not hear of again, so that nobody waits for them.

When a machine is cut off or loses its power, nobody closes its connections, and a collective waits for it
until Gloo's timeout, minutes later; whoever watches the hosts knows sooner. And a rank that has left a
collective with an error keeps its connections to the others open (Horovod 0.28.1), which then wait in theirs.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator, Sequence

__all__ = ["Peers"]


class Peers:
    """The connections that were made meanwhile: `with peers.noted(): hvd.init()`. Not for several threads."""

    def __init__(self) -> None:
        self._made: set[int] = set()

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        before = set(_sockets())
        try:
            yield
        finally:
            self._made = set(_sockets()) - before

    def let_go(self, addresses: Sequence[str] | None = None) -> None:
        """Shut those down that lead to these addresses (None: all); who waits on one gets an error.

        Connections of the user's are left alone.
        """
        made = self._made if addresses is None or addresses else set()
        for inode, fd in _sockets().items() if made else ():
            with contextlib.suppress(OSError):
                if inode not in made or os.fstat(fd).st_ino != inode:
                    continue
                # A duplicate: the descriptor is somebody else's, and so is its closing.
                with socket.socket(fileno=os.dup(fd)) as connection:
                    if addresses is None or _peer(connection) in addresses:
                        connection.shutdown(socket.SHUT_RDWR)


def _sockets() -> dict[int, int]:
    """The descriptor of each socket of this process, by a number that no other socket has."""
    found = {}
    for name in os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"):
        with contextlib.suppress(OSError):
            info = os.fstat(int(name))
            if stat.S_ISSOCK(info.st_mode):
                found[info.st_ino] = int(name)
    return found


def _peer(connection: socket.socket) -> str:
    return str(connection.getpeername()[0]).removeprefix("::ffff:")
