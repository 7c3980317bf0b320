"""Start runs, from what people type to a `Run`: what the magics, the terminal and Python share."""

from .cell_or_call import describe, start_call, start_cell, warn
from .function import run, start_function
from .last_run import last_run_id
from .origin import Origin, origin_in
from .script import read_script, start_script
from .until_end import attach, finish

__all__ = [
    "Origin",
    "attach",
    "describe",
    "finish",
    "last_run_id",
    "origin_in",
    "read_script",
    "run",
    "start_call",
    "start_cell",
    "start_function",
    "start_script",
    "warn",
]
