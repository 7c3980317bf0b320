"""The pause of a trial: the call of `dist.log` at which a scheduler of a tuning run ends it.

Rank 0 waits in that call until the tuning run stops the trial. So the checkpoint is the one that the cell has
saved for this value, and not for a later one. Another trial continues from it. Other ranks do not wait here:
rank 0 may still need them to reach the call.

If the tuning run has no supervisor, nobody stops the trial. Rank 0 then fails, which ends the other ranks
too. A later supervisor counts the trial as paused.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, NoReturn

from . import cell_state

__all__ = ["logged", "tell"]

LIMIT_S = 600.0
"""How long rank 0 waits."""
_left = 0


def tell(pause: Mapping[str, Any] | None) -> None:
    """Set where this trial is paused, before the cell begins. `pause`: the metric, and how many values."""
    global _left
    is_mine = pause is not None and int(os.environ.get("RANK", 0)) == 0
    cell_state.pause_metric = str(pause["metric"]) if pause is not None and is_mine else None
    _left = int(pause["values"]) if pause is not None else 0


def logged() -> None:
    """Count a value of the objective that was recorded. Does not return after the last one."""
    global _left
    _left -= 1
    if _left <= 0:
        _wait()


def _wait() -> NoReturn:
    time.sleep(LIMIT_S)  # until a signal raises an exception here
    raise SystemExit(
        f"The trial was paused, and its tuning run has not stopped it within {LIMIT_S:g} s. Probably the "
        "tuning run has no supervisor. To continue the tuning run, write %dist attach with its id"
    )
