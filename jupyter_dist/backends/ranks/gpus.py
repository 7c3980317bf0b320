"""Which GPUs this process may use, found without initialising CUDA."""

from __future__ import annotations

import os
import subprocess
from functools import cache

__all__ = ["visible_gpus"]


def visible_gpus() -> tuple[str, ...]:
    """What CUDA_VISIBLE_DEVICES would list: indices, or the user's own indices and UUIDs."""
    return _visible(os.environ.get("CUDA_VISIBLE_DEVICES"))


@cache
def _visible(chosen: str | None) -> tuple[str, ...]:
    if chosen is not None:
        listed = [part.strip() for part in chosen.split(",")]
        # As CUDA reads it: everything from the first invalid entry on is invisible.
        valid = []
        for part in listed:
            if not part or part.startswith("-"):
                break
            valid.append(part)
        return tuple(valid)
    try:
        found = subprocess.run(
            ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(line.strip() for line in found.stdout.splitlines() if line.strip().isdigit())
