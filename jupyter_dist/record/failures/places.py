"""Short texts for places in code: `In[3], line 4: loss.backward()`."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from typing import Any

from ...text.fold import named
from ...text.safe import one_line
from ...text.stack_dumps import Frame
from .stacks import AFTER_CELL

__all__ = ["is_of_user", "may_be_of_a_rank", "of_frames", "of_groups", "sentences", "waiting_call"]

_SOURCE = 80
_LIBRARY = re.compile(
    r"[/\\](site-packages|dist-packages)[/\\]|[/\\]lib(64)?[/\\]python\d|\.pyx$|"
    r"^<frozen |^<__array_function__"
)
_PACKAGES = re.compile(r"[/\\](site-packages|dist-packages)[/\\]")
_WITH_RANKS = re.compile(
    r"(torch[/\\](?!utils[/\\]data[/\\]|multiprocessing[/\\])|tensorflow|keras|tf_keras|horovod|mpi4py|ray|pyspark)\b"
)
"""Packages that connect ranks. A path in one of them matches from the package's name on."""
_COLLECTIVE = re.compile(
    r"(?<![a-z])(i?all_?reduce|i?all_?gather|reduce_?scatter|i?all_?to_?all|i?bcast|broadcast|i?barrier|"
    r"init_process_group|sendrecv|recv)",
    re.IGNORECASE,
)
_OF_TENSORFLOW = re.compile(r"[/\\]tensorflow[/\\]python[/\\]distribute[/\\]cross_device_")


def waiting_call(frames: Sequence[Frame]) -> str:
    """Return the collective in which a stack ends, such as `allreduce`. Empty if it ends elsewhere.

    The most recent call is the last frame. Of C code, only the user's line shows what was called.
    """
    named = [frame for frame in frames if frame.file]
    own = max((place for place, frame in enumerate(named) if _is_users(frame)), default=None)
    if own is None:
        return ""
    inner = named[own + 1 :]
    if any(frame.file.startswith("<frozen importlib") for frame in inner):
        return ""  # an import of the module, not a call
    if any(_OF_TENSORFLOW.search(frame.file) for frame in inner):
        return "a collective of TensorFlow"
    texts = [*(frame.function for frame in inner), named[own].source.partition("#")[0]]
    return next((match[1] for text in texts if (match := _COLLECTIVE.search(text))), "")


def may_be_of_a_rank(frames: Sequence[Mapping[str, Any]], of_python: bool) -> bool:
    """Return whether the connection that a traceback is about may be one to another rank.

    It is one to something else if a library without ranks has opened it, or the user's own code.

    Args:
        of_python: the error is one of Python's own sockets. Without a library, it is the user's connection.
    """
    stack = [_frame(frame) for frame in frames if isinstance(frame, Mapping)]
    for frame in reversed(stack):
        if _is_users(frame):
            return frame is stack[-1] and not of_python  # else the user called the standard library
        packages = _PACKAGES.search(frame.file)
        if packages is not None:
            return bool(_WITH_RANKS.match(frame.file, packages.end()))
    return True


def of_frames(frames: Sequence[Mapping[str, Any]]) -> str:
    """Return the place of a traceback: the user's last line, and the function in which it ended."""
    return _text(*_of_stack([_frame(frame) for frame in frames if isinstance(frame, Mapping)]))


def of_groups(groups: Sequence[tuple[Sequence[int], Sequence[Frame]]]) -> list[tuple[list[int], str]]:
    """Return the ranks at each place of the user's code, from ranks grouped by their stacks.

    Ranks at the same line of the user are together, also if they are at different places of a library.
    """
    found: dict[str, tuple[list[int], set[str]]] = {}
    for ranks, frames in groups:
        line, last = _of_stack(frames)
        together = found.setdefault(line, ([], set()))
        together[0].extend(ranks)
        together[1].add(last)
    return [
        (sorted(ranks), _text(line, last.pop() if len(last) == 1 else ""))
        for line, (ranks, last) in found.items()
    ]


def sentences(
    groups: Sequence[tuple[Sequence[int], Sequence[Frame]]], without: Container[int] = ()
) -> tuple[str, ...]:
    """Return a line for each place, such as `ranks 0,2 were at In[1], line 4: step()`.

    `without`: ranks that are left out.
    """
    found = []
    for ranks, place in of_groups(groups):
        shown = [rank for rank in ranks if rank not in without]
        if shown:
            found.append(f"{named(shown)} {'was' if len(shown) == 1 else 'were'} {place}")
    return tuple(found)


def _text(line: str, last: str) -> str:
    return f"{line} (in {last})" if last else line


def _of_stack(frames: Sequence[Frame]) -> tuple[str, str]:
    """Return `at` and the user's last line, and the library's function in which the stack ends, if any.

    The most recent call is the last frame.
    """
    named = [frame for frame in frames if frame.file]
    ended = frames[0].function if frames and frames[0].function in AFTER_CELL.values() else ""
    if not named:
        return ended or (f"at {one_line(frames[-1].function, 120)}" if frames else ""), ""
    of_files = [frame for frame in named if not frame.file.startswith("<frozen ")] or named  # of an import
    own = next((frame for frame in reversed(named) if _is_users(frame)), of_files[-1])
    line = f", line {own.line}" if own.line is not None else ""
    source = one_line(own.source, _SOURCE)
    text = f"at {one_line(own.label or own.file, 100)}{line}{f': {source}' if source else ''}"
    text = f"{text}, {ended}" if ended else text
    last = one_line(named[-1].function, 60)
    return text, "" if named[-1] is own or last in source else last


def is_of_user(frame: Mapping[str, Any]) -> bool:
    """Return whether a frame of a recorded traceback is of a cell, or of a file that is of no library."""
    return _is_users(_frame(frame))


def _is_users(frame: Frame) -> bool:
    return (bool(frame.label) and frame.label != frame.file) or not _LIBRARY.search(frame.file)


def _frame(frame: Mapping[str, Any]) -> Frame:
    line = frame.get("line")
    return Frame(
        str(frame.get("file") or ""),
        line if isinstance(line, int) else None,
        str(frame.get("function") or ""),
        str(frame.get("label") or ""),
        str(frame.get("source") or ""),
    )
