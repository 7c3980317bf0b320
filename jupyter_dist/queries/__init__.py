"""Questions that a view asks about runs, answered from the disk as JSON.

The server's REST handlers and the widget's comm both answer with these functions. So a view gets the same
answer from either. `id` is a whole run id. Any other text raises RunNotFound and touches no file.

A question changes nothing and asks no other process. For changes, see `manage.actions`.
All questions may block on the disk, and none waits for anything else. The exception is `backends`: a backend
may start a program to find out what this machine has. No question unpickles anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import InputError
from ..folder import find_exact
from ..job import rank_count
from ..record import reader
from ..record.failures import card as failure_card
from ..record.failures import failures, parting
from ..record.failures import stacks as rank_stacks
from ..record.outputs.result_outlines import Cell, Outline
from ..record.outputs.results import alike
from ..record.run_list import disk_bytes
from ..text.cancellation import Cancellation
from ..text.format import signal_name
from . import files, media_pages, run_info
from .answers import logs as log_answers
from .answers import media as media_answers
from .answers import metrics as metric_answers
from .answers import ranks as rank_answers
from .answers import runs as run_answers
from .changes import RunChanges
from .forms import backend_list as backends
from .forms import cluster_list as clusters
from .logs import pages
from .metrics import curves as metric_curves
from .metrics import steps as step_profile
from .metrics import usage as usage_curves
from .rank_reports import said
from .stacks import as_answer

__all__ = [
    "RunChanges",
    "backends",
    "card",
    "clusters",
    "content",
    "curves",
    "disk_size",
    "displays",
    "environment",
    "errors",
    "file_download",
    "kept_stacks",
    "log_download",
    "log_lines",
    "log_page",
    "log_search",
    "media",
    "media_page",
    "profile",
    "results",
    "run",
    "runs",
    "usage",
]

_MAX_TEXT = 200_000
_MAX_FRAMES = 200


def runs(
    text: str = "",
    state: str | None = None,
    notebook: str | None = None,
    limit: int = 100,
    before: str | None = None,
    sort: str = "",
) -> run_answers.RunList:
    """Runs, newest first: `{runs, total, notebooks, root, host, hint, sessions}`.

    Args:
        text: words that must all occur in the id, name, tags, note, notebook, backend, state, reason,
            parameters (`lr=0.1`) or code.
        state: one state, or several with commas.
        before: the id after which the list continues.
        sort: created, name, duration, param:NAME or metric:NAME. A minus before it puts the largest first.
            By default the newest run is first.

    `notebooks` are those of all runs, not only of those that match. If there are no runs at all, `hint` names
    the folder that was searched.
    """
    return run_info.listing(text, state, notebook, limit, before, sort)


def run(id: str) -> run_answers.RunInfo:
    """One run with its ranks, notes and cell."""
    return run_info.full(find_exact(id))


def log_page(
    id: str,
    rank: int | None = None,
    attempt: int | None = None,
    start: int = 0,
    count: int = 200,
    launcher: str | None = None,
) -> log_answers.LogPage:
    """Lines of one rank's log, of a launcher's, or of all ranks by time; see `logs.page`."""
    return pages.page(find_exact(id), rank, attempt, start, count, launcher)


def log_lines(
    id: str,
    numbers: Sequence[int | str],
    rank: int | None = None,
    attempt: int | None = None,
    launcher: str | None = None,
) -> list[log_answers.LogLine]:
    """The lines of a log with these numbers, such as those that a search has found."""
    try:
        asked = [int(number) for number in numbers]
    except (TypeError, ValueError):
        raise InputError(f"numbers must be numbers of lines, got {str(numbers)[:80]}") from None
    return pages.lines(find_exact(id), asked, rank, attempt, launcher)


def log_search(
    id: str,
    rank: int | None = None,
    attempt: int | None = None,
    query: str = "",
    regex: bool = False,
    case: bool = False,
    limit: int = 1000,
    launcher: str | None = None,
    cancellation: Cancellation | None = None,
) -> log_answers.SearchResult:
    """Search a whole log: `{count, hits: [line numbers], truncated}`."""
    return pages.search(find_exact(id), rank, attempt, query, regex, case, limit, launcher, cancellation)


def log_download(
    id: str, rank: int | None = None, attempt: int | None = None, launcher: str | None = None
) -> Iterator[bytes]:
    """A whole log in pieces: a rank's or launcher's own bytes, or all ranks' lines by time."""
    return pages.download(find_exact(id), rank, attempt, launcher)


def file_download(id: str, file: str) -> Iterator[bytes]:
    """One of the run's `files`, in pieces."""
    return files.read(find_exact(id), file)


def curves(
    id: str,
    attempt: int | None = None,
    points: int = 2000,
    names: Sequence[str] | None = None,
    ranks: str | None = None,
    since: str | None = None,
) -> metric_answers.Curves:
    """The run's metrics to draw; see `metric_curves.curves`."""
    return metric_curves.curves(find_exact(id), attempt, points, names, ranks, since)


def usage(id: str, points: int = 120) -> metric_answers.Usage:
    """What the ranks take of their hosts, and their last signs of life; see `usage_curves.usage`."""
    return usage_curves.usage(find_exact(id), points)


