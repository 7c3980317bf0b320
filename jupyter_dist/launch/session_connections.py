"""The connections of this process to sessions, which stay open for its next questions."""

from __future__ import annotations

import atexit
import os

from ..record.sessions import StoredSession
from ..worker.session import channel
from .messages import is_readable

__all__ = ["OPEN", "Connections"]


class Connections:
    """Open connections, one for each session. Threads may use the object at once.

    Whoever takes a connection closes it or returns it with `keep`.
    """

    def __init__(self) -> None:
        self._links: dict[str, tuple[float, channel.Channel]] = {}
        """Connections by the session's folder, with the time of the session's start."""

    def has(self, session: StoredSession) -> bool:
        """Return whether there is a connection to this session, which proves that it still runs."""
        created, link = self._links.get(str(session.path), (0.0, None))
        if link is None or created != session.about["created"]:
            return False
        try:
            return not is_readable(link)
        except ValueError:  # another thread has just closed it
            return False

    def take(self, session: StoredSession) -> channel.Channel:
        """Return the connection to a session, or a new one. The caller owns it. Raises OSError."""
        created, link = self._links.pop(str(session.path), (0.0, None))
        if link is not None:
            if created == session.about["created"] and not is_readable(link):
                return link
            link.close()  # of an earlier session, or the other end is closed
        self._close_ended()
        return channel.connect(session.path)

    def keep(self, session: StoredSession, link: channel.Channel) -> None:
        """Keep a connection for the next question. It is closed if another thread has kept one meanwhile."""
        self._put(str(session.path), session.about["created"], link)

    def drop(self, session: StoredSession) -> None:
        """Close the connection to a session, if there is one."""
        self._close(str(session.path))

    def close(self) -> None:
        """Close all connections: this process ends, or they are those of the process that has forked it."""
        for path in list(self._links):
            self._close(path)

    def _close_ended(self) -> None:
        """Close the connections of sessions that have ended by themselves. Nobody asks for these again."""
        for path in list(self._links):
            created, link = self._links.pop(path, (0.0, None))
            if link is not None:
                if is_readable(link):
                    link.close()
                else:
                    self._put(path, created, link)

    def _put(self, path: str, created: float, link: channel.Channel) -> None:
        if self._links.setdefault(path, (created, link))[1] is not link:
            link.close()

    def _close(self, path: str) -> None:
        _, link = self._links.pop(path, (0.0, None))
        if link is not None:
            link.close()


OPEN = Connections()
atexit.register(OPEN.close)
os.register_at_fork(after_in_child=OPEN.close)
