"""What the calls of `dist` remember within a cell: the last step, and who opened the process group."""

from __future__ import annotations

__all__ = ["of_session", "opened_group", "pause_metric", "step"]

step = -1
"""The step that `dist.log` has used last. The next one follows it if the caller names none."""
pause_metric: str | None = None
"""The objective of a trial that a scheduler pauses (trial_pause.py). None in any other run."""
of_session = False
"""Whether the rank stays for other cells."""
opened_group = False
"""Whether `dist.init` has opened the default process group, and so has to close it."""
