"""Waits for conditions and processes, with a deadline that does not count delays by other programs.

A deadline claims nothing about speed: a wait that ends well may take 4 s or 40 s. So all deadlines are the
same and long. A deadline ends a test that hangs, with a text on what the test waited for.

Time in which some process of this machine waited for a CPU is not counted, if the kernel reports it
(https://docs.kernel.org/accounting/psi.html).
On a kernel without that report, the deadline follows the
clock.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

__all__ = [
    "PATIENCE_S",
    "Deadline",
    "end_all_by",
    "output_of",
    "run_process",
    "wait_for_exit",
    "wait_until",
    "waited_s",
]

PATIENCE_S = 120.0
"""Time limit of a test for one condition."""
_PRESSURE = Path("/proc/pressure/cpu")
_AT_MOST = 4
"""On a machine that is always busy, a deadline lasts at most this many times its length."""

T = TypeVar("T")
_end_all_by = float("inf")


def waited_s() -> float:
    """Return the seconds since boot in which some process waited for a CPU. 0 if the kernel has no report."""
    try:
        found = re.search(r"^some .*total=(\d+)", _PRESSURE.read_text(), re.MULTILINE)
    except OSError:
        return 0.0
    return int(found[1]) / 1e6 if found else 0.0


def end_all_by(moment: float) -> None:
    """Let no deadline of this process end later than this moment of `time.monotonic()`.

    Set it a little before the moment at which pytest-timeout ends the test. A wait then fails with its own
    text, and not with the stacks of all threads.
    """
    global _end_all_by
    _end_all_by = moment


class Deadline:
    """A deadline that begins when it is created. After it a test stops waiting.

    Args: `patience_s`, the seconds that it lasts on an idle machine.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self.patience_s = patience_s
        self._began, self._waited_s = time.monotonic(), waited_s()

    def left_s(self) -> float:
        """Return the seconds that are left, at least 0. A later call may return more."""
        now = time.monotonic()
        passed = now - self._began
        left = self.patience_s - (passed - (waited_s() - self._waited_s))
        return max(0.0, min(left, _AT_MOST * self.patience_s - passed, _end_all_by - now))

    def passed(self) -> bool:
        """Return whether the deadline is over."""
        return self.left_s() <= 0


def wait_until(
    condition: Callable[[], T],
    what: str = "",
    story: Callable[[], str] | None = None,
    patience_s: float = PATIENCE_S,
) -> T:
    """Call `condition` until it is true, and return its value.

    Fails the test after the deadline, with `what` the test waited for, the last value, and the `story`.
    """
    deadline, pause_s = Deadline(patience_s), 0.01
    while True:
        value = condition()
        if value:
            return value
        if deadline.passed():
            waited_for = what or getattr(condition, "__name__", "the condition")
            told = f"waited {patience_s:g} s for {waited_for}; last value: {value!r}"
            pytest.fail("\n".join([told, story()] if story is not None else [told]))
        time.sleep(pause_s)
        pause_s = min(0.03, 1.1 * pause_s)


def wait_for_exit(process: subprocess.Popen[Any]) -> int:
    """Wait for the end of a process, and return its exit code. Fails the test after the deadline."""
    deadline = Deadline()
    while True:
        try:
            return process.wait(deadline.left_s())
        except subprocess.TimeoutExpired:
            if deadline.passed():
                pytest.fail(f"waited {deadline.patience_s:g} s for the end of {process.args!r}")


def output_of(
    process: subprocess.Popen[str], input: str | None = None, patience_s: float = PATIENCE_S
) -> tuple[str, str]:
    """Wait for the end of a process, and return what it wrote to stdout and stderr, which are pipes.

    After the deadline the process is killed, and the test fails with what the process has written.
    """
    deadline = Deadline(patience_s)
    while True:
        try:
            return process.communicate(input, timeout=deadline.left_s())
        except subprocess.TimeoutExpired:
            input = None  # `communicate` accepts it only once
            if deadline.passed():
                process.kill()
                written = "\n".join(filter(None, process.communicate()))
                pytest.fail(f"waited {patience_s:g} s for the end of {process.args!r}\n{written}")
        except BaseException:
            process.kill()
            raise


def run_process(
    argv: Sequence[Any],
    *,
    input: str | None = None,
    check: bool = False,
    patience_s: float = PATIENCE_S,
    **given: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end as `subprocess.run` does, with its output as text, and with a deadline.

    Pass `stdout=None, stderr=None` for a program whose own children outlive it: they would keep the pipes.

    Fails the test after the deadline, with what the program has written so far. The program is killed then.
    """
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        pipes["stdin"] = subprocess.PIPE
    with subprocess.Popen(argv, text=True, **{**pipes, **given}) as process:
        out, err = output_of(process, input, patience_s)
    if check and process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, argv, out, err)
    return subprocess.CompletedProcess(argv, process.returncode, out, err)
