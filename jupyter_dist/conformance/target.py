"""Target of the suite: a backend, its flags, and its usual start-up time."""

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
    """A backend as the suite starts it. Its abilities are in its `Capabilities`, not here."""

    backend: str
    np: int = 2
    """Ranks of most runs, at least 2. Some tests also start one rank alone."""
    flags: Mapping[str, Any] = field(default_factory=dict)
    """Flags by field name, such as `{"hosts": "h1:2,h2:2", "gpus_per_worker": 0}`."""
    startup_s: float = 5.0
    """Usual time in seconds from a run's start to the first line of its last rank.

    Deadlines and the length of some cells grow with it.
    """
    cold: bool = True
    """Whether runs are started with `--cold`. False if the test has prepared warm starts."""
    lives: Callable[[str, int], bool] | None = None
    """Function that returns whether a rank's process still runs, by its host and pid in the state.

    None: if the backend's processes are `visible`, /proc of this machine is used. Otherwise no test checks
    it.
    """

    def __post_init__(self) -> None:
        if self.np < 2:
            raise ValueError(f"the suite needs two ranks at least, got np={self.np}")

    def runs_on(self, host: str, pid: int) -> bool:
        """Return whether a process still runs, if that is known, else False."""
        if self.lives is not None:
            return self.lives(host, pid)
        visible = backends.declared(self.backend).capabilities.visible
        return visible and start_ticks(pid) is not None  # a zombie does not run

    @property
    def last(self) -> int:
        """The rank in which most tests cause a failure. It is not rank 0, which is first in any order."""
        return self.np - 1

    @property
    def patience_s(self) -> float:
        """Time limit of the suite for one condition. It claims nothing about the backend's speed."""
        return PATIENCE_S + 3 * self.startup_s
