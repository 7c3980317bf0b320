"""Write down which versions are installed here, for CI to install the same.

python tools/pins.py tests/constraints.txt
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

OURS = {"jupyter-dist", "horovod"}
"""Horovod is built here, from a source whose version is fixed: jupyter_dist/commands/horovod_recipe.py."""


def pins(frozen: str) -> str:
    """What `pip freeze` says as constraints, the Python that they are for in the first line."""
    lines = [f"# Python {sys.version_info.major}.{sys.version_info.minor}"]
    lines.append("# The versions of the last green run. `make test-newest` writes them down.")
    for line in sorted(frozen.splitlines(), key=str.lower):
        match = re.fullmatch(r"([\w.-]+)==([\w.!]+)(?:\+[\w.]+)?", line)  # a local version is a build of it
        if match and match[1].lower() not in OURS:
            lines.append(f"{match[1]}=={match[2]}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "freeze", "--exclude-editable"]
    frozen = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    Path(sys.argv[1]).write_text(pins(frozen))
