"""The backend `mpi` through a real Slurm: munged, slurmctld and slurmd with a configuration of their own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist import launch, reader
from jupyter_dist.backends import mpi
from jupyter_dist.backends._ports import free_ports
from jupyter_dist.capture import capture_cell
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import State, Status
from jupyter_dist.worker import payload as container

WaitFor = Callable[..., Any]
_PROGRAMS = {"slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client", "munged": "munge"}
_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
_LACKING = [package for program, package in _PROGRAMS.items() if not shutil.which(program, path=_PATH)]
pytestmark = [
    pytest.mark.skipif(bool(_LACKING), reason=f"needs Slurm: apt-get install {' '.join(_LACKING)}"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: slurmd starts tasks as other users"),
]


def start(source: str, np: int = 2, **options: Any) -> RunFolder:
    payload = capture_cell(source, {}, label="In[1]", directory=Path.cwd())
    wanted = mpi.MpiOptions(**options).model_dump(mode="json")
    request = launch.Request("mpi", np, source, "In[1]", options=wanted, cold=True)
    return launch.launch(request, payload)


def ended(folder: RunFolder, timeout_s: float = 60.0) -> Status:
    deadline = time.monotonic() + timeout_s
    while not (status := reader.status(folder)).state.ended:
        assert time.monotonic() < deadline, (status, launcher_log(folder), folder.supervisor_log.read_text())
        time.sleep(0.01)
    return status


def run(source: str, np: int = 2, **options: Any) -> tuple[RunFolder, Status]:
    folder = start(source, np, **options)
    return folder, ended(folder)


def launcher_log(folder: RunFolder) -> str:
    return (folder.path / "attempts" / "0" / "launcher.log").read_text()


def logs(folder: RunFolder, rank: int) -> list[str]:
    return reader.output(folder, rank).decode().splitlines()


def results(folder: RunFolder, np: int) -> list[Any]:
    return [container.load(folder.rank(0, rank).result) for rank in range(np)]


class Slurm:
    """A Slurm of one node: munged, slurmctld and slurmd with a configuration of their own."""

    def __init__(self, place: Path) -> None:
        self.config = place / "slurm.conf"
        self._place = place
        name = socket.gethostname().partition(".")[0]
        controller, daemon = free_ports(2)
        own = {
            "ClusterName": "one",
            "SlurmctldHost": f"{name}(127.0.0.1)",
            "SlurmUser": "root",
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={place}/munge.sock",
            "CredType": "cred/munge",
            "SlurmctldPort": controller,
            "SlurmdPort": daemon,
            "StateSaveLocation": place / "state",
            "SlurmdSpoolDir": place / "spool",
            "SlurmctldPidFile": place / "slurmctld.pid",
            "SlurmdPidFile": place / "slurmd.pid",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "MpiDefault": "none",
            "ReturnToService": 2,
            "SlurmdParameters": "config_overrides",
            "NodeName": f"{name} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN",
            "PartitionName": "all Nodes=ALL Default=YES State=UP",
        }
        self.config.write_text("".join(f"{key}={value}\n" for key, value in own.items()))
        for folder in ("state", "spool"):
            (place / folder).mkdir(0o700)
        key = place / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(1024))
        files = {
            "key-file": "munge.key",
            "socket": "munge.sock",
            "pid-file": "munge.pid",
            "seed-file": "seed",
        }
        munge = [f"--{flag}={place / file}" for flag, file in {**files, "log-file": "munge.log"}.items()]
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._start("munged", "--foreground", "--force", f"--socket={place}/munge.sock", *munge)
        self._start("slurmctld", "-D", "-i", "-f", str(self.config))
        self._start("slurmd", "-D", "-N", name, "-f", str(self.config))

    def _start(self, *argv: str) -> None:
        with (self._place / f"{argv[0]}.out").open("wb") as log:
            path = shutil.which(argv[0], path=_PATH)
            assert path is not None
            self._daemons.append(subprocess.Popen([path, *argv[1:]], stdout=log, stderr=log))

    def ready(self) -> bool:
        command = ["srun", "--immediate=1", "--ntasks=2", "true"]
        return subprocess.run(command, capture_output=True, timeout=30).returncode == 0

    def said(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in self._place.glob("*.out"))

    def close(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_for: WaitFor) -> Iterator[Slurm]:
    place = tmp_path / "slurm"
    place.mkdir(0o700)
    tmp_path.chmod(0o755)
    cluster = Slurm(place)
    monkeypatch.setenv("SLURM_CONF", str(cluster.config))
    try:
        wait_for(cluster.ready, timeout_s=40, what="a node that runs tasks")
        yield cluster
    finally:
        print(cluster.said())
        cluster.close()


def test_srun(slurm: Slurm, wait_for: WaitFor) -> None:
    """Results, a failure's cause, a stop with time for a checkpoint, and a kill: through a real Slurm."""
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK".split()
    folder, status = run(f"import os\n[os.environ[n] for n in {names!r}]", 3, mpirun="srun")
    assert status.state is State.SUCCEEDED, (status, launcher_log(folder))
    assert results(folder, 3) == [[rank, rank, "3", "3", "0"] for rank in "012"]

    failing = "import os, time\nif os.environ['RANK'] == '1': raise ValueError('no')\ntime.sleep(600)"
    _, status = run(failing, launcher="slurm")
    assert status.reason == "rank 1 failed: ValueError: no"
    assert [rank.state for rank in status.ranks] == [State.STOPPED, State.FAILED]

    source = """
import os, time
print("up")
try:
    time.sleep(600)
finally:
    time.sleep(2 * int(os.environ["RANK"]))
    print("saved")
"""
    for how, log in (("stop", ["up", "saved"]), ("kill", ["up"])):
        folder = start(source, mpirun="srun")
        wait_for(lambda folder=folder: all(logs(folder, rank) == ["up"] for rank in (0, 1)))
        folder.request(how)
        assert ended(folder).state is State.STOPPED
        assert [logs(folder, rank) for rank in (0, 1)] == [log] * 2
    running = ["squeue", "--noheader", "--states=R"]
    wait_for(lambda: not subprocess.check_output(running), what="the end of all allocations")
