"""The script in the stage folder with which launchers start ranks on this host."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

__all__ = ["write_start_script"]


def write_start_script(stage: str, env: Mapping[str, str], python: str) -> None:
    """Write the script, which sets these variables and runs a rank or its own arguments. Raises OSError."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
    lines += [
        f"export JUPYTER_DIST_STAGE={shlex.quote(stage)}",
        f"export JUPYTER_DIST_RUN={shlex.quote(os.path.join(stage, 'run'))}",
        "unset PYTHONSAFEPATH",
        '[ -z "$JUPYTER_DIST_CWD" ] || [ -d "$JUPYTER_DIST_CWD" ] || export JUPYTER_DIST_CWD="$HOME"',
        f"cd {shlex.quote(os.path.join(stage, 'code'))} || exit 127",
        '[ $# -eq 0 ] || exec "$@"',
        f"exec {shlex.quote(python)} -m jupyter_dist.worker",
    ]
    with open(os.path.join(stage, "start"), "w") as file:
        file.write("#!/bin/sh\n" + "\n".join(lines) + "\n")
        os.fchmod(file.fileno(), 0o700)
