"""Matching of users' regular expressions in a child process, which is killed if it takes too long."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

from ..cancellation import Cancellation
from . import pattern_search

__all__ = ["LIMIT_S", "in_child", "values"]

LIMIT_S = 10.0
_BATCH = 50_000
K = TypeVar("K")


def in_child(chunks: Iterable[bytes], cancellation: Cancellation | None = None, **asked: Any) -> Any:
    """Return the answer of `pattern_search` as a script. Raises TimeoutError after `LIMIT_S`, and OSError.

    Raises DistError if it is cancelled.
    """
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", pattern_search.__file__, json.dumps(asked)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    alarm = threading.Timer(LIMIT_S, child.kill)
    alarm.start()
    if cancellation is not None:
        cancellation.on_cancel(child.kill)
    try:
        with child:
            try:
                for chunk in chunks:
                    child.stdin.write(chunk)
                child.stdin.close()
            except BrokenPipeError:
                pass  # the child was killed
            except BaseException:
                child.kill()
                raise
            answer = child.stdout.read()
    finally:
        alarm.cancel()
    if cancellation is not None:
        cancellation.check()
    if child.returncode == -signal.SIGKILL:
        raise TimeoutError(f"needs more than {LIMIT_S:g} s on this log. Make it simpler")
    if child.returncode:
        raise ChildProcessError(f"ended with exit code {child.returncode}")
    return json.loads(answer)


def values(
    lines: Iterable[tuple[K, str]], patterns: Mapping[str, str]
) -> Iterator[tuple[K, str, str, str | None]]:
    """Yield what `--metric` finds: the line's key, the metric's name, the texts of the value and of the step.

    Raises TimeoutError if a batch of lines takes longer than `LIMIT_S`, and OSError.
    """
    left = iter(lines)
    while batch := list(islice(left, _BATCH)):
        text = "".join(f"{line}\n" for _, line in batch).encode("utf-8", "replace")
        for number, name, value, step in in_child([text], patterns=dict(patterns)):
            yield batch[number][0], name, value, step
