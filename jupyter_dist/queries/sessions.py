"""The sessions of this user, as JSON for the views."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ..record.sessions import StoredSession, list_sessions
from ..worker.host.usage import memory_bytes
from .answers.sessions import SessionInfo, SessionRank

__all__ = ["sessions"]

_MOST_NAMES = 100
_MOST_RANKS = 64


def sessions() -> list[SessionInfo]:
    """Return the sessions that live, sorted by name. A session that has just begun is not among them yet."""
    return [_info(one) for one in list_sessions()]


def _info(session: StoredSession) -> SessionInfo:
    about = session.about
    names = about["names"]
    return {
        "name": session.name,
        "backend": about["backend"],
        "world_size": session.world_size,
        "host": session.host,
        "here": session.is_here,
        "notebook": about["notebook"],
        "created": about["created"],
        "idle_since": about["idle_since"],
        "idle_timeout_s": about["idle_timeout_s"],
        "run": about["runs"],
        "queued": len(about["queued"]),
        "ranks": [_rank(rank, session) for rank in about["ranks"][:_MOST_RANKS]],
        "names": dict(sorted(names.items())[:_MOST_NAMES]),
        "host_time": time.time(),
    }


def _rank(rank: Mapping[str, Any], session: StoredSession) -> SessionRank:
    here = session.is_here and rank.get("host") in (None, session.host)
    lives = here and rank["state"] == "running" and rank["pid"] is not None
    return {
        "rank": rank["rank"],
        "pid": rank["pid"],
        "state": rank["state"],
        "memory_bytes": memory_bytes(rank["pid"]) if lives else rank.get("memory"),
        "gpu_memory_bytes": rank.get("gpu_memory"),
    }
