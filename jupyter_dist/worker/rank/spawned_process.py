"""Fill a process that is spawned on a rank with what main_snapshot.py has written down of `__main__`."""

from __future__ import annotations

import builtins
import io
import linecache
import mmap
import os
import pickle
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .. import layout, settings
from ..output import displays, events, library_displays
from ..pickling import loading

__all__ = ["fill", "take_displays"]


def fill(space: dict[str, Any], file: str) -> None:
    """Put into `space` what the rank has written beside `file`. What does not load is named in the log."""
    for stream in (sys.stdout, sys.stderr):  # as a rank's: what was printed survives a kill
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    path = Path(file).with_suffix(".pkl")
    events.open_writer(str(path.parent.parent / layout.EVENTS))  # metrics are the rank's, as a fork's are
    with open(path, "rb") as data, loading(space):
        header = pickle.load(data)
        take_displays(None)
        for name, text in header["sources"].items():
            linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        load = pickle.Unpickler(data, buffers=_mapped(path.parent, header["aside"])).load
        missing = dict.fromkeys(header["names"])
        settings.before_names(header["settings"])
        try:
            while missing:
                values = load()
                space.update(values)
                for name in values:
                    del missing[name]
            objects = space.pop(settings.OBJECTS, None)
            if objects is not None:
                settings.after_names(header["settings"], objects, int(os.environ.get("RANK", 0)))
        except Exception as error:
            names = ", ".join(map(repr, missing)) or "settings of the notebook"
            print(
                f"jupyter_dist: a process that was spawned lacks {names}: {type(error).__name__}: {error}",
                file=sys.stderr,
            )


def _mapped(place: Path, aside: Iterable[tuple[str, bool]]) -> Iterable[memoryview]:
    for name, read_only in aside:
        with open(place / name, "rb") as file:
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        yield view.toreadonly() if read_only else view


def take_displays(filename: str | None) -> None:
    """Have `display`, which every notebook has without an import, and what libraries have like it, show what
    they are given by this rank. `filename`: the name under which the cell was compiled."""
    displays.cell_file = filename
    builtins.display = displays.display  # type: ignore[attr-defined]
    library_displays.install()
