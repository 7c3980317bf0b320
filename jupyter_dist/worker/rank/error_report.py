"""The report of a cell's error: `error.json` for the views, and the traceback in the log for people."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .. import debugger, layout
from ..boot import Terminated
from . import surroundings

__all__ = ["forget_room", "keep_error", "keep_exit", "keep_room", "limited", "print_error", "room"]

_REPR_LIMIT = 10_000
_ERROR_BYTES = 32_768
_PLACE = f'File "{os.path.dirname(os.path.dirname(__file__))}{os.sep}'
_OUR_FRAMES = re.compile(rf"^([ |]*){re.escape(_PLACE)}.*\n(?:\1 .*\n)*", re.MULTILINE)
"""A frame of jupyter-dist in a text, with its source lines, which are indented further."""


def limited(text: str) -> str:
    if len(text) <= _REPR_LIMIT:
        return text
    half = _REPR_LIMIT // 2
    return f"{text[:half]} … {len(text) - _REPR_LIMIT:,} characters left out … {text[-half:]}"


def print_error(error: BaseException, labels: Mapping[str, str]) -> None:
    report = traceback.TracebackException.from_exception(error)
    for _ in _shown(report, labels):  # iterating removes the frames of jupyter-dist
        pass
    print(_labelled("".join(report.format()), labels), end="", file=sys.stderr, flush=True)


def keep_error(rank_folder: Path, error: BaseException, labels: Mapping[str, str]) -> None:
    """Write the traceback to `error.json`, for the views, and then to the log, for people.

    A reader who sees the traceback in the log can then rely on `error.json`.
    """
    when = debugger.failed_at()
    asked = _without_the_end(error)
    report = traceback.TracebackException.from_exception(error)
    frames = list(_shown(report, labels))
    text = debugger.quit_text(error) or _labelled("".join(report.format()), labels)
    try:
        message = str(error)
    except Exception:
        message = "<its str() raised as well>"
    data = {
        "rank": int(rank_folder.name),
        "time": when,
        "type": type(error).__qualname__,
        "message": limited(_labelled(message, labels)),
        "text": limited(text),
        "frames": frames,
        "exit_code": 1,
        "asked_to_end": asked,
        "around": surroundings.of(error),
    }
    _write(rank_folder, data)
    with contextlib.suppress(OSError):  # the error may report a full disk
        print(text, end="", file=sys.stderr, flush=True)


def keep_exit(rank_folder: Path, error: SystemExit, code: int, labels: Mapping[str, str]) -> None:
    """Write to `error.json` where the cell has called `sys.exit` with another code than 0, and its text."""
    report = traceback.TracebackException.from_exception(error)
    data = {
        "rank": int(rank_folder.name),
        "time": debugger.failed_at(),
        "type": "SystemExit",
        "message": "" if isinstance(error.code, int) else limited(str(error.code)),
        "text": "",
        "frames": list(_shown(report, labels)),
        "exit_code": code,
    }
    _write(rank_folder, data)


def _write(rank_folder: Path, data: Mapping[str, Any]) -> None:
    prepared = room(rank_folder)
    with open(os.open(prepared, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(json.dumps(data).encode())
        file.truncate()
    os.replace(prepared, rank_folder / layout.ERROR)


def _without_the_end(error: BaseException) -> bool:
    """Remove the request to end from an error's history, because jupyter-dist raised it.

    Return whether it was there.
    """
    seen: set[int] = set()
    asked = False
    while id(error) not in seen:
        seen.add(id(error))
        if isinstance(error.__cause__, Terminated):
            error.__cause__, asked = None, True
        if isinstance(error.__context__, Terminated):
            error.__context__, asked = None, True
        error = error.__cause__ or error.__context__ or error
    return asked


def keep_room(rank_folder: Path) -> None:
    """Reserve the space of an `error.json`, for the case that the disk fills up."""
    with contextlib.suppress(OSError):
        fd = os.open(room(rank_folder), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, _ERROR_BYTES)
        finally:
            os.close(fd)


def forget_room(rank_folder: Path) -> None:
    """Free the space that `keep_room` has reserved."""
    room(rank_folder).unlink(missing_ok=True)


def room(rank_folder: Path) -> Path:
    """Return the file that reserves the space of an `error.json`, if it exists."""
    return rank_folder / layout.hidden(layout.ERROR)


def _labelled(text: str, labels: Mapping[str, str]) -> str:
    """Replace the files of cells in a traceback by their labels, and remove the frames of jupyter-dist.

    A message can contain a traceback, as a DataLoader's does.
    """
    if _PLACE in text:
        text = _OUR_FRAMES.sub("", text)
    for file, label in labels.items():
        text = text.replace(f'File "{file}"', f'File "{label}"')
    return text


def _shown(report: traceback.TracebackException, labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Remove the frames of jupyter-dist from a traceback and label its cells, causes included."""
    for part in _chain(report, set()):
        kept = []
        for frame in part.stack:
            if _is_ours(frame.filename):
                continue
            file = frame.filename
            source = frame.line  # read now: the label below is not a file
            frame.filename = labels.get(file, file)
            kept.append(frame)
            if part is report:
                yield {
                    "file": file,
                    "label": frame.filename,
                    "line": frame.lineno,
                    "function": frame.name,
                    "source": source,
                }
        part.stack[:] = kept


def _chain(report: traceback.TracebackException, seen: set[int]) -> Iterable[traceback.TracebackException]:
    if id(report) in seen:
        return
    seen.add(id(report))
    yield report
    for other in (report.__cause__, report.__context__, *(getattr(report, "exceptions", None) or ())):
        if other is not None:
            yield from _chain(other, seen)


def _is_ours(filename: str) -> bool:
    return filename.startswith(os.path.dirname(os.path.dirname(__file__)) + os.sep)
