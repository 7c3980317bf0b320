"""Parser of faulthandler's output: dumps of all threads of a process, one after another in a file.

The format is CPython's, https://docs.python.org/3/library/faulthandler.html. Newer versions write a thread's
name in brackets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Dump", "Frame", "Thread", "escaped", "parse"]

_HEADER = re.compile(
    r"(?:(?P<only>Stack)|(?P<current>Current thread|Thread) 0x[0-9a-fA-F]+(?: \[(?P<name>.*)\])?) "
    r"\(most recent call first\):"
)
_FRAME = re.compile(r'  File (?:"(?P<file>.*)"|\?\?\?), line (?P<line>\d+|\?\?\?) in (?P<function>.*)')


@dataclass(frozen=True)
class Frame:
    """One call. `label` is the shown name of the file: `In[3]` for a cell, else its path."""

    file: str
    line: int | None
    function: str
    label: str = ""
    source: str = ""

    def __str__(self) -> str:
        where = f"{self.label or self.file}"
        if self.line is not None:
            where += f", line {self.line}"
        text = f"{where}, in {self.function}" if self.file else self.function
        return f"{text}\n    {self.source}" if self.source else text


@dataclass(frozen=True)
class Thread:
    """Frames of one thread, the most recent call last as in a traceback.

    `is_input`: the thread reads the input of a training of TensorFlow.
    """

    frames: tuple[Frame, ...]
    name: str = ""
    current: bool = False
    is_input: bool = False


@dataclass(frozen=True)
class Dump:
    """All threads of a rank at one moment, the main thread first.

    `is_partial`: only the main thread; the others may follow in a dump of their own.
    """

    threads: tuple[Thread, ...]
    is_partial: bool = False

    @property
    def main(self) -> Thread:
        return self.threads[0]


def parse(text: str) -> list[Dump]:
    """Return the dumps in a `stacks.txt`, oldest first. Lines outside a dump are skipped.

    Within a dump an empty line separates two threads. So a header without an empty line before it begins a
    dump.
    """
    dumps: list[list[Thread]] = []
    partial: list[bool] = []
    frames: list[Frame] = []
    header: re.Match[str] | None = None
    apart = False

    def close() -> None:
        if header is not None:
            thread = Thread(tuple(reversed(frames)), header["name"] or "", header["current"] != "Thread")
            dumps[-1].append(thread)

    for line in text.split("\n"):
        found = _HEADER.fullmatch(line)
        if found:
            close()
            if not dumps or not apart:
                dumps.append([])
                partial.append(bool(found["only"]))
            header, frames = found, []
        elif header is not None:
            frame = _frame(line)
            if frame is not None:
                frames.append(frame)
        apart = not line
    close()
    # faulthandler lists the newest thread first, so the main thread is the last.
    return [Dump(tuple(reversed(dumps[i])), partial[i]) for i in range(len(dumps))]


def _frame(line: str) -> Frame | None:
    found = _FRAME.fullmatch(line)
    if found:
        number = found["line"]
        return Frame(
            found["file"] or "???", int(number) if number.isdigit() else None, found["function"] or "???"
        )
    if line.strip() == "...":
        return Frame("", None, "… (older calls are left out)")
    return None


def escaped(name: str) -> str:
    """Return a file name as faulthandler writes it: ASCII, with escapes for all other characters."""
    return "".join(char if " " <= char <= "~" else _escape(ord(char)) for char in name)


def _escape(code: int) -> str:
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
