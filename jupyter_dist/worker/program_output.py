"""Output of a short program, such as `mpirun --version`, within a time limit that always holds."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .process_groups import kill_group, reap_killed

__all__ = ["ProgramOutput", "program_output"]


class ProgramOutput(NamedTuple):
    """What a program has printed, and its exit code as in `subprocess`."""

    stdout: str
    stderr: str
    code: int


def program_output(
    argv: Sequence[str], limit_s: float, env: Mapping[str, str] | None = None
) -> ProgramOutput | None:
    """Run a program without input. Returns None if it has not ended in time.

    `subprocess.run` with a timeout also waits for the end of the killed program. A program in an
    uninterruptible sleep ends only when the sleep does, for example on a lost network disk.

    Raises OSError if the program cannot be started.
    """
    process = subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=limit_s)
    except BaseException as error:
        kill_group(process.pid)
        reap_killed(process.pid)
        process.returncode = -9  # this function has waited for it as long as it may
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        if isinstance(error, subprocess.TimeoutExpired):
            return None
        raise
    return ProgramOutput(stdout, stderr, process.returncode)
