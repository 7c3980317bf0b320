"""A rank's displays and logged media: bytes in its `media.bin`, and events that refer to them.

The bytes are written before the event. An event without its bytes means that the rank was killed, or that an
agent has not sent the bytes yet. The same content is written once. Two limits apply. One limits what the view
shows at a time, which updates replace and `clear_output` removes. The other limits what is written in total.
Past a limit the rank writes one note, and nothing more of that kind.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .. import layout, listing
from . import events

__all__ = ["MEDIA_TYPES", "Form", "MediaWriter", "encoded", "form_of", "is_data", "of_rank"]

Form = Literal["text", "json", "binary"]

MEDIA_TYPES = ("image", "text", "table", "histogram")
"""The kinds of values that `dist.log` accepts besides numbers."""

_INLINE_BYTES = 2048
_MOST_TYPES = 20
_SHOWN_BYTES, _SHOWN = 10_000_000, 200
"""The limits of displays at a time."""
_WRITTEN_BYTES, _WRITTEN = 100_000_000, 20_000
"""The limits of displays in total, including updates and removed displays.

The media of `dist.log` have the same limits again.
"""


def form_of(mime: str) -> Form:
    """Return how a bundle stores content of a MIME type: as text, as a JSON value, or as bytes."""
    if mime == "application/json" or mime.endswith(("+json", ".json")):
        return "json"
    if mime.startswith("text/") or mime in ("image/svg+xml", "application/javascript"):
        return "text"
    return "binary"


def is_data(mime: str) -> bool:
    """Return whether a MIME type is the data of a chart.

    Other forms of the chart, such as HTML, are made from the data and may differ each time.
    """
    return mime.startswith("application/vnd.") and mime.endswith("json")


def encoded(mime: str, value: Any) -> bytes:
    """Return the content as bytes. Binary content may be base64, as formatters of pictures return it.

    Raises TypeError or ValueError for content that the MIME type does not allow.
    """
    form = form_of(mime)
    if form == "json":
        return _json(value).encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (list, tuple)):  # a list of lines, as in a notebook's file
        value = "".join(map(str, value))
    if not isinstance(value, str):
        raise TypeError(f"{mime} is {type(value).__name__}, not text or bytes")
    if form == "text":
        return value.encode("utf-8", "replace")
    import base64

    return base64.b64decode(value)


def _json(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False, default=_plain_value)
    except ValueError:
        # JSON has no NaN and no infinity. One of them would make the answer with all displays invalid.
        text = json.dumps(value, default=_plain_value)
        return json.dumps(json.loads(text, parse_constant=str))


def _plain_value(value: Any) -> Any:
    """Return a number or an array of a library, or a time, as a builtin. A notebook converts them as well."""
    for name in ("tolist", "isoformat"):
        convert = getattr(value, name, None)
        if callable(convert):
            return convert()
    raise TypeError(f"{type(value).__name__} is not JSON")


@dataclass
class _Budget:
    """The amount of one kind that was written so far."""

    what: str
    bytes: int = 0
    number: int = 0
    spent: bool = False


@dataclass
class _Standing:
    """The displays in the view: the size of each in bytes, and its id."""

    sizes: list[tuple[str | None, int]] = field(default_factory=list)
    clear_at_next: bool = False

    def after(self, display_id: str | None, size: int, update: bool) -> list[tuple[str | None, int]]:
        if update:  # nothing is shown if no display has the id
            return [(known, size if known == display_id else old) for known, old in self.sizes]
        before = [] if self.clear_at_next else self.sizes
        return [*before, (display_id, size)]


class MediaWriter:
    """A writer for one rank. Every method returns when all is in the files.

    It returns False past a limit, and on a full disk. The writer of events reports what a full disk has lost.
    """

    def __init__(self, events_path: str) -> None:
        folder = os.path.dirname(events_path)
        self._path = os.path.join(folder, layout.MEDIA)
        self._output = os.path.join(folder, layout.OUTPUT)
        self._known: dict[str, dict[str, Any]] = {}
        self._standing = _Standing()
        self._displays, self._media = _Budget("displays"), _Budget("media of dist.log")

    def output_size(self) -> int:
        """Return the size of the rank's log in bytes. The next display is shown after that position."""
        import sys

        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        return listing.size(self._output)

    def display(
        self,
        data: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
        *,
        display_id: str | None = None,
        update: bool = False,
        at: int | None = None,
        text_bytes: int = 0,
        line: int | None = None,
        result: bool = False,
    ) -> bool:
        """Write a MIME bundle, shown after the log's byte `at` (default: its end).

        `text_bytes`: how many bytes of the log from there on replace it in views of text. `line`: the line of
        the cell that shows it. `result`: the bundle is the value of the cell's last expression.
        """
        contents = _contents(data)
        size = sum(len(content) for _, content in contents)
        standing = self._standing.after(display_id, size, update)
        if self._displays.spent:
            return False
        if len(standing) > _SHOWN or sum(each for _, each in standing) > _SHOWN_BYTES:
            self._displays.spent = True
            _tell(
                f"this rank has shown {_SHOWN} displays or {_SHOWN_BYTES // 1000000} MB, which is the "
                "limit. It keeps no more"
            )
            return False
        if not self._has_room(self._displays, size):
            return False
        parts = self._stored("display", contents)
        if parts is None:
            return False
        self._standing = _Standing(standing)
        self._write(
            "display",
            {
                "at": self.output_size() if at is None else at,
                "text_bytes": text_bytes,
                "line": line,
                "display_id": display_id,
                "update": update,
                "result": result,
                "data": parts,
                "metadata": _plain(metadata),
            },
        )
        return True

    def clear(self, wait: bool = False) -> bool:
        """Remove what the view shows; with `wait`, at the next display."""
        if not self._has_room(self._displays, 0):
            return False
        if wait:
            self._standing.clear_at_next = True
        else:
            self._standing = _Standing()
        self._write("clear_output", {"wait": bool(wait), "at": self.output_size()})
        return True

    def media(
        self,
        name: str,
        step: int,
        type: str,
        data: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
    ) -> bool:
        """Write a picture, text, table or histogram of one step, as `dist.log` accepts them."""
        if type not in MEDIA_TYPES:
            raise ValueError(f"type is {type!r}, not one of {', '.join(MEDIA_TYPES)}")
        contents = _contents(data)
        if not self._has_room(self._media, sum(len(content) for _, content in contents)):
            return False
        parts = self._stored("media", contents)
        if parts is None:
            return False
        self._write(
            "media",
            {
                "name": str(name),
                "step": int(step),
                "type": type,
                "data": parts,
                "metadata": _plain(metadata),
            },
        )
        return True

    def _has_room(self, budget: _Budget, size: int) -> bool:
        if budget.spent:
            return False
        if budget.bytes + size > _WRITTEN_BYTES or budget.number >= _WRITTEN:
            budget.spent = True
            _tell(
                f"this rank has written {_WRITTEN_BYTES // 1000000} MB or {_WRITTEN:,} of its "
                f"{budget.what}, which is the limit. It keeps no more"
            )
            return False
        budget.bytes += size
        budget.number += 1
        return True

    def _stored(self, kind: str, contents: list[tuple[str, bytes]]) -> dict[str, Any] | None:
        """Write the contents, and return the parts of the event. Returns None if they cannot be written."""
        try:
            return {mime: self._part(mime, content) for mime, content in contents}
        except OSError as error:
            writer = events.writer()
            if writer is not None:
                writer.lose(kind, error)
            return None

    def _part(self, mime: str, content: bytes) -> dict[str, Any]:
        form = form_of(mime)
        if form != "binary" and len(content) <= _INLINE_BYTES:
            text = content.decode("utf-8", "replace")
            return {"text": text} if form == "text" else {"json": json.loads(text)}
        import hashlib  # imported late, because it loads OpenSSL and would slow the start of a rank

        name = hashlib.sha256(content).hexdigest()
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = {
                "offset": _append(self._path, content),
                "bytes": len(content),
                "hash": name,
            }
        return known

    @staticmethod
    def _write(kind: str, data: Mapping[str, Any]) -> None:
        writer = events.writer()
        if writer is not None:
            writer.event(kind, data)


