"""What the suite is run against: a backend, its flags, and how slow it may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import backends
from ..record.reader import start_ticks
from .deadlines import PATIENCE_S

__all__ = ["Target"]


@dataclass(frozen=True)
class Target:
    """A backend as the suite starts it. What it can is not said here: its `Capabilities` tell."""

    backend: str
    np: int = 2
    """Ranks of most runs, 2 at least. Some tests also start one rank alone."""
    flags: Mapping[str, Any] = field(default_factory=dict)
    """Flags by field name, such as `{"hosts": "h1:2,h2:2", "gpus_per_worker": 0}`."""
    startup_s: float = 5.0
    """How long a run usually takes from its start to the first line of its last rank. Deadlines grow with
    it, and so does the length of some cells."""
    cold: bool = True
    """Whether runs are started with `--cold`; False where the test has arranged for warm starts."""
    lives: Callable[[str, int], bool] | None = None
    """Whether a rank's process still runs, by its host and pid as the state tells them. None: where the
    backend's processes are `visible`, this machine's /proc tells; of others it is not asked."""

    def __post_init__(self) -> None:
        if self.np < 2:
            raise ValueError(f"the suite needs two ranks at least, got np={self.np}")

    def runs_on(self, host: str, pid: int) -> bool:
        """Whether a process still runs, as far as that can be told."""
        if self.lives is not None:
            return self.lives(host, pid)
        visible = backends.declared(self.backend).capabilities.visible
        return visible and start_ticks(pid) is not None  # a zombie does not run

    @property
    def last(self) -> int:
        """The rank that most failures happen to: not the one that is first anyway."""
        return self.np - 1

    @property
    def patience_s(self) -> float:
        """How long the suite waits for one thing before a test fails. It is no claim about the backend."""
        return PATIENCE_S + 3 * self.startup_s
