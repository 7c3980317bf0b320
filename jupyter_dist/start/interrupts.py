"""Interrupts between the start of a run and the moment at which its output is shown."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ..errors import DistError
from ..folder import RunFolder
from ..manage import stop
from ..showing.display import kernel_ends

__all__ = ["interrupt_stops"]


@contextlib.contextmanager
def interrupt_stops(folder: RunFolder) -> Iterator[None]:
    """Let an interrupt in here stop the run, as it does while the run's output is shown.

    Without this, the user would have no run, and its processes would go on.
    """
    try:
        yield
    except KeyboardInterrupt:
        if not kernel_ends():
            with contextlib.suppress(DistError):
                stop.stop(folder, interrupt=True)
        raise
