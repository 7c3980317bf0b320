"""Actions of a view on a session, answered as JSON. `name` is the session's; InputError if there is none."""

from __future__ import annotations

from ..launch import session_link
from ..queries.answers import sessions

__all__ = ["close", "restart"]


def close(name: str) -> sessions.SessionName:
    """End a session and its ranks. Blocks until they have ended. Raises LaunchError."""
    session_link.close(session_link.existing(name))
    return {"name": name}


def restart(name: str) -> sessions.SessionName:
    """Give every rank a fresh process, with nothing in it. Raises LaunchError if a cell runs."""
    session_link.restart(session_link.existing(name))
    return {"name": name}
