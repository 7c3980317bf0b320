"""A run in one JSON value of limited size. A widget shows it if no server or kernel answers questions."""

from __future__ import annotations

from .. import queries
from ..folder import find_exact
from ..record import reader
from ..text.safe import clean
from . import media_pages
from .answers.metrics import Curve, Curves
from .answers.ranks import RankError
from .answers.runs import Snapshot
from .metrics.curves import BAND_ABOVE

__all__ = ["snapshot"]

_MAX_LINE = 300
_MAX_PARTIAL = 48
_MAX_SOURCE = 20_000
_MAX_ERRORS = 8
_MAX_TEXT = 20_000
_MAX_FRAMES = 30
_MAX_RESULTS = 32
_MAX_REPR = 2_000
_LEAST_POINTS = 10
_MOST_SHOWN, _MOST_LOGGED = 1_000_000, 500_000


def snapshot(run_id: str, *, lines: int, points: int, each: int, final: bool) -> Snapshot:
    """Return the run, its last `lines` lines, and curves of `each` points, `points` of all curves together.

    `final`: the run is complete. Raises RunNotFound.
    """
    grown = [change for change in queries.RunChanges([run_id]).poll() if change["kind"] == "log"]
    run = queries.run(run_id)
    run["source"] = run["source"][:_MAX_SOURCE]
    page = queries.log_page(run_id, start=-lines, count=lines)
    for line in page["lines"]:
        line["text"] = line["text"][:_MAX_LINE]
    page["partial"] = [
        # A progress bar's bytes since its beginning are reduced to what it shows now.
        {**line, "text": clean(line["text"], limit=_MAX_LINE), "cut": False}
        for line in page["partial"][:_MAX_PARTIAL]
    ]
    found: Snapshot = {
        "final": final,
        "run": run,
        "log": page,
        "totals": grown[0]["ranks"] if grown else {},
        "curves": _curves(run_id, points, each, banded=run["world_size"] > BAND_ABOVE),
        "errors": [],
        "results": [],
    }
    profile = queries.profile(run_id)
    if profile["ranks"]:
        found["profile"] = profile
    if run["ended"] is not None:
        found["errors"] = [
            # The first error is the root cause. The others mostly followed from it.
            _short(error, _MAX_REPR if number else _MAX_TEXT)
            for number, error in enumerate(queries.errors(run_id)[:_MAX_ERRORS])
        ]
        card = queries.card(run_id)
        if card is not None:
            parts = [part for part in card["parts"] if part["kind"] in ("reason", "launcher")]
            found["card"] = {
                **card,
                "parts": [{**part, "text": part["text"][-_MAX_TEXT:]} for part in parts],
            }
        found["results"] = [
            {**result, "repr": result["repr"][:_MAX_REPR]}
            for result in queries.results(run_id)[:_MAX_RESULTS]
        ]
        kept = queries.kept_stacks(run_id)
        if kept["groups"]:
            found["stacks"] = {
                **kept,
                "groups": [
                    {**group, "frames": group["frames"][-_MAX_FRAMES:]}
                    for group in kept["groups"][:_MAX_ERRORS]
                ],
            }
        folder = find_exact(run_id)
        shown = media_pages.kept(folder, reader.job(folder).kept_displays, _MOST_SHOWN)
        if shown["displays"]:
            found["displays"] = shown
        logged = media_pages.kept_media(folder, reader.job(folder).kept_displays, _MOST_LOGGED)
        if logged["pages"]:
            found["media"] = logged
    return found


def _curves(run_id: str, points: int, each: int, *, banded: bool) -> Curves:
    found = queries.curves(run_id, points=each)
    number = sum(len(curve["ranks"]) for curve in found["curves"])
    if number * each > points:
        fewer = max(_LEAST_POINTS, points // max(1, number))
        found = queries.curves(run_id, points=fewer)
    left = points
    kept: list[Curve] = []
    for curve in found["curves"]:
        if banded and (band := curve["band"]) is not None:
            left -= len(band["steps"])
        else:
            curve = {**curve, "band": None, "ranks": [{**rank, "times": []} for rank in curve["ranks"]]}
            left -= sum(len(rank["steps"]) for rank in curve["ranks"])
        if left < 0 and kept:
            break
        kept.append(curve)
    names = [curve["name"] for curve in kept]
    # Without a version, because no page has these curves as they were found.
    return {
        "attempt": found["attempt"],
        "names": names,
        "curves": kept,
        "bad": found["bad"],
        "problem": found["problem"],
    }


def _short(error: RankError, room: int) -> RankError:
    return {
        **error,
        "message": error["message"][:_MAX_REPR],
        "text": error["text"][-room:],
        "frames": error["frames"][-_MAX_FRAMES:],
    }
