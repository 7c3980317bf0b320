"""The process that a backend lives in: a fork of a warm supervisor cannot be told from a fresh one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.conformance.deadlines import run_process
from jupyter_dist.folder import RunFolder
from jupyter_dist.processes.rank_processes import PACKAGE_ROOT
from jupyter_dist.supervise.backend_process import process

# A supervisor has changed its signals when it forks, and holds descriptors.
PROBE = """
import json, os, sys
from pathlib import Path

from jupyter_dist.processes import forking
from jupyter_dist.folder import RunFolder
from jupyter_dist.supervise.backend_process import server as carrier, process as carrier_process
from jupyter_dist.supervise.wakeup import Wakeup

forking.mark_warm(set())
alarm = Wakeup(lambda: None)
folder = RunFolder(Path(sys.argv[1]))
told = {}
for name in ("spawn", "fork"):
    process = getattr(carrier_process, name)(folder)
    os.write(process.calls, b'{"id": 1, "call": "nonsense", "arguments": {}}\\n')
    answer = b""
    while not answer.endswith(b"\\n"):
        answer += os.read(process.answers, 65536)
    of = Path("/proc", str(process.pid))
    status = dict(line.split(":\\t", 1) for line in (of / "status").read_text().splitlines())
    told[name] = {
        "answer": json.loads(answer)["failure"]["text"],
        "name": status["Name"],
        "signals": [status[each] for each in ("SigBlk", "SigIgn", "SigCgt")],
        "descriptors": len(os.listdir(of / "fd")),
        "leads": os.getsid(process.pid) == os.getpgid(process.pid) == process.pid,
        "log": os.path.samestat(os.stat(of / "fd" / "2"), os.fstat(2)),
        "cwd": os.readlink(of / "cwd"),
    }
    mine = of.joinpath("cmdline").read_bytes() == Path("/proc/self/cmdline").read_bytes()
    assert mine is (name == "fork")
    assert process.poll() is None
    assert process.end() == -9 == process.poll()
print(json.dumps(told))
"""


def job_in(path: Path) -> RunFolder:
    folder = RunFolder(path)
    told = {"id": "20260101-000000-abcd", "backend": "kubernetes", "world_size": 1, "created": 0.0}
    more = {"cwd": str(path), "python": sys.executable, "source": ""}
    folder.job.write_text(json.dumps({**told, **more}))
    return folder


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is never a fork")
def test_a_forked_carrier_cannot_be_told_from_a_fresh_one(tmp_path: Path) -> None:
    folder = job_in(tmp_path)
    done = run_process(
        [sys.executable, "-c", PROBE, str(folder.path)],
        cwd=PACKAGE_ROOT,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["fork"] == told["spawn"]
    assert "nonsense" in told["fork"]["answer"]
    assert told["fork"]["leads"]


def test_a_process_that_is_not_warm_forks_none(tmp_path: Path) -> None:
    assert process.fork(RunFolder(tmp_path)) is None
