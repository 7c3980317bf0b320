"""Shutdown of a process's connections to lost ranks, so that no rank waits for them.

If a machine loses its network or its power, nobody closes its connections. A collective then waits until
Gloo's timeout, minutes later. The watcher of the hosts notices sooner. A rank that has left a collective with
an error also keeps its connections open (Horovod 0.28.1). The other ranks then wait in their collective.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator, Sequence

__all__ = ["Peers"]


class Peers:
    """The connections made in contexts: `with peers.noted(): hvd.init()`.

    A thread that is not in such a context may call `let_go`.
    """

    def __init__(self) -> None:
        self._made: set[int] = set()

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        before = set(_sockets())
        try:
            yield
        finally:
            self._made |= set(_sockets()) - before

    def let_go(self, addresses: Sequence[str] | None = None) -> None:
        """Shut down the connections to these addresses (None: all). A rank that waits on one gets an error.

        Connections of the user are not touched.
        """
        made = self._made if addresses is None or addresses else set()
        if addresses is None:
            self._made = set()
        for inode, fd in _sockets().items() if made else ():
            with contextlib.suppress(OSError):
                if inode not in made or os.fstat(fd).st_ino != inode:
                    continue
                # A duplicate is closed here, because the original descriptor belongs to other code.
                with socket.socket(fileno=os.dup(fd)) as connection:
                    # gloo aborts the process if its listening socket is shut down.
                    if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        continue
                    if addresses is None or _peer(connection) in addresses:
                        connection.shutdown(socket.SHUT_RDWR)


def _sockets() -> dict[int, int]:
    """Return the descriptor of each socket of this process, by its inode number."""
    found = {}
    for name in os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"):
        with contextlib.suppress(OSError):
            info = os.fstat(int(name))
            if stat.S_ISSOCK(info.st_mode):
                found[info.st_ino] = int(name)
    return found


def _peer(connection: socket.socket) -> str:
    return str(connection.getpeername()[0]).removeprefix("::ffff:")
