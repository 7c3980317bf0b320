"""Questions about the rich output and logged media of ranks: pages, and the bytes of one picture or table."""

from __future__ import annotations

import base64
import contextlib
from typing import NamedTuple

from ..errors import InputError
from ..folder import RunFolder
from ..record import reader
from ..record.outputs import rich_output
from ..worker.output.media import form_of
from .answers.media import Display, Displays, KeptMedia, Logged, MediaList, MediaPage, MediaSeries
from .logs import display_positions
from .rank_displays import RanksShown
from .rank_reports import said

__all__ = ["Raw", "content", "displays", "kept", "kept_media", "logged", "series"]

MOST_PAGE = 200
"""Displays or steps in one answer."""
SAFE_TYPES = {
    **{mime: mime for mime in rich_output.PICTURES},
    "application/json": "application/json",
}
"""Content types sent to a browser. Any other text is sent as plain text."""


class Raw(NamedTuple):
    """Bytes that a rank wrote, with the content type under which they may be sent to a browser."""

    data: bytes
    content_type: str


def displays(
    folder: RunFolder, attempt: int | None = None, start: int | None = None, count: int = 50
) -> Displays:
    """Return the visible displays of the ranks, from display `start` on. By default the last ones."""
    number, shown = _shown(folder, attempt)
    found = shown.displays()
    count = _in(count, "count")
    first = max(0, len(found) - count if start is None else start)
    page = found[first : first + count]
    places = display_positions.places(
        folder, number, [group for display, group in page if not display["result"]]
    )
    for display, group in page:
        display["places"] = [
            places[key] for key in (display_positions.key_of(*one) for one in group) if key in places
        ]
    return {
        "attempt": number,
        "version": shown.version,
        "start": first,
        "total": len(found),
        "displays": [display for display, _ in page],
    }


def kept(folder: RunFolder, which: str, room: int) -> Displays:
    """Return the displays with their bytes, for a view that cannot ask for them.

    Of displays that differ, only the first rank's or all are included, as far as `room` bytes suffice.
    A part whose bytes are missing is marked as lost.
    """
    found = displays(folder, count=MOST_PAGE)
    for display in found["displays"]:
        room = _keep(folder, found["attempt"], display, which, room)
    found["displays"] = [display for display in found["displays"] if display["exhibits"]]
    return found


def kept_media(folder: RunFolder, which: str, room: int) -> KeptMedia:
    """Return the same for logged media: the last step of each name, as if it were the only step."""
    found = series(folder)
    pages: list[MediaPage] = []
    for one in found["series"]:
        page = logged(folder, one["name"], one["count"] - 1, 1, found["attempt"])
        for step in page["steps"]:
            room = _keep(folder, found["attempt"], step, which, room)
        page["steps"] = [step for step in page["steps"] if step["exhibits"]]
        if page["steps"]:
            pages.append({**page, "start": 0, "total": 1})
    names = {page["name"] for page in pages}
    last: list[MediaSeries] = [
        {**one, "count": 1, "first_step": one["last_step"]} for one in found["series"] if one["name"] in names
    ]
    return {"list": {**found, "series": last}, "pages": pages}


def _keep(folder: RunFolder, attempt: int, shown: Display | Logged, which: str, room: int) -> int:
    """Insert the bytes into a display or logged step if there is room. Returns the room left, in bytes."""
    kept = [] if which == "none" else shown["exhibits"] if which == "all" else shown["exhibits"][:1]
    shown["more_ranks"] += sum(len(one["ranks"]) for one in shown["exhibits"][len(kept) :])
    shown["exhibits"] = kept
    for exhibit in kept:
        for part in exhibit["contents"]:
            if "hash" not in part:
                room -= len(part.get("text", ""))
                continue
            data: bytes | None = None
            if part["bytes"] * 4 // 3 <= room:
                asked = (part["offset"], part["bytes"], part["hash"], part["mime"])
                with contextlib.suppress(InputError):
                    data = content(folder, exhibit["ranks"][0], *asked, attempt).data
            if data is None:
                part["lost"] = True
            else:
                part["base64"] = base64.b64encode(data).decode()
                room -= len(part["base64"])
    return room


def series(folder: RunFolder, attempt: int | None = None) -> MediaList:
    """Return the names of media logged with `dist.log`, with their numbers of steps."""
    number, shown = _shown(folder, attempt)
    return {"attempt": number, "version": shown.version, "series": shown.series()}


def logged(
    folder: RunFolder, name: str, start: int = 0, count: int = 1, attempt: int | None = None
) -> MediaPage:
    """Return some steps of one series, by their index."""
    _, shown = _shown(folder, attempt)
    total, steps = shown.logged(name, max(0, start), _in(count, "count"))
    return {"name": name, "start": max(0, start), "total": total, "steps": steps}


def content(
    folder: RunFolder, rank: int, offset: int, bytes: int, hash: str, mime: str, attempt: int | None = None
) -> Raw:
    """Return bytes from a rank's `media.bin` that have this hash. Raises InputError if they are missing."""
    number = reader.status(folder).attempt if attempt is None else attempt
    if min(rank, offset, bytes, number) < 0 or bytes > 100_000_000:
        raise InputError("no such content")
    path = folder.rank(number, rank).media
    data = rich_output.contents(path, rich_output.Part(mime, offset=offset, bytes=bytes, hash=hash or "-"))
    if data is None:
        raise InputError(f"run {folder.id} has no such content of rank {rank}")
    form = form_of(mime)
    other = "text/plain; charset=utf-8" if form == "text" else "application/octet-stream"
    return Raw(data, SAFE_TYPES.get(mime, "application/json" if form == "json" else other))


def _shown(folder: RunFolder, attempt: int | None) -> tuple[int, RanksShown]:
    status = reader.status(folder)
    number = status.attempt if attempt is None else attempt
    if number not in (0, *folder.attempts()):
        raise InputError(f"run {folder.id} has no attempt {number}; it has {folder.attempts()}")
    heard = said(folder, number, reader.rank_count_of(folder, status, number)).refresh_shown()
    heard.shown.settle(ended=status.state.ended or number < status.attempt)
    return number, heard.shown


def _in(count: int, name: str) -> int:
    if not 0 < count <= MOST_PAGE:
        raise InputError(f"{name} must be 1 to {MOST_PAGE}, got {count}")
    return count
