"""Where a run's code came from and what was installed: `environment.json`, written once the run has begun."""

from __future__ import annotations

import json
from typing import Any

from ..folder import RunFolder
from . import reader

__all__ = ["read"]


def read(folder: RunFolder) -> dict[str, Any]:
    """What was written, of a trial that of the tuning run; empty where nothing was, or it is not ours."""
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
