"""Notices to running ranks: small files in the run's folder, which the ranks read from time to time."""

from __future__ import annotations

import contextlib
import os

__all__ = ["write_notice"]


def write_notice(run: str, path: str, text: str) -> None:
    """Replace a notice. Readers see the whole old or the whole new text. On a full disk the old one stays."""
    place = os.path.join(run, path)
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        with open(os.open(place + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        os.replace(place + ".part", place)
