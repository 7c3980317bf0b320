"""Rich output of ranks: their visible displays, and the places of logged media in their files.

rank_reports.py reads the ranks' events and passes their new lines to this module.
"""

from __future__ import annotations

import os
import threading
from bisect import insort
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..folder import RankFolder
from ..record.outputs import rich_output
from ..record.outputs.rich_output import Part, ShownOutput
from ..record.reader import parse_lines
from ..worker import listing
from .answers.media import Content, Display, Exhibit, Logged, MediaSeries

__all__ = ["RanksShown"]

_MOST_EXHIBITS = 64
_MOST_NAMES = 500


_Key = tuple[int | None, bool, int]
"""A line of the cell, whether the display is its result, and how many displays that line has shown before."""


class _Place(NamedTuple):
    """Place of a line in a rank's `events.jsonl`."""

    offset: int
    length: int


class _Series:
    """Places of what was logged under one name, by step and rank.

    The content is read when a view asks for it.
    """

    def __init__(self, type: str) -> None:
        self.type = type
        self.steps: list[int] = []
        self.places: dict[int, dict[int, _Place]] = {}
        self.ranks: set[int] = set()

    def add(self, rank: int, step: int, place: _Place) -> None:
        if step not in self.places:
            insort(self.steps, step)
            self.places[step] = {}
        self.places[step][rank] = place
        self.ranks.add(rank)


class _Rank:
    def __init__(self, folder: RankFolder) -> None:
        self.folder = folder
        self.waiting: list[tuple[ShownOutput, _Place]] = []
        """Displays whose bytes have not arrived yet, and all later ones."""
        self.shown: list[ShownOutput] = []

    @property
    def reached(self) -> int:
        return listing.size(self.folder.media)


