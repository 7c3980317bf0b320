"""Start of runs, from user input to a `Run`. The magics, the terminal and Python share this code."""

from .follow import attach, finish
from .function import run, start_function
from .last_run import last_run_id
from .origin import Origin, origin_in
from .run_start import describe, start_call, start_cell, warn
from .script import origin_of_module, origin_of_script, read_script, start_script
from .session_cells import cell_in_session, describe_in_session
from .session_object import session

__all__ = [
    "Origin",
    "attach",
    "cell_in_session",
    "describe",
    "describe_in_session",
    "finish",
    "last_run_id",
    "origin_in",
    "origin_of_module",
    "origin_of_script",
    "read_script",
    "run",
    "session",
    "start_call",
    "start_cell",
    "start_function",
    "start_script",
    "warn",
]