def profile(id: str) -> metric_answers.StepProfile:
    """Where the time of the training steps goes, by rank; see `step_profile.profile`."""
    return step_profile.profile(find_exact(id))


def errors(id: str, attempt: int | None = None) -> list[rank_answers.RankError]:
    """How ranks failed: the root cause first, what followed from it last."""
    place = find_exact(id)
    found = failures.failures(place, attempt)
    return [
        {
            "rank": error.rank,
            "time": error.time,
            "kind": error.kind,
            "type": error.type,
            "message": error.message[:_MAX_TEXT],
            "text": error.text[:_MAX_TEXT],
            "frames": [_frame(frame) for frame in error.frames[-_MAX_FRAMES:] if isinstance(frame, Mapping)],
            "exit_code": error.exit_code,
            "signal_name": None if error.signal is None else signal_name(error.signal),
            "peak_memory_bytes": error.peak_memory_bytes,
            "collateral": error.collateral,
            "host": error.host,
        }
        for error in found
    ]


def card(id: str, attempt: int | None = None) -> rank_answers.FailureCard | None:
    """The card of a run that failed or was stopped, or of an earlier attempt; null if there is none."""
    found = failure_card.card(find_exact(id), attempt=attempt)
    if found is None:
        return None
    return {
        "title": found.title,
        "about": found.about,
        "what": found.what,
        "hints": [*found.hints],
        "causes": [*found.causes],
        "places": [*found.places],
        "others": [*found.others],
        "files": found.files,
        "parts": [
            {"kind": part.kind, "title": part.title, "text": part.text[:_MAX_TEXT]} for part in found.parts
        ],
    }


def _frame(frame: Mapping[str, Any]) -> rank_answers.Frame:
    line = frame.get("line")
    return {
        "file": str(frame.get("file") or ""),
        "label": str(frame.get("label") or frame.get("file") or ""),
        "line": line if isinstance(line, int) else None,
        "function": str(frame.get("function") or ""),
        "source": str(frame.get("source") or ""),
    }


def results(id: str) -> list[rank_answers.Result]:
    """What the ranks' results look like, equal ones together."""
    place = find_exact(id)
    status = reader.status(place)
    heard = said(place, status.attempt, rank_count(reader.job(place), status)).refresh()
    folded: dict[tuple[object, ...], list[int]] = {}
    for rank, found in sorted(heard.results.items()):
        folded.setdefault((*alike(found), found["outline"]), []).append(rank)
    return [_result(ranks, heard.results[ranks[0]]) for ranks in folded.values()]


def _result(ranks: list[int], found: Mapping[str, Any]) -> rank_answers.Result:
    told: rank_answers.Result = {
        "ranks": ranks,
        "repr": found["repr"],
        "error": found["error"],
        "bytes": found["bytes"],
    }
    outline: Outline | None = found["outline"]
    if outline is None:
        return told
    if outline.array is not None:
        return {**told, "array": str(outline.array)}
    return {**told, "cells": [_cell(cell) for cell in outline.cells]}


def _cell(cell: Cell) -> rank_answers.Cell:
    told: rank_answers.Cell = {"name": cell.name, "text": cell.text or ""}
    return {**told, "number": cell.number} if cell.is_number else told


def displays(
    id: str, attempt: int | None = None, start: int | None = None, count: int = 50
) -> media_answers.Displays:
    """What the ranks show now, equal ones together; by default the last displays."""
    return media_pages.displays(find_exact(id), attempt, start, count)


def media(id: str, attempt: int | None = None) -> media_answers.MediaList:
    """What was logged besides numbers: the names, and how many steps each has."""
    return media_pages.series(find_exact(id), attempt)


def media_page(
    id: str, name: str, start: int = 0, count: int = 1, attempt: int | None = None
) -> media_answers.MediaPage:
    """Some steps of what was logged under that name, by their index from 0."""
    return media_pages.logged(find_exact(id), name, start, count, attempt)


def content(
    id: str, rank: int, offset: int, bytes: int, hash: str, mime: str, attempt: int | None = None
) -> media_pages.Raw:
    """The bytes that a display or a logged picture names. Not to be trusted."""
    return media_pages.content(find_exact(id), rank, offset, bytes, hash, mime, attempt)


def environment(id: str) -> run_answers.Environment:
    """What a run was started with: Python, packages, the git commit of its notebook's folder."""
    return run_info.environment(find_exact(id))


def kept_stacks(id: str) -> rank_answers.Stacks:
    """The stacks that the run's ranks have written, in the newest attempt; asks nobody.

    Empty if none were written. The supervisor of a stalled run requests them by itself. The hint says how the
    ranks have parted.
    """
    place = find_exact(id)
    found, time = rank_stacks.kept(place)
    answer = as_answer(found)
    return {**answer, "hint": parting.of_running(place, reader.status(place)) or answer["hint"], "time": time}


def disk_size(id: str) -> run_answers.DiskSize:
    """What a run takes on the disk."""
    return {"id": id, "bytes": disk_bytes(find_exact(id).path)}
