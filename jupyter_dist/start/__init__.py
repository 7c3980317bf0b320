"""Start runs, from what people type to a `Run`: what the magics, the terminal and Python share."""

from .cell_or_call import describe, start_call, start_cell, warn
from .function import run
from .last_run import last_run_id
from .origin import Origin, origin_in
from .until_end import attach, finish

__all__ = [
    "Origin",
    "attach",
    "describe",
    "finish",
    "last_run_id",
    "origin_in",
    "run",
    "start_call",
    "start_cell",
    "warn",
]
