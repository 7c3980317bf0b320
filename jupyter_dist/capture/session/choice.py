"""The choice of what a session's cell sends."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Choice"]


@dataclass
class Choice:
    """What of the notebook a cell of a session sends."""

    without: set[str] = field(default_factory=set)
    """Names that the ranks have."""
    needs: list[str] = field(default_factory=list)
    """Those of `without` that the notebook has sent with an earlier cell."""
    sent: dict[str, str] = field(default_factory=dict)
    """Digests of the names that are sent."""
    together: list[list[str]] = field(default_factory=list)
    """Groups of names in `sent` that share objects."""
    seen: dict[str, str] = field(default_factory=dict)
    """Digests of the notebook's values of names that belong to the ranks, or that are sent."""
    modules: set[str] = field(default_factory=set)
    """Modules that the notebook's names use. Their files are sent with each cell."""
    notes: list[str] = field(default_factory=list)
