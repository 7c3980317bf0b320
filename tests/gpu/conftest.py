"""Two ranks on one GPU of this machine."""

from __future__ import annotations

from tests.sessions.conftest import notebook, sessions_end

__all__ = ["notebook", "sessions_end"]
