"""Origin of a run's code and the installed packages, from `environment.json`.

The file is written once, after the run has begun.
"""

from __future__ import annotations

import json
from typing import Any

from ..folder import RunFolder
from . import reader

__all__ = ["read"]


def read(folder: RunFolder) -> dict[str, Any]:
    """Return the content of the file.

    A trial uses that of its tuning run. Empty if there is no valid file.
    """
    for path in (folder.environment, *_of_tuning(folder)):
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(found, dict):
            return found
    return {}


def _of_tuning(folder: RunFolder) -> list[Any]:
    trial = reader.job(folder).trial
    return [] if trial is None else [RunFolder(folder.path.parent / str(trial["of"])).environment]
