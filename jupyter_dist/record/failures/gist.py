"""The line of an error's message that says what is wrong."""

from __future__ import annotations

import re

from ...text.safe import both_ends, one_line

__all__ = ["gist"]

_FRAME = re.compile(r"\s*File \"?.+\"?, line \d+")
_NESTED = re.compile(
    r"\s*(?:[a-zA-Z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Timeout)\b[^:]*: +\S|"
    r"Collective ops is aborted by: \S"
)
_INTRODUCTION = re.compile(r".*:\s*$|Exception encountered when calling |Caught \w+ in ")
"""A first line whose content follows in other lines."""
_EMPTY_INTRODUCTION = re.compile(r"in user code:$|Graph execution error:$|Detected at node .*:$")
_APPENDIX = re.compile(
    r"(Arguments|Call arguments|For further information|Call initialization)\b|[•*-] |[\^~ ]+$"
)
_NOISE = re.compile(
    r"^\[[^\]\s]+\.(?:cc|cpp|h):\d+\]\s*|\.? This is typically caused by a remote worker .*$|"
    r"\{\{function_node [^}]*\}\} *|^\s*\[\[\{\{node .*$|"
    r" This was caused by an exception on one of the ranks or an attempt to .*$|"
    r" Of the allocated memory .*$",
    re.MULTILINE,
)
"""Places in the code of gloo and TensorFlow, and advice to read another log or a page of torch."""
_NCCL = re.compile(r"NCCL error in: .*?\n(nccl\w+: [^\n]*)(?:\s*\nLast error:\s*\n([^\n]+))?", re.DOTALL)
"""NCCL's message has the place in the code first, then the kind of error, then what happened."""


def gist(message: str, limit: int = 200) -> str:
    """Return one line of at most `limit` characters. A line that is too long keeps both ends.

    Libraries put the content of a message into its first line, its last line, or behind an introduction such
    as Keras's "in user code:" with the lines of a traceback.
    """
    message = _NCCL.sub(lambda found: f"NCCL: {(found[2] or found[1]).strip()}", message)
    lines = [line for line in _NOISE.sub("", message).split("\n") if line.strip()]
    if not lines:
        return ""
    has_frames = "Traceback (most recent call last)" in message or any(map(_FRAME.match, lines))
    if not has_frames and len(one_line("\n".join(lines), limit + 1)) <= limit:
        return one_line("\n".join(lines), limit)
    nested = [line for line in lines[1:] if _NESTED.match(line)]
    first = lines[0].strip()
    if nested:
        told = nested[-1].strip()
    else:
        rest = _without_frames(lines[1:]) or lines[-1:]
        told = rest[-1 if has_frames else 0].strip() if rest else ""
    if not told or not (nested or has_frames or _INTRODUCTION.match(first)):
        return both_ends(first, limit)
    if _EMPTY_INTRODUCTION.match(first) or _FRAME.match(first) or first.startswith("Traceback"):
        return both_ends(told, limit)
    return both_ends(f"{first} {told}", limit)


def _without_frames(lines: list[str]) -> list[str]:
    """Return the lines that are no call of a traceback, no source line, and no appendix."""
    kept = []
    frame: str | None = None
    for line in lines:
        # TensorFlow's frames have no source line if the file is not on the disk.
        of_frame = frame is not None and _indent(line) >= _indent(frame)
        frame = line if _FRAME.match(line) else None
        if frame is None and not of_frame and not _APPENDIX.match(line.strip()):
            kept.append(line)
    return kept


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
