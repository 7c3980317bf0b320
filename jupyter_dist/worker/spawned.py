"""Fill a process that is spawned on a rank with what stand_in.py has written down of `__main__`."""

from __future__ import annotations

import builtins
import io
import linecache
import mmap
import pickle
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import events, layout
from .pickling import loading

__all__ = ["display", "fill"]


def fill(space: dict[str, Any], file: str) -> None:
    """Put into `space` what the rank has written beside `file`. What does not load is named in the log."""
    for stream in (sys.stdout, sys.stderr):  # as a rank's: what was printed survives a kill
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    builtins.display = display  # type: ignore[attr-defined]
    path = Path(file).with_suffix(".pkl")
    events.open_writer(str(path.parent.parent / layout.EVENTS))  # metrics are the rank's, as a fork's are
    with open(path, "rb") as data, loading(space):
        header = pickle.load(data)
        for name, text in header["sources"].items():
            linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        load = pickle.Unpickler(data, buffers=_mapped(path.parent, header["aside"])).load
        missing = dict.fromkeys(header["names"])
        try:
            while missing:
                values = load()
                space.update(values)
                for name in values:
                    del missing[name]
        except Exception as error:
            names = ", ".join(map(repr, missing))
            print(
                f"jupyter_dist: a process that was spawned lacks {names}: {type(error).__name__}: {error}",
                file=sys.stderr,
            )


def _mapped(place: Path, aside: Iterable[tuple[str, bool]]) -> Iterable[memoryview]:
    for name, read_only in aside:
        with open(place / name, "rb") as file:
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        yield view.toreadonly() if read_only else view


def display(*objects: Any, **_: Any) -> None:
    """IPython's, which every notebook has without an import; a rank has no front-end and prints."""
    print(*objects, sep="\n")
