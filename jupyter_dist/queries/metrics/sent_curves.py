"""Curves as they were sent, so that the next answer to a page has only what is new.

A page names the version that it has. The answer then leaves out curves that are the same. Of other curves it
leaves out the points that the page has: `keep` is their number. If the version is unknown here, the answer is
whole.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..answers.metrics import Curve, Curves

__all__ = ["current", "reduced"]

_MOST_NUMBERS = 4_000_000
"""Limit for all versions together: 8 bytes for each number."""
_LISTS = {"band": ("steps", "mean", "min", "max", "times"), "ranks": ("steps", "values", "times")}
_Columns = tuple[npt.NDArray[np.float64], ...]
_PROCESS = secrets.token_hex(4)
_count = itertools.count()
_sent: OrderedDict[str, _Sent] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True)
class _SentCurve:
    about: object
    """All of the curve but its points."""
    columns: Mapping[object, _Columns]
    """Points of the band and of ranks."""


@dataclass(frozen=True)
class _Sent:
    state: object
    answer: Curves
    """Without curves."""
    curves: Mapping[str, _SentCurve]
    numbers: int


def current(since: str | None, state: object) -> Curves | None:
    """Return the answer to a page that has everything. None if it has not.

    `state`: what was asked, and the version of the run's metrics.
    """
    with _lock:
        found = _sent.get(since or "")
    return found.answer if found is not None and found.state == state else None


def reduced(answer: Curves, since: str | None, state: object) -> Curves:
    """Return the answer with a version of its own, and without what a page has that names `since`."""
    version = f"{_PROCESS}-{next(_count)}"
    head: Curves = {**answer, "version": version, "curves": []}
    with _lock:
        before = _sent.get(since or "")
    curves = {curve["name"]: _sent_curve(curve) for curve in answer["curves"]}
    numbers = sum(len(part) for one in curves.values() for own in one.columns.values() for part in own)
    with _lock:
        _sent[version] = _Sent(state, head, curves, numbers)
        while len(_sent) > 1 and sum(one.numbers for one in _sent.values()) > _MOST_NUMBERS:
            _sent.popitem(last=False)
    if before is None:
        return {**head, "curves": answer["curves"]}
    news = [
        _news(curve, before.curves[curve["name"]], curves[curve["name"]])
        if curve["name"] in before.curves
        else curve
        for curve in answer["curves"]
    ]
    return {**head, "curves": [curve for curve in news if curve is not None]}


def _sent_curve(curve: Curve) -> _SentCurve:
    columns: dict[object, _Columns] = {rank["rank"]: _columns(rank, "ranks") for rank in curve["ranks"]}
    band = curve["band"]
    if band is not None:
        columns["band"] = _columns(band, "band")
    about = {
        **curve,
        "band": None if band is None else _without(band, "band"),
        "ranks": [_without(rank, "ranks") for rank in curve["ranks"]],
    }
    return _SentCurve(about, columns)


def _columns(part: Mapping[str, Any], kind: str) -> _Columns:
    return tuple(np.array(part[name], dtype=np.float64) for name in _LISTS[kind])  # None becomes NaN


def _without(part: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name not in _LISTS[kind]}


def _news(curve: Curve, before: _SentCurve, now: _SentCurve) -> Curve | None:
    """Return what is new of a curve. None if nothing is."""
    keep = {key: _common(before.columns.get(key, ()), own) for key, own in now.columns.items()}
    same = before.columns.keys() == now.columns.keys() and all(
        keep[key] == len(own[0]) == len(before.columns[key][0]) for key, own in now.columns.items()
    )
    if same and before.about == now.about:
        return None
    found: dict[str, Any] = {**curve}
    if curve["band"] is not None:
        found["band"] = _cut(curve["band"], "band", keep["band"])
    found["ranks"] = [_cut(rank, "ranks", keep[rank["rank"]]) for rank in curve["ranks"]]
    return found  # type: ignore[return-value]


def _common(before: _Columns, now: _Columns) -> int:
    """Return how many points at the beginning are the same."""
    found = min((len(part) for part in (*before[:1], *now[:1])), default=0) if before else 0
    for old, new in zip(before, now, strict=False):
        a, b = old[:found], new[:found]
        differ = np.flatnonzero((a != b) & ~(np.isnan(a) & np.isnan(b)))
        if len(differ):
            found = int(differ[0])
    return found


def _cut(part: Mapping[str, Any], kind: str, keep: int) -> dict[str, Any]:
    if not keep:
        return {**part}
    lists: Sequence[str] = _LISTS[kind]
    return {**part, "keep": keep, **{name: part[name][keep:] for name in lists}}
