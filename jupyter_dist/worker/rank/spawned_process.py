"""The start of a process that is spawned on a rank: it loads the main snapshot of main_snapshot.py."""

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
from . import script_names

__all__ = ["fill", "take_displays"]


def fill(space: dict[str, Any], file: str) -> None:
    """Load the names that the rank has written beside `file` into `space`.

    The log names each value that cannot be loaded.
    """
    for stream in (sys.stdout, sys.stderr):  # as in a rank: printed lines survive a kill
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    path = Path(file).with_suffix(".pkl")
    # Metrics belong to the rank, as those of a fork do.
    events.open_writer(str(path.parent.parent / layout.EVENTS))
    with open(path, "rb") as data, loading(space):
        header = pickle.load(data)
        take_displays(None)
        space.update(script_names.of(header))  # rather than those of the stand-in
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
                rank = int(os.environ.get("RANK", 0))
                settings.after_names(header["settings"], objects, rank, space)
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
    """Make `display` and the display functions of libraries show their values as outputs of this rank.

    Every notebook has `display` without an import. `filename`: the name under which the cell was compiled.
    """
    displays.cell_file = filename
    builtins.display = displays.display  # type: ignore[attr-defined]
    library_displays.install()
