"""The files of a session. Only this module spells their names.

    RUNS/sessions/NAME/session.json     what the session is and has; written by its supervisor only
    RUNS/sessions/NAME/names.json       what a kernel has to know of the ranks' names; written as session.json
    RUNS/sessions/NAME/next             an empty folder for the run of the next cell, which a kernel moves
    RUNS/sessions/NAME/.start.lock      locked by a kernel while it starts the session
    RUNS/sessions/NAME/life.lock        locked by the session's supervisor until it ends
    RUNS/sessions/NAME/cells.sock       the socket on which the supervisor accepts kernels and ranks
    RUNS/sessions/NAME/ended.json       when and why the last session ended, until a cell shows it
    RUNS/sessions/NAME/on-start-F.pkl   the payload of a function that fresh ranks call first

The folder is also shaped like a run's. It has the supervisor's log between cells, and the folder of an
attempt with what the ranks write before their first cell. On another host, the stage folder has a socket of
the agent with the same name, and the folders of the cells (agent/session_ranks.py).
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["is_name", "runs_root", "sessions_root"]

ABOUT = "session.json"
NAMES = "names.json"
NEXT = "next"
START_LOCK = ".start.lock"
LIFE_LOCK = "life.lock"
SOCKET = "cells.sock"
ENDED = "ended.json"
CELLS = "cells"
ON_START = "on-start"
DEFAULT = "main"
"""The name of a session without a name."""
VARIABLE = "JUPYTER_DIST_SESSION"
"""The environment variable with the session's folder. A rank with it stays between cells."""
EXIT_LIMIT_S = 300.0
"""How long the ranks may take to run their exit handlers when the session ends."""
ID_VARIABLE = "JUPYTER_DIST_SESSION_ID"
"""The environment variable with the session's id. Every process that its ranks start has it."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


def is_name(text: str) -> bool:
    """Return whether a text can name a session: no path, no blank, at most 64 characters."""
    return _NAME.fullmatch(text) is not None


def sessions_root(runs: Path) -> Path:
    """Return the folder of all sessions. `runs`: the folder of all runs."""
    return runs / "sessions"


def runs_root(session: Path) -> Path:
    """Return the folder of all runs. `session`: the folder of a session."""
    return session.parent.parent
