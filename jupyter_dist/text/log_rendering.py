"""Rendering of logs in which a program moves the cursor up to rewrite lines: nested tqdm bars, Rich.

Such a program rewrites its bars many times a second: "up three lines", then three lines. A terminal shows
three lines, and a file contains thousands. `LogRendering` reads a log as it grows. It reports which bytes are
shown as they are, and which text replaces the others. It holds back lines at the end that may still be
rewritten. Released lines are final: pages of a view keep their numbers, and a printed line is never taken
back.

A log does not mark the end of a bar. A line is released when the cursor is further below it than the program
has moved up before. All lines are released when a new line begins below them.

A terminal can move up to the top of its screen (https://vt100.net/docs/vt510-rm/CUU.html). Here the limit is
`WINDOW` lines, and never beyond a released line. Other movements, such as scrolling or a jump to a row and
column, have no meaning in a log. They are ignored.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .safe import clean, column

__all__ = ["WINDOW", "LogRendering", "Piece", "unrolled"]

WINDOW = 100
_BEGIN = re.compile(rb"\x1b\[(?:[0-9]*[AF]|\?25l)")
_MOVE = re.compile(rb"\n|\x1b\[(?:(?P<count>[0-9]*)(?P<to>[ABEFJ])|\?25(?P<cursor>[hl]))")
_TORN = re.compile(
    rb"(?:\x1b(?:\[[0-9;:?]*)?|[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z"
)
"""Incomplete character or escape sequence at the end of what has been read."""
_BAR = re.compile(rb"\r?[^\x00-\x1f]*")
_ANY = 1 << 30
_ERASED = b"\x1b[2K"
_MAX_TAIL = 64 << 10
_MAX_PLAYED = 4 << 10


class Piece(NamedTuple):
    """Shown text for the bytes from the previous piece up to `end`: these bytes themselves, or `text`."""

    end: int
    text: bytes | None = None


class _Row:
    """A line that may still be rewritten. Until the cursor returns to it, `text` is what was written."""

    __slots__ = ("again", "end", "start", "text", "width")

    def __init__(self, start: int, text: bytes = b"") -> None:
        self.start, self.end = start, start
        self.text = text
        self.again = False
        self.width = _ANY
        """Upper limit of the shown text's width."""

    def come_back(self) -> None:
        if not self.again:
            self.again = True
            if _BAR.fullmatch(self.text):
                self.width = _width(self.text)

    def write(self, stretch: bytes, at: int) -> None:
        """Write from column `at` on, after the cursor has returned to the line."""
        if stretch.startswith(b"\r") and _BAR.fullmatch(stretch):
            width = _width(stretch)
            if width >= self.width:
                self.text = b""  # the new text covers the old one, as in most bars
            self.text += stretch
            self.width = max(width, self.width)
        else:
            self.text += b"\x1b[%dG" % (at + 1) + stretch
            self.width = _ANY
        if len(self.text) > _MAX_PLAYED:
            self.text = self.shown()
            if _BAR.fullmatch(self.text):
                self.width = _width(self.text)

    def shown(self) -> bytes:
        if not self.again:
            return self.text
        return clean(self.text.decode("utf-8", "replace")).encode("utf-8", "replace")


def _width(text: bytes) -> int:
    return len(text.decode("utf-8", "replace").lstrip("\r"))


