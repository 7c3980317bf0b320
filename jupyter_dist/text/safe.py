"""Cleaning of a rank's output before it is shown: colours stay, all other control sequences are removed.

Output of ranks is untrusted text, and much of it is written for a terminal. A progress bar rewrites its line
with carriage returns, backspaces and "erase to the end of the line". `clean` applies these to one line of
cells and returns what a terminal would show at the end.
"""

from __future__ import annotations

import html
import re

__all__ = ["both_ends", "clean", "clean_lines", "column", "one_line", "preformatted"]

# Bidirectional overrides can make a line read differently from its characters. Line separators would split
# a line that was counted as one.
_UNSAFE = "\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ud800-\udfff"
_SPECIAL = re.compile(f"[{_UNSAFE}]")
_TOKEN = re.compile(
    rf"(?P<text>[^{_UNSAFE}]+)"
    r"|\x1b\[(?P<sgr>[0-9;:]*)m"
    r"|\x1b\[(?P<count>[0-?]*)[ -/]*(?P<final>[@-~])"
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # a title, a link, a device string: with its content
    r"|\x1b[ -/]*[0-~]?"
    r"|(?P<control>.)",
    re.DOTALL,
)
_MAX_SCAN = 8192
_MAX_SGR = 48
_RESET = "\x1b[0m"


def clean(text: str, *, limit: int = 4096, colour: bool = True) -> str:
    """Return one line as a terminal shows it, at most `limit` characters wide. "…" marks a cut.

    Colours (SGR) are kept unless `colour` is false. They always end with the line.
    """
    if not _SPECIAL.search(text):
        return text if len(text) <= limit else text[: limit - 1] + "…"
    if len(text) > _MAX_SCAN and "\r" in text[-_MAX_SCAN:]:
        # The text is a progress bar's whole history. Only its last states are visible.
        text = text[text.index("\r", len(text) - _MAX_SCAN) :]
    return _Cells(limit).play(text).show(colour)


def clean_lines(text: str, *, limit: int = 4096, colour: bool = False) -> str:
    """Clean several lines, each by itself."""
    return "\n".join(clean(line, limit=limit, colour=colour) for line in text.split("\n"))


def one_line(text: str, limit: int) -> str:
    """Clean a repr, a message or a name: no colours, and one blank for line breaks and runs of blanks."""
    return clean(" ".join(text[: 8 * limit].split()), limit=limit, colour=False)


def both_ends(text: str, limit: int) -> str:
    """Clean a text as `one_line` does. Of a longer text, the middle is left out."""
    line = one_line(text, 8 * limit) if len(text) <= 8 * limit else ""
    if line and len(line) <= limit:
        return line
    head, tail = one_line(text, limit * 3 // 5 - 2).removesuffix("…"), one_line(text[-4 * limit :], 4 * limit)
    return f"{head} … {tail[-(limit * 2 // 5 - 2) :]}"


def column(text: str, start: int) -> int:
    """Return the cursor's column after `text` was written from the column `start` on."""
    behind = text.rfind("\r") + 1
    return _Cells(0, 0 if behind else start).play(text[behind:]).at


class _Cells:
    """One line of a terminal: characters with their colours, and a cursor."""

    def __init__(self, limit: int, at: int = 0) -> None:
        self._limit = limit
        self._cells: list[tuple[str, str]] = []
        self.at = at
        self._sgr: tuple[str, ...] = ()
        self._overlong = False

    def play(self, text: str) -> _Cells:
        for token in _TOKEN.finditer(text):
            kind = token.lastgroup
            if kind == "text":
                self._write(token["text"])
            elif kind == "sgr":
                self._colour(token["sgr"])
            elif kind == "final":
                self._move(token["final"], token["count"])
            elif kind == "control":
                self._control(token["control"])
        return self

    def _write(self, text: str) -> None:
        room = self._limit - self.at
        if len(text) > room:
            self._overlong = True
        if room > 0:
            sgr = "".join(self._sgr)
            self._pad()
            kept = text[:room]
            self._cells[self.at : self.at + len(kept)] = [(sgr, char) for char in kept]
        self.at += len(text)

    def _pad(self) -> None:
        missing = min(self.at, self._limit) - len(self._cells)
        self._cells.extend([("", " ")] * missing)

    def _colour(self, codes: str) -> None:
        head, _, rest = codes.partition(";")
        if not head.strip("0"):
            self._sgr, codes = (), rest
        if codes and len(codes) <= _MAX_SGR:
            self._sgr = (*self._sgr[-3:], f"\x1b[{codes}m")

    def _control(self, char: str) -> None:
        if char == "\r":
            self.at = 0
        elif char == "\b":
            self.at = max(0, self.at - 1)
        elif char in "\u2028\u2029":
            self._write(" ")
        elif "\ud800" <= char <= "\udfff":
            self._write("\ufffd")

    def _move(self, final: str, count: str) -> None:
        number = int(count) if count.isascii() and count.isdigit() and len(count) < 6 else None
        if final == "K":
            self._erase(number or 0)
        elif final == "C":
            self.at += number or 1
        elif final == "D":
            self.at = max(0, self.at - (number or 1))
        elif final == "G":
            self.at = max(0, (number or 1) - 1)

    def _erase(self, how: int) -> None:
        if how in (1, 2):
            end = min(self.at + 1, len(self._cells))
            self._cells[:end] = [("", " ")] * end
        if how in (0, 2):
            del self._cells[self.at :]
            self._overlong = self._overlong and self.at > self._limit

    def show(self, colour: bool) -> str:
        cells = self._cells
        while cells and cells[-1] == ("", " "):
            cells.pop()
        if self._overlong:
            cells[self._limit - 1 :] = [("", "…")]
        if not colour:
            return "".join(char for _, char in cells)
        parts, current = [], ""
        for sgr, char in cells:
            if sgr != current:
                parts.append((_RESET if current else "") + sgr)
                current = sgr
            parts.append(char)
        return "".join(parts) + (_RESET if current else "")


def preformatted(text: str, style: str) -> str:
    """Return text as HTML that looks like code in every front-end. Some set `pre` in another font."""
    look = "background:transparent;color:inherit;font-family:var(--jp-code-font-family,monospace)"
    return f'<pre style="{style};{look}">{html.escape(text)}</pre>'
