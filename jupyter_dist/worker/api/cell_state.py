"""What the calls of `dist` remember within a cell: the last step, and who opened the process group."""

from __future__ import annotations

__all__ = ["opened_group", "step"]

step = -1
"""The step that `dist.log` has used last. The next one follows it if the caller names none."""
opened_group = False
"""Whether `dist.init` has opened the default process group, and so has to close it."""
