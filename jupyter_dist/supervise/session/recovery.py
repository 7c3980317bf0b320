"""What a session's ranks do before a cell, after a cell has failed or a rank has ended."""

from __future__ import annotations

from .cell_request import Preparation, Request
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

    def to_close(self, request: Request) -> tuple[int, ...]:
        """Return the ranks that have to close their process groups before a cell. Changes nothing."""
        if self._opens_group(request) or self._is_of_user:
            return request.ranks
        return tuple(rank for rank in request.ranks if rank in self._to_close)

    def prepare(self, request: Request) -> Preparation:
        """Return what the ranks do before a cell that begins now. The ranks of `to_close` have closed."""
        if self._is_of_user:
            self._to_close = set(range(len(self._ranks.all)))
        self._to_close -= {*request.ranks}
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
        return Preparation(dict(self._env), reopen, tuple(notes), fresh, tuple(self.on_start))

    def loss(self) -> str | None:
        """Return the sentence about the ranks that have ended, and about what they had."""
        gone = [
            f"rank {rank} has ended, and with it {_listed(names)}"
            for rank, names in self._ranks.lost.items()
            if names
        ]
        return f"{'; '.join(gone)}. The next cell starts a fresh process in its place." if gone else None

    @property
    def _is_of_user(self) -> bool:
        """Whether the group is broken that the user's code has opened, if there is any."""
        return self.broken and all(kept.group is None for kept in self._ranks.all)

    def _opens_group(self, request: Request) -> bool:
        """Return whether the ranks of a cell open the group of `dist.init()` again before the cell."""
        lost = self.broken or any(kept.fresh for kept in self._ranks.all)
        is_open = any(kept.group is not None for kept in self._ranks.all)
        return lost and is_open and len(request.ranks) == len(self._ranks.all)

    def _group_to_open(self, request: Request) -> str | None:
        """Return the communicator of the process group to open before the cell; None if there is none."""
        groups = {kept.group for kept in self._ranks.all if kept.group is not None}
        opens = self._opens_group(request)
        if self.broken and (opens or not groups):
            for name in _PORTS:  # the stores of the earlier group may still have the ports
                self._env[name] = str(self._ranks.processes.free_port())
            self.broken = False
        return min(groups) if opens else None


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN_NAMES])
    return shown + (f" and {len(names) - _SHOWN_NAMES} more names" if len(names) > _SHOWN_NAMES else "")
