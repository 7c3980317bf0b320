"""The files for Horovod's timeline and autotune log in an elastic run.

Horovod starts each file again whenever its ranks meet, and the current rank 0 writes it. So each meeting gets
a file of its own, in the folder of the rank that writes it. All files are kept.
"""

from __future__ import annotations

import os
import time
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

__all__ = ["FILES", "patch", "place"]

FILES = {"HOROVOD_TIMELINE": "timeline.json", "HOROVOD_AUTOTUNE_LOG": "autotune.csv"}
"""The base name of such a file, by the variable that names it."""

_places: dict[str, Path] = {}


def place(environ: MutableMapping[str, str], folder: Path) -> None:
    """Store the paths of files that flags requested.

    A file that the user's own variable names stays unchanged.
    """
    for variable, name in FILES.items():
        if environ.get(variable) == name:
            _places[variable] = folder / name
            environ[variable] = str(folder / name)


def patch(basics: Any) -> None:
    """Name the files again before each `hvd.init()`. For the module `horovod.common.basics`."""
    if not _places:
        return
    init = basics.HorovodBasics.init

    def init_with_files(self: Any, *args: Any, **more: Any) -> Any:
        now_ms = int(1000 * (time.time() + float(os.environ.get("JUPYTER_DIST_CLOCK_OFFSET_S") or 0)))
        for variable, path in _places.items():
            os.environ[variable] = str(path.with_name(f"{path.stem}.{now_ms}{path.suffix}"))
        return init(self, *args, **more)

    basics.HorovodBasics.init = init_with_files
