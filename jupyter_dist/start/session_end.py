"""The end of a session that a user closes, and what the user must know of it."""

from __future__ import annotations

from ..launch import session_link
from ..record.sessions import StoredSession, take_end

__all__ = ["close"]


def close(session: StoredSession) -> tuple[bool, str | None]:
    """End a session and its ranks. Blocks. Raises LaunchError.

    Returns whether the session has ended, and a line with what it has cost or left, or why it has not ended.
    """
    if not session_link.close(session):
        return False, f"the session {session.name} is closing, but its supervisor has not ended yet"
    end = take_end(session.name)
    return True, None if end is None else end[1]