class RanksShown:
    """Rich output of one attempt. Several threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ranks: list[_Rank] = []
        self._series: dict[str, _Series] = {}
        self.version = 0
        """Number that grows with each change."""

    def grow(self, folder: RankFolder) -> None:
        """Add the next rank."""
        self._ranks.append(_Rank(folder))

    def take(self, rank: int, data: bytes, offset: int) -> None:
        """Add new whole lines of a rank's events, which begin at byte `offset`."""
        if not any(kind in data for kind in rich_output.KINDS):
            return
        found: list[tuple[ShownOutput, _Place]] = []
        for line in data.split(b"\n"):
            if any(kind in line[:120] for kind in rich_output.KINDS):
                shown = _shown_in(line)
                found += [] if shown is None else [(shown, _Place(offset, len(line)))]
            offset += len(line) + 1
        with self._lock:
            self._ranks[rank].waiting += found

    def settle(self, *, ended: bool = False) -> int:
        """Release the displays whose bytes have arrived, or all with `ended`, as no more will arrive.

        Returns the version.
        """
        with self._lock:
            for number, one in enumerate(self._ranks):
                if not one.waiting:
                    continue
                reached, done = one.reached, 0
                for shown, place in one.waiting:
                    if shown.end > reached and not ended:
                        break
                    done += 1
                    self._give_out(number, one, shown, place)
                if done:
                    del one.waiting[:done]
                    one.shown = rich_output.compact(one.shown)
                    self.version += 1
            return self.version

    def _give_out(self, number: int, one: _Rank, shown: ShownOutput, place: _Place) -> None:
        if shown.kind != "media":
            one.shown.append(shown)
        elif shown.name in self._series or len(self._series) < _MOST_NAMES:
            self._series.setdefault(shown.name, _Series(shown.type)).add(number, shown.step, place)

    def displays(self) -> list[tuple[Display, list[tuple[int, ShownOutput]]]]:
        """Return the visible displays by their place in the cell, in the order of their times.

        With each display: the ranks that show it, and what each shows.
        """
        with self._lock:
            of_ranks = [rich_output.standing(one.shown) for one in self._ranks]
        rows: dict[_Key, list[tuple[int, ShownOutput]]] = {}
        orders: list[list[_Key]] = []
        for rank, shown in enumerate(of_ranks):
            # A line may show several displays. The first ones of all ranks are paired.
            seen: Counter[tuple[int | None, bool]] = Counter()
            orders.append([])
            for one in shown:
                at = (one.line, one.result)
                key = (*at, seen[at])
                seen[at] += 1
                orders[-1].append(key)
                rows.setdefault(key, []).append((rank, one))
        came = {key: min(one.time for _, one in group) for key, group in rows.items()}
        found: list[tuple[Display, list[tuple[int, ShownOutput]]]] = []
        for key in _merged(orders, came):
            group, (line, result, nth) = rows[key], key
            folded, more = self._folded(group)
            display: Display = {
                "key": f"{'result' if result else line}/{nth}",
                "line": line,
                "result": result,
                "exhibits": folded,
                "more_ranks": more,
                "places": [],
            }
            found.append((display, group))
        return found

    def _folded(self, shown: Sequence[tuple[int, ShownOutput]]) -> tuple[list[Exhibit], int]:
        groups: dict[str, list[tuple[int, ShownOutput]]] = {}
        for rank, one in shown:
            groups.setdefault(one.content_key, []).append((rank, one))
        kept = list(groups.values())[:_MOST_EXHIBITS]
        found: list[Exhibit] = []
        for group in kept:
            rank, first = group[0]
            reached = self._ranks[rank].reached
            found.append(
                {
                    "ranks": [number for number, _ in group],
                    "time": first.time,
                    "contents": [_content(part, reached) for part in first.parts],
                    "metadata": dict(first.metadata),
                }
            )
        return found, len(shown) - sum(map(len, kept))

    def series(self) -> list[MediaSeries]:
        """Return the names of logged media with their numbers of steps, by first appearance."""
        with self._lock:
            return [
                {
                    "name": name,
                    "type": one.type,  # type: ignore[typeddict-item]
                    "count": len(one.steps),
                    "first_step": one.steps[0],
                    "last_step": one.steps[-1],
                    "ranks": sorted(one.ranks),
                }
                for name, one in self._series.items()
            ]

    def logged(self, name: str, start: int, count: int) -> tuple[int, list[Logged]]:
        """Return the number of steps of a series, and some of its steps."""
        with self._lock:
            series = self._series.get(name)
            if series is None:
                return 0, []
            total = len(series.steps)
            page = [(step, dict(series.places[step])) for step in series.steps[start : start + count]]
        found: list[Logged] = []
        for step, places in page:
            shown = [
                (rank, one)
                for rank, place in sorted(places.items())
                if (one := _read(self._ranks[rank].folder.events, place)) is not None
            ]
            folded, more = self._folded(shown)
            found.append({"step": step, "exhibits": folded, "more_ranks": more})
        return total, found


def _merged(orders: list[list[_Key]], came: dict[_Key, float]) -> list[_Key]:
    """Return all keys in an order that is each rank's own if the ranks agree. Otherwise times decide.

    A fast rank may show the last things of a cell before a slow rank shows something of its own.
    """
    left = [list(reversed(order)) for order in orders]
    number = Counter(key for order in orders for key in order)
    heads = Counter(order[-1] for order in left if order)
    placed: list[_Key] = []
    while heads:
        ready = [key for key, ranks in heads.items() if ranks == number[key]]
        placed.append(min(ready or heads, key=lambda key: came[key]))
        for order in left:
            if order and order[-1] == placed[-1]:
                order.pop()
            elif not ready and placed[-1] in order:
                order.remove(placed[-1])
        heads = Counter(order[-1] for order in left if order)
    return placed


def _read(path: Path, place: _Place) -> ShownOutput | None:
    try:
        with path.open("rb") as file:
            line = os.pread(file.fileno(), place.length, place.offset)
    except OSError:
        return None
    return _shown_in(line)


def _shown_in(line: bytes) -> ShownOutput | None:
    events = parse_lines([line])
    return rich_output.from_event(events[0]) if events else None


def _content(part: Part, reached: int) -> Content:
    if part.text is not None:
        return {"mime": part.mime, "text": part.text}
    if not part.hash:
        return {"mime": part.mime, "json": part.json}
    found: Content = {
        "mime": part.mime,
        "offset": part.offset,
        "bytes": part.bytes,
        "hash": part.hash,
    }
    if part.offset + part.bytes > reached:
        found["lost"] = True
    return found
