"""Hints on mistakes that raise no error, such as a loss that is nan or ranks that train on the same data.

A rank reports what it sees as an event. Some events are complete. Of others, a reader compares those of all
ranks (record/hints.py), so no hint needs a collective. A hint only observes: it draws no random number, waits
for no device, and changes no value.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from .. import foreign_names
from ..output import events

__all__ = [
    "BATCHES",
    "EVENT",
    "NAMES",
    "begin",
    "foreign",
    "labels",
    "mentions_ranks",
    "report",
    "safely",
    "wanted",
    "world_size",
]

EVENT = "hint"
"""The kind of the event."""

BATCHES = 3
"""Batches that ranks compare. They must differ from each other: a benchmark repeats one batch on purpose."""

NAMES = {
    "nan": "a loss that is nan or infinite",
    "same-data": "ranks that train on the same batches",
    "set-epoch": "a DistributedSampler that shuffles each epoch alike",
    "own-model": "ranks that train a model each, without averaging",
    "weights": "weights that differ although the gradients are equal",
    "world-size": "a process group or a Horovod of one rank",
    "batch-norm": "BatchNorm with tiny batches per rank",
    "one-file": "a file that several ranks save",
    "thread-error": "an exception that has ended a thread",
    "cpu-threads": "more CPU threads than cores",
    "old-class": "an object of an earlier definition of its class",
}
"""The names of all hints, for `--no-hint`."""

_RANKS = re.compile(r"rank|shard", re.IGNORECASE)
_off: Collection[str] = frozenset()
_done: set[str] = set()
_header: Mapping[str, Any] = {}


def begin(header: Mapping[str, Any]) -> None:
    """Start the hints of a rank anew. `header`: of the payload. Its `no_hint` lists hints that are off."""
    global _off, _header
    _off, _header = frozenset(header.get("no_hint", ())), header
    _done.clear()


def labels() -> Mapping[str, str]:
    """Return the labels of cells, such as `In[3]`, by their files."""
    found: Mapping[str, str] = _header.get("labels", {})
    return found


def mentions_ranks() -> bool:
    """Return whether the code of the notebook that this rank runs mentions ranks or shards."""
    return any(map(_RANKS.search, _header.get("sources", {}).values()))


def wanted(name: str) -> bool:
    """Return whether a hint can still be reported."""
    return name not in _off and name not in _done


def report(name: str, /, *, last: bool = True, **facts: Any) -> None:
    """Write what this rank saw. `last`: the rank has no more to report for this hint."""
    writer = events.writer()
    if writer is None or not wanted(name):
        return
    if last:
        _done.add(name)
    writer.event(EVENT, {"hint": name, "world": world_size(), **facts})


def safely(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator for code that observes. Its first exception switches the hint off, with a note."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception as error:  # training continues without the hint
                _switch_off(name, f"{type(error).__name__}: {error}")

        return call

    return decorate


def foreign(user: str, *names: str) -> bool:
    """Return whether the private names of libraries that `user` needs exist. If not, switch `names` off."""
    for row, missing in foreign_names.lost(user):
        for name in names:
            _switch_off(name, foreign_names.note(row, missing))
        return False
    return True


def world_size() -> int:
    """Return the number of ranks in the run."""
    return int(os.environ.get("WORLD_SIZE", 1))


def _switch_off(name: str, why: str) -> None:
    writer = events.writer()
    if writer is not None and wanted(name):
        _done.add(name)
        writer.note(f"jupyter-dist cannot look for {NAMES[name]} here: {why}")
