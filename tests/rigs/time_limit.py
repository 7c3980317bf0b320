"""A time limit of a run that passes when the test says so, however long the ranks take to start."""

from __future__ import annotations

from pathlib import Path

__all__ = ["TimeLimit"]

_SITE = """\
import os, time
real = time.monotonic
def passed():
    try:
        return os.stat({over!r}).st_size
    except OSError:
        return 0
time.monotonic = lambda: real() + 2 * {seconds} * passed()
"""


class TimeLimit:
    """`--timeout` of a cold run: `launch_cell(..., timeout=limit.seconds, env=limit.env)`.

    The clock of the run's processes, which read it as `time.monotonic()`, goes forward at each `pass_by`.
    The second one ends a shorter time that begins at the limit, such as `--stop-grace`.
    """

    seconds = 1000

    def __init__(self, folder: Path) -> None:
        self._over = folder / "over"
        (folder / "sitecustomize.py").write_text(_SITE.format(seconds=self.seconds, over=str(self._over)))
        self.env = {"PYTHONPATH": str(folder)}

    def pass_by(self) -> None:
        """Let the time limit pass now, or the time that has begun since."""
        with self._over.open("ab") as file:
            file.write(b".")