class LogRendering:
    """Renderer of a log from `start` on.

    It takes bytes in pieces of any size, and returns `Piece`s in order.
    """

    def __init__(self, start: int = 0) -> None:
        self.read = start
        """Offset up to which the log has been read."""
        self.done = start
        """Offset up to which lines have been released."""
        self._torn = b""
        self._tail = bytearray()
        """The unfinished line, or its end if it is long, while no line is rewritten."""
        self._rows: list[_Row] = []
        """Lines that may be rewritten. Empty if there is no bar."""
        self._pieces: list[Piece] = []
        self._begin(0)

    def _begin(self, at: int) -> None:
        self._now = self.read
        """Offset up to which cursor movements have been processed."""
        self._at = at
        """Row of the cursor."""
        self._above = 0
        """How many lines above the first row the cursor would be, if there were rows."""
        self._reach = 0
        """How many lines above the last row the program has moved."""
        self._lines = 0
        """Newlines since the last movement up."""
        self._went_up = self._hidden = False
        self._spare = 0
        """Further lines to hold back: a program that hides the cursor may still erase the bar."""
        self._column = 0
        self._stretch = b""

    @property
    def rewriting(self) -> bool:
        return bool(self._rows)

    def feed(self, data: bytes) -> list[Piece]:
        """Read more of the log. Returns the pieces that are released."""
        data = self._torn + data
        base = self.read - len(self._torn)
        self.read = base + len(data)
        torn = _TORN.search(data, max(0, len(data) - 32))
        self._torn = torn[0] if torn else b""
        if torn:
            data = data[: torn.start()]
        at = 0
        while at < len(data):
            at = self._play(data, at, base) if self._rows else self._pass(data, at, base)
        if self._rows:
            self._now = base + len(data)
            self._let_go(len(self._rows) - 1 - self._reach - self._spare)
            if not self._hidden and not self._torn and self._lines > self._reach:
                self._end()
        return self._take()

    def skip(self, data: bytes) -> list[Piece]:
        """Read more of the log, and show it as written up to the end of its last line."""
        pieces = self.flush() if self._rows or self._torn else []
        self._tail.clear()
        whole = data.rfind(b"\n") + 1
        if whole:
            self._put(Piece(self.read + whole))
        self.read += len(data)
        return [*pieces, *self._take()]

    def flush(self) -> list[Piece]:
        """Release all lines, including the unfinished one. More bytes may still follow."""
        if self._rows:
            self._write(self._torn)
            self._now = self.read
            self._rows = self._without_blanks()
            self._let_go(len(self._rows), last=True)
        elif self.read > self.done:
            self._put(Piece(self.read))
        self._tail.clear()
        self._torn = b""
        return self._take()

    def rest(self) -> list[bytes]:
        """Return the lines that are held back as they look now. The last one is the unfinished line."""
        if self._rows:
            return [row.shown() for row in self._without_blanks()]
        return [bytes(self._tail) + self._torn] if self._tail or self._torn else []

    def _take(self) -> list[Piece]:
        taken, self._pieces = self._pieces, []
        return taken

    def _put(self, piece: Piece) -> None:
        if piece.text is None and self._pieces and self._pieces[-1].text is None:
            self._pieces.pop()
        self._pieces.append(piece)
        self.done = piece.end

    def _pass(self, data: bytes, at: int, base: int) -> int:
        """Process bytes while nothing is rewritten.

        Whole lines are shown as they are, up to the start of a bar.
        """
        found = _BEGIN.search(data, at)
        end = len(data) if found is None else found.start()
        whole = data.rfind(b"\n", at, end) + 1
        if found is None:
            if whole:
                self._put(Piece(base + whole))
                self._tail.clear()
            self._tail += data[max(at, whole, end - _MAX_TAIL) :]
            if len(self._tail) > 2 * _MAX_TAIL:
                del self._tail[:-_MAX_TAIL]
            return end
        first = whole or at
        for _ in range(0 if found[0].endswith(b"l") else WINDOW):
            if first <= at:
                break
            first = max(at, data.rfind(b"\n", at, first - 1) + 1)
        if first > at:
            self._put(Piece(base + first))
            self._tail.clear()
        # Bytes that were not released are the beginning of the first of these lines.
        begun, ends = bytes(self._tail), base + first
        self._tail.clear()
        for line in data[first:end].split(b"\n"):
            row = _Row(self._rows[-1].end if self._rows else self.done, begun + line)
            begun, ends = b"", ends + len(line) + 1
            row.end = ends
            self._rows.append(row)
        self._begin(len(self._rows) - 1)
        self._stretch = self._rows[-1].text
        return end

    def _play(self, data: bytes, at: int, base: int) -> int:
        """Process bytes while lines are rewritten.

        Returns the offset of the bar's end, or of the data's end.
        """
        for move in _MOVE.finditer(data, at):
            self._write(data[at : move.start()])
            at = move.end()
            if move["to"]:
                self._move(move["to"], int(move["count"][:6] or b"0"))
            elif move["cursor"]:
                self._hidden = move["cursor"] == b"l"
                self._spare = 1
                if not self._hidden and not self._went_up:
                    self._reach = 0
            elif self._new_line(base + at):
                return at
        self._write(data[at:])
        return len(data)

    def _write(self, stretch: bytes) -> None:
        if not stretch:
            return
        row = self._rows[self._at]
        if row.again:
            was = self._where()
            erased = stretch.rfind(_ERASED)
            if erased >= 0:
                was = column(stretch[:erased].decode("utf-8", "replace"), was)
                stretch, row.text = stretch[erased + len(_ERASED) :], b""
            self._column = was
            row.write(stretch, was)
        else:
            self._column = self._where()
            row.text += stretch
        self._stretch = stretch

    def _where(self) -> int:
        """Return the cursor's column. It is computed only when needed."""
        if self._stretch:
            self._column = column(self._stretch.decode("utf-8", "replace"), self._column)
            self._stretch = b""
        return self._column

    def _new_line(self, end: int) -> bool:
        """Move to the next line. Returns whether the bar has ended."""
        self._now = end
        self._rows[self._at].end = end
        self._at += 1
        self._lines += 1
        self._above = self._column = 0
        self._stretch = b""
        if self._at == len(self._rows):
            self._rows.append(_Row(end))
        elif (row := self._rows[self._at]).text or row.again:
            row.come_back()
        else:
            row.start = end
        if self._hidden and not self._went_up:
            # A program that hides the cursor is about to draw a bar. Its first version belongs to the bar.
            self._reach = min(WINDOW, max(self._reach, self._at))
        self._let_go(self._at - self._reach - self._spare)
        return self._lines > self._reach + WINDOW and self._end()

    def _move(self, to: bytes, count: int) -> None:
        row = self._rows[self._at]
        if row.text or to == b"J":
            row.come_back()
        if to in b"AF":
            self._go_up(max(1, count))
        elif to in b"BE":
            self._at = min(len(self._rows) - 1, self._at + max(1, count))
            self._above = 0
        elif count == 0:
            row.text += b"\x1b[%dG\x1b[K" % (self._where() + 1)
            del self._rows[self._at + 1 :]
        if to in b"EF":
            self._column, self._stretch = 0, b""
        self._rows[self._at].come_back()

    def _go_up(self, count: int) -> None:
        to = self._at - self._above - count
        self._reach = min(WINDOW, max(self._reach, len(self._rows) - 1 - to))
        self._at, self._above = max(0, to), max(0, -to)
        self._lines = 0
        self._went_up = True

    def _end(self) -> bool:
        """End the bar if a new line has begun below it and is still empty.

        Returns whether the bar has ended.
        """
        last = self._rows[-1]
        if self._at < len(self._rows) - 1 or last.again or last.text:
            return False
        self._let_go(len(self._rows) - 1)
        if self.done < self._now:
            self._put(Piece(self._now, b""))
        self._rows = []
        return True

    def _let_go(self, count: int, last: bool = False) -> None:
        """Release the first `count` rows. `last`: these are all rows, and the last one has no newline yet."""
        text: list[bytes] = []
        for number, row in enumerate(self._rows[: max(0, count)], 1):
            unfinished = last and number == count
            if row.again or unfinished or row.start < self.done:
                text.append(row.shown() + (b"" if unfinished else b"\n"))
                continue
            if row.start > self.done or text:
                self._put(Piece(row.start, b"".join(text)))
                text = []
            self._put(Piece(row.end))
        if text:
            self._put(Piece(self._now, b"".join(text)))
        if count > 0:
            del self._rows[:count]
            self._at = max(0, self._at - count)

    def _without_blanks(self) -> list[_Row]:
        """Return the rows without empty ones below the cursor."""
        end = len(self._rows)
        while end > self._at + 1 and not self._rows[end - 1].shown().strip():
            end -= 1
        return self._rows[:end]


def unrolled(data: bytes) -> bytes:
    """Return the shown text of a whole log, or of a part of one."""
    unroll = LogRendering()
    pieces, parts = [*unroll.feed(data), *unroll.flush()], list[bytes]()
    start = 0
    for end, text in pieces:
        parts.append(data[start:end] if text is None else text)
        start = end
    return b"".join(parts)
