"""Say something beside a run: a note, a warning."""

from __future__ import annotations

import sys

from . import display

__all__ = ["tell"]


def tell(text: str) -> None:
    """One line for the user. Notebooks paint what comes on stderr red, as errors, which it is not."""
    print(text, file=sys.stdout if display.in_kernel() else sys.stderr)