def _tell(text: str) -> None:
    writer = events.writer()
    if writer is not None:
        writer.note(text)


def _contents(data: Mapping[str, Any]) -> list[tuple[str, bytes]]:
    return [
        (str(mime), encoded(str(mime), value))
        for mime, value in list(data.items())[:_MOST_TYPES]
        if value is not None
    ]


def _plain(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the metadata that is JSON and small. Metadata only describes how to draw."""
    found: dict[str, Any] = {}
    for name, value in (metadata or {}).items():
        with contextlib.suppress(TypeError, ValueError):
            if len(json.dumps(value, allow_nan=False)) <= _INLINE_BYTES:
                found[str(name)] = value
    return found


def _append(path: str, content: bytes) -> int:
    """Append the content and return its offset.

    A process that the rank has forked may write at the same time.
    """
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Content that fits only in part is written once more, as a whole: another process may have appended
        # meanwhile. On a full disk the second write raises.
        while os.write(fd, content) < len(content):
            pass
        return os.lseek(fd, 0, os.SEEK_CUR) - len(content)
    finally:
        os.close(fd)


_of_rank: tuple[str, MediaWriter] | None = None


def of_rank() -> MediaWriter | None:
    """Return this rank's writer, or None outside a run."""
    global _of_rank
    writer = events.writer()
    if writer is None:
        return None
    if _of_rank is None or _of_rank[0] != writer.path:
        _of_rank = (writer.path, MediaWriter(writer.path))
    return _of_rank[1]
