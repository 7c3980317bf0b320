"""The supervisor's log on a full disk: lines are lost, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

from jupyter_dist.conformance.deadlines import run_process
from jupyter_dist.processes.rank_processes import PACKAGE_ROOT

# The limit stands in for a full disk. It counts for files only, as the disk does.
PROBE = """
import os, resource, sys, traceback
from pathlib import Path
from jupyter_dist.supervise.status_writer import log, open_log

answers = os.dup(1)
open_log(Path(sys.argv[1]))
log("there is room")
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
log("there is none")
try:
    raise RuntimeError("planted")
except RuntimeError:
    traceback.print_exc()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log("there is room again")
os.write(answers, b"the end")
"""


def test_a_full_disk_loses_lines_and_raises_nothing(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.log"
    ended = run_process([sys.executable, "-c", PROBE, str(path)], cwd=PACKAGE_ROOT)
    assert (ended.returncode, ended.stdout) == (0, "the end")
    assert [line.partition(" ")[2] for line in path.read_text().splitlines()] == [
        "there is room",
        "there is room again",
    ]
