"""Sessions on the disk: a list of them, and whether each one lives."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..folder import runs_root
from ..worker import listing
from ..worker.process_identity import boot_id, start_ticks
from ..worker.session import place

__all__ = ["StoredSession", "find_session", "known_names", "list_sessions", "session_folder", "take_end"]

_SILENCE_S = 60.0
"""If its heartbeat is older than this, a session on another host counts as dead."""


@dataclass(frozen=True)
class StoredSession:
    """A session that lives. `about`: the content of its `session.json`."""

    path: Path
    about: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def world_size(self) -> int:
        return int(self.about["world_size"])

    @property
    def host(self) -> str:
        return str(self.about["supervisor"]["host"])

    @property
    def is_here(self) -> bool:
        """Return whether the session runs on this machine, which alone can reach its socket."""
        return self.host == socket.gethostname()


def session_folder(name: str) -> Path:
    """Return the folder of a session. `name` was checked with `place.is_name`."""
    return place.sessions_root(runs_root()) / name


def find_session(name: str) -> StoredSession | None:
    """Return the live session of this name. None if there is none."""
    path = session_folder(name)
    try:
        if os.stat(path).st_uid != os.geteuid():
            return None
        about = _read(path, place.ABOUT)
        return StoredSession(path, about) if _lives(about) else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def known_names(session: StoredSession) -> dict[str, Any] | None:
    """Return what is known of the names of a session's ranks; None if its supervisor must be asked.

    A cell that changes the names also changes the file, at its end. The supervisor checks the `number` of the
    file when the next cell arrives.
    """
    if not session.is_here:
        return None
    try:
        known: dict[str, Any] = _read(session.path, place.NAMES)
        return known if known["session"] == session.about["id"] else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _read(folder: Path, name: str) -> Any:
    with open(f"{folder}{os.sep}{name}", "rb", 0) as file:  # each cell does this, and pathlib is slow
        return json.loads(file.read())


def _lives(about: Mapping[str, Any]) -> bool:
    supervisor = about["supervisor"]
    if supervisor["host"] != socket.gethostname():
        return time.time() - float(about["heartbeat"]) < _SILENCE_S
    if supervisor["boot_id"] != boot_id():
        return False
    return bool(start_ticks(int(supervisor["pid"])) == supervisor["start_ticks"])


def list_sessions() -> list[StoredSession]:
    """Return all sessions that live, sorted by name."""
    names = [name for name in listing.names(place.sessions_root(runs_root())) if place.is_name(name)]
    found = [find_session(name) for name in sorted(names)]
    return [one for one in found if one is not None]


def take_end(name: str) -> tuple[float, str] | None:
    """Return when and why the last session of this name ended, and what it has cost or left, once.

    None if a user has closed it and there is nothing more to tell.
    """
    path = session_folder(name) / place.ENDED
    try:
        ended = json.loads(path.read_bytes())
        path.unlink()
        return float(ended["at"]), str(ended["why"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
