"""Ranks on the driver without Spark, for a negative -np."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

from ...hosts.links.stream import Pipe, stage_program

__all__ = ["beside_us"]


def beside_us(word: str) -> Callable[[str], Pipe]:
    """Return a function that opens the pipe to a stage program on this machine.

    Its ranks end with this process.
    """
    read, _ = os.pipe()  # only this process has the writing end, and never closes it

    def opened(_: str) -> Pipe:
        env = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER_DIST_SPARK")}
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", stage_program(), word],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**env, "JUPYTER_DIST_LIFELINE": str(read)},
            pass_fds=[read],
            start_new_session=True,
        )
        return Pipe.of_process(process, word)

    return opened
