"""The options of a run that concern a debugger."""

from __future__ import annotations

from .option_fields import flag

__all__ = ["DEBUGPY", "OF_DEBUGGER", "PDB"]

PDB = flag(
    False,
    "Debug errors",
    "If a rank fails, open pdb at its error. The other ranks wait meanwhile. `%dist debug` opens the prompt "
    "again",
)
DEBUGPY = flag(
    False,
    "debugpy",
    "Start debugpy on every rank, so that an editor can attach. A note names the ports, on 127.0.0.1 only",
)
OF_DEBUGGER = ("pdb", "debugpy")
"""The options in this module. They belong to one cell and not to a cluster."""
