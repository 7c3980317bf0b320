"""Stacks of a run's ranks as an answer for views."""

from __future__ import annotations

from ..record.failures.stacks import Stacks
from .answers import ranks

__all__ = ["as_answer"]


def as_answer(taken: Stacks) -> ranks.Stacks:
    """Group ranks at the same place: `{groups: [{ranks, frames}], silent, hint}`."""
    return {
        "groups": [
            {
                "ranks": list(ranks),
                "frames": [
                    {
                        "file": frame.file,
                        "label": frame.label or frame.file,
                        "line": frame.line,
                        "function": frame.function,
                        "source": frame.source,
                    }
                    for frame in frames
                ],
            }
            for ranks, frames in taken.groups
        ],
        "silent": list(taken.missing),
        "hint": taken.hint,
    }
