"""The process that keeps a Ray cluster on this machine: found by its command line, and nobody else ended."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from jupyter_dist.backends.ray import local_cluster

_SLEEP = "import sys; print('up', flush=True); sys.stdin.read()"


@pytest.mark.parametrize(
    ("arguments", "ends"),
    [(["-m", local_cluster.__name__, "FOLDER"], True), (["-m", "other", local_cluster.__name__], False)],
    ids=["the keeper", "another process with its pid"],
)
def test_only_the_keeper_of_a_cluster_is_ended(arguments: list[str], ends: bool) -> None:
    command = [sys.executable, "-c", _SLEEP, *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        local_cluster.end(process.pid)
        process.communicate()  # closes its input, which ends it otherwise
        assert process.returncode == (-signal.SIGTERM if ends else 0)
    local_cluster.end(process.pid)
