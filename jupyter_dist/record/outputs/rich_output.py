"""Reader of rich output: MIME bundles in events, and the bytes that they refer to.

User code wrote all of it, possibly on machines of others. So shapes are checked, and bytes count only if
they match the hash in the event. Missing bytes may arrive later, because an agent sends each file by itself.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...folder import RankFolder
from ...worker.output.media import MEDIA_TYPES, form_of, is_data
from .. import reader

__all__ = [
    "KINDS",
    "PICTURES",
    "Part",
    "ShownOutput",
    "compact",
    "contents",
    "data_url",
    "decoded",
    "from_event",
    "read",
    "standing",
]

KINDS = (b'"kind": "display"', b'"kind": "clear_output"', b'"kind": "media"')
"""Beginnings of the relevant lines in `events.jsonl`, after their number and time."""
PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml")
_MOST_BYTES = 100_000_000
_MOST_NAME = 200


class Part(NamedTuple):
    """One MIME type of a bundle.

    Small content is in `text` or `json`. Other content is at `offset` in `media.bin`.
    """

    mime: str
    text: str | None = None
    json: Any = None
    offset: int = 0
    bytes: int = 0
    hash: str = ""

    @property
    def content_key(self) -> str:
        """Return a key that is equal for parts with the same content."""
        return self.hash or f"{self.mime}:{json.dumps([self.text, self.json], sort_keys=True)}"


class ShownOutput(NamedTuple):
    """One display, one `clear_output`, or one thing logged with `dist.log` at a step."""

    kind: str
    seq: int
    time: float
    parts: tuple[Part, ...] = ()
    metadata: Mapping[str, Any] = {}
    at: int = 0
    text_bytes: int = 0
    line: int | None = None
    """Line of the cell that showed it."""
    display_id: str | None = None
    update: bool = False
    result: bool = False
    wait: bool = False
    name: str = ""
    step: int = 0
    type: str = ""

    @property
    def end(self) -> int:
        """Return how many bytes of `media.bin` the output needs."""
        return max((part.offset + part.bytes for part in self.parts), default=0)

    @property
    def content_key(self) -> str:
        """Return a key that is equal for displays with the same content."""
        parts = [part for part in self.parts if is_data(part.mime)] or self.parts
        return "|".join(sorted(f"{part.mime} {part.content_key}" for part in parts))


def from_event(event: Mapping[str, Any]) -> ShownOutput | None:
    """Parse the object of a line of `events.jsonl`. Returns None for other kinds and for invalid data."""
    try:
        kind = event["kind"]
        seq, when = int(event["seq"]), float(event["time"])
        if kind == "clear_output":
            return ShownOutput(kind, seq, when, at=_count(event.get("at")), wait=bool(event.get("wait")))
        if kind not in ("display", "media"):
            return None
        metadata = event.get("metadata")
        found = ShownOutput(
            kind,
            seq,
            when,
            tuple(_part(str(mime)[:_MOST_NAME], told) for mime, told in event["data"].items()),
            metadata if isinstance(metadata, dict) else {},
        )
        if kind == "media":
            if event["type"] not in MEDIA_TYPES:
                return None
            name, step = str(event["name"])[:_MOST_NAME], int(event["step"])
            return found._replace(name=name, step=step, type=event["type"])
        display_id, line = event.get("display_id"), event.get("line")
        return found._replace(
            at=_count(event.get("at")),
            text_bytes=_count(event.get("text_bytes")),
            line=None if line is None else _count(line),
            display_id=None if display_id is None else str(display_id)[:_MOST_NAME],
            update=bool(event.get("update")),
            result=bool(event.get("result")),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def _part(mime: str, told: Mapping[str, Any]) -> Part:
    if "text" in told:
        return Part(mime, text=str(told["text"]))
    if "json" in told:
        return Part(mime, json=told["json"])
    offset, size, name = _count(told["offset"]), _count(told["bytes"]), str(told["hash"])
    if size > _MOST_BYTES or len(name) != 64:
        raise ValueError("no content of ours")
    return Part(mime, offset=offset, bytes=size, hash=name)


def _count(value: Any) -> int:
    found = int(value or 0)
    if not 0 <= found < 1 << 53:
        raise ValueError("no place in a file")
    return found


def standing(shown: Iterable[ShownOutput]) -> list[ShownOutput]:
    """Return the displays of a rank that remain visible.

    Updates are applied, and cleared displays are left out.
    """
    return _replayed(shown)[0]


def compact(shown: list[ShownOutput]) -> list[ShownOutput]:
    """Return a short list that replaces `shown` in later calls of `standing`. A loop may draw for days."""
    found, clear = _replayed(shown)
    return found if clear is None else [*found, clear]


def _replayed(shown: Iterable[ShownOutput]) -> tuple[list[ShownOutput], ShownOutput | None]:
    """Return the visible displays, and the `clear_output(wait=True)` that waits for the next display."""
    found: list[ShownOutput] = []
    clear: ShownOutput | None = None
    for one in shown:
        if one.kind == "clear_output":
            found, clear = (found, one) if one.wait else ([], None)
        elif one.kind == "display" and one.update:
            found = [
                old._replace(parts=one.parts, metadata=one.metadata)
                if old.display_id is not None and old.display_id == one.display_id
                else old
                for old in found
            ]
        elif one.kind == "display":
            found, clear = ([*found, one] if clear is None else [one]), None
    return found, clear


def contents(path: Path, part: Part) -> bytes | None:
    """Read a part's bytes from a rank's `media.bin`.

    Returns None if they are missing or do not match the hash.
    """
    if part.text is not None:
        return part.text.encode()
    if not part.hash:
        return json.dumps(part.json).encode()
    try:
        with path.open("rb") as file:
            data = os.pread(file.fileno(), part.bytes, part.offset)
    except OSError:
        return None
    return data if hashlib.sha256(data).hexdigest() == part.hash else None


def decoded(path: Path, shown: ShownOutput) -> dict[str, Any]:
    """Return the content by MIME type: a picture's bytes, a text, or parsed JSON. Lost parts are left out."""
    found: dict[str, Any] = {}
    for part in shown.parts:
        data = contents(path, part)
        if data is None:
            continue
        form = form_of(part.mime)
        if form == "binary":
            found[part.mime] = data
        elif form == "text":
            found[part.mime] = data.decode("utf-8", "replace")
        else:
            try:
                found[part.mime] = json.loads(data)
            except ValueError:
                continue
    return found


def data_url(mime: str, data: bytes) -> str:
    """Return a URL for an `<img>`. In an `<img>` even an SVG runs no scripts and loads nothing."""
    return f"data:{mime};base64,{base64.b64encode(data).decode()}"


def read(files: RankFolder, kinds: Sequence[bytes] = KINDS) -> list[ShownOutput]:
    """Read the rich output of a rank, in order. Reads the rank's whole events file."""
    try:
        data = files.events.read_bytes()
    except OSError:
        return []
    lines = [line for line in data.split(b"\n") if any(kind in line[:120] for kind in kinds)]
    shown = map(from_event, reader.parse_lines(lines))
    return [one for one in shown if one is not None]
