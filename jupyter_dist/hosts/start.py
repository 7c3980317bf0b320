"""A process that the driver wants to start on a host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..worker import layout

__all__ = ["Start"]


@dataclass(frozen=True)
class Start:
    """One process to start on a host, with its working directory in the stage's `code`.

    `rank` None: a launcher, whose log is `attempts/A/launcher-HOST.log`. `env` extends the environment of
    a login on the host.
    """

    host: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    rank: int | None = None
    fork: bool = False
    """Whether to fork the rank from the agent instead of running argv."""
    number: int = 0
    """How many earlier processes of the same attempt had this rank."""

    def id(self, attempt: int) -> str:
        """Return the process's name in frames."""
        if self.rank is None:
            return f"{attempt}.{self.host}"
        return f"{attempt}.{self.rank}" + (f".{self.number}" if self.number else "")

    def wish(self, attempt: int) -> dict[str, Any]:
        """Return the request to an agent."""
        return {
            "id": self.id(attempt),
            "attempt": attempt,
            "rank": self.rank,
            "argv": list(self.argv),
            "env": dict(self.env),
            "log": layout.launcher_log(self.host),
            "fork": self.fork,
        }
