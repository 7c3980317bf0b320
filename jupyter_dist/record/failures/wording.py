"""One-line texts of a rank's failure."""

from __future__ import annotations

from ...job import Status
from ...text.format import signal_name
from ...text.safe import one_line
from .failures import RankError
from .gist import gist

__all__ = ["about", "what"]


def what(error: RankError) -> str:
    """Return one line: `ValueError: bad`, `ended by SIGKILL`."""
    if error.kind == "exception" or (error.kind == "exit" and error.type):
        message = gist(error.message)
        return f"{one_line(error.type, 80)}: {message}" if message else one_line(error.type, 80)
    if error.signal is not None:
        return f"ended by {signal_name(error.signal)}"
    if error.kind == "lost":
        return one_line(error.message, 200)
    return f"ended with exit code {error.exit_code}"


def about(error: RankError, status: Status) -> str:
    """Return the host, the attempt and the exit code of a rank's failure."""
    where = [f"host {one_line(error.host, 80)}"] if error.host else []
    if status.attempt:
        where.append(f"attempt {status.attempt}")
    if error.signal is not None:
        where.append(signal_name(error.signal))
    elif error.exit_code is not None:
        where.append(f"exit code {error.exit_code}")
    return ", ".join(where)
