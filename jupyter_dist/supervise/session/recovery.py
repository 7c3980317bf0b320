"""What a session's ranks do before a cell, after a cell has failed or a rank has ended."""

from __future__ import annotations

from .cell import Preparation, Request
from .ranks import Ranks

__all__ = ["Recovery"]

_SHOWN_NAMES = 12
_PORTS = ("MASTER_PORT", "HOROVOD_GLOO_RENDEZVOUS_PORT")
"""The variables with the ports of the stores in which the ranks find each other."""


class Recovery:
    """The state of a session's process group, and what fresh ranks call first."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._env: dict[str, str] = {}
        self.broken = False
        """Whether the process group of the ranks cannot be used any more."""
        self._to_close: set[int] = set()
        """Ranks whose process group is broken, and was not opened by `dist.init()`."""
        self.on_start = ranks.on_start

    def prepare(self, request: Request) -> Preparation:
        """Return what the ranks do before a cell that begins now."""
        if self.broken and all(kept.group is None for kept in self._ranks.all):
            self._to_close = set(range(len(self._ranks.all)))
        closing = tuple(rank for rank in request.ranks if rank in self._to_close)
        self._to_close -= {*closing}
        reopen = self._group_to_open(request)
        lost = self._ranks.lost
        fresh = tuple(rank for rank in request.ranks if self._ranks.all[rank].fresh and rank in lost)
        notes = [
            f"rank {rank} is a fresh process. Gone with the earlier one: {_listed(lost[rank])}. Run the "
            "cells again that assign or change them"
            for rank in fresh
            if lost[rank]
        ]
        for rank in fresh:  # it stays in `lost` until it has called the functions for fresh ranks
            lost[rank] = []
        return Preparation(dict(self._env), reopen, tuple(notes), fresh, tuple(self.on_start), closing)

    def loss(self) -> str | None:
        """Return the sentence about the ranks that have ended, and about what they had."""
        gone = [
            f"rank {rank} has ended, and with it {_listed(names)}"
            for rank, names in self._ranks.lost.items()
            if names
        ]
        return f"{'; '.join(gone)}. The next cell starts a fresh process in its place." if gone else None

    def _group_to_open(self, request: Request) -> str | None:
        """Return the communicator of the process group to open before the cell; None if there is none."""
        groups = {kept.group for kept in self._ranks.all if kept.group is not None}
        lost = self.broken or any(kept.fresh for kept in self._ranks.all)
        if not lost or (groups and len(request.ranks) < len(self._ranks.all)):
            return None
        if self.broken:  # the stores of the earlier group may still have the ports
            for name in _PORTS:
                self._env[name] = str(self._ranks.processes.free_port())
        self.broken = False
        return min(groups, default=None)


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN_NAMES])
    return shown + (f" and {len(names) - _SHOWN_NAMES} more names" if len(names) > _SHOWN_NAMES else "")
