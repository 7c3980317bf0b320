"""The backend `mpi` through a real Slurm: munged, slurmctld and slurmd with a configuration of their own."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.backends.mpi import backend
from jupyter_dist.conformance.deadlines import run_process
from jupyter_dist.conformance.ports import take_port
from jupyter_dist.errors import InputError
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import State, Status
from tests.rigs.hosts import Hosts, missing
from tests.rigs.launching import ended, launch_cell, launcher_log, logs, results, story
from tests.rigs.stopwatch import WaitFor

_CGROUPS = """
if ! mountpoint -q /sys/fs/cgroup; then
  if grep -q name=systemd /proc/self/cgroup; then
    mount -t tmpfs cgroup /sys/fs/cgroup
    mkdir /sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
  else
    mount -t cgroup2 cgroup /sys/fs/cgroup
  fi
fi
"""
"""slurmd does not start without; hosts have none."""
_PROGRAMS = {"slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client", "munged": "munge"}
_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
_LACKING = [package for program, package in _PROGRAMS.items() if not shutil.which(program, path=_PATH)]
pytestmark = [
    pytest.mark.skipif(bool(_LACKING), reason=f"needs Slurm: apt-get install {' '.join(_LACKING)}"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: slurmd starts tasks as other users"),
]


def start(source: str, np: int = 2, **options: Any) -> RunFolder:
    return launch_cell("mpi", source, np, options)


def run(source: str, np: int = 2, **options: Any) -> tuple[RunFolder, Status]:
    folder = start(source, np, **options)
    return folder, ended(folder)


class Slurm:
    """A Slurm whose only node is this machine, or whose nodes are `hosts`, which see `place` as well."""

    def __init__(self, place: Path, hosts: Hosts | None = None) -> None:
        self.config = place / "slurm.conf"
        self._place = place
        self._sockets = Path("/run", f"jupyter-dist-slurm-{os.getpid()}")
        self._sockets.mkdir(0o755, exist_ok=True)
        name = socket.gethostname().partition(".")[0]
        controller, daemon = take_port(), take_port()
        here = "127.0.0.1" if hosts is None else hosts.driver_address
        nodes = {name: here} if hosts is None else {name: hosts.address(name) for name in hosts.names}
        described = "\nNodeName=".join(
            f"{node} NodeAddr={address} CPUs=8 State=UNKNOWN" for node, address in nodes.items()
        )
        own = {
            "ClusterName": "one",
            "SlurmctldHost": f"{name}({here})",
            "SlurmUser": "root",
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={self._sockets}/munge.sock",
            "CredType": "cred/munge",
            "SlurmctldPort": controller,
            "SlurmdPort": daemon,
            "StateSaveLocation": place / "state",
            "SlurmdSpoolDir": place / "spool-%n",
            "SlurmctldPidFile": place / "slurmctld.pid",
            "SlurmdPidFile": place / "slurmd-%n.pid",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "MpiDefault": "none",
            "ReturnToService": 2,
            "SlurmdParameters": "config_overrides",
            "NodeName": described,
            "PartitionName": "all Nodes=ALL Default=YES State=UP",
        }
        self.config.write_text("".join(f"{key}={value}\n" for key, value in own.items()))
        for folder in ("state", *(f"spool-{node}" for node in nodes)):
            (place / folder).mkdir(0o700)
        key = place / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(1024))
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._start("munged", *self._munge(key))
        self._start("slurmctld", "-D", "-i", "-f", str(self.config))
        for node in nodes:
            if hosts is not None:
                self._start("munged", *self._munge(key), node=node, hosts=hosts)
            self._start("slurmd", "-D", "-N", node, "-f", str(self.config), node=node, hosts=hosts)

    def _munge(self, key: Path) -> list[str]:
        own = {"key-file": key, "socket": f"{self._sockets}/munge.sock"}
        own |= {f"{name}-file": f"{self._sockets}/munge.{name}" for name in ("pid", "seed", "log")}
        return ["--foreground", "--force", *(f"--{flag}={value}" for flag, value in own.items())]

    def _start(self, *argv: str, node: str = "", hosts: Hosts | None = None) -> None:
        path = shutil.which(argv[0], path=_PATH)
        assert path is not None
        with (self._place / f"{argv[0]}{node}.out").open("wb") as log:
            if hosts is None:
                self._daemons.append(subprocess.Popen([path, *argv[1:]], stdout=log, stderr=log))
                return
            prepare = _CGROUPS if argv[0] == "slurmd" else "\n"
            make = ["sh", "-c", f'mkdir -p "$0"{prepare}exec "$@"', str(self._sockets), path, *argv[1:]]
            self._daemons.append(hosts.popen(node, make, stdout=log, stderr=log))

    def ready(self) -> bool:
        command = ["srun", "--immediate=1", "--ntasks=2", "true"]
        return run_process(command).returncode == 0

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
        shutil.rmtree(self._sockets)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_for: WaitFor) -> Iterator[Slurm]:
    place = tmp_path / "slurm"
    place.mkdir(0o700)
    tmp_path.chmod(0o755)
    cluster = Slurm(place)
    monkeypatch.setenv("SLURM_CONF", str(cluster.config))
    try:
        wait_for(cluster.ready, what="a node that runs tasks")
        yield cluster
    finally:
        print(cluster.said())
        cluster.close()


def test_srun(slurm: Slurm, wait_for: WaitFor) -> None:
    """Results, a failure's cause, a stop with time for a checkpoint, and a kill: through a real Slurm."""
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK".split()
    folder, status = run(f"import os\n[os.environ[n] for n in {names!r}]", 3, mpirun="srun")
    assert status.state is State.SUCCEEDED, story(folder)
    assert results(folder, 3) == [[rank, rank, "3", "3", "0"] for rank in "012"]

    failing = "import os, time\nif os.environ['RANK'] == '1': raise ValueError('no')\ntime.sleep(600)"
    _, status = run(failing, launcher="slurm")
    assert status.reason == "rank 1 failed: ValueError: no"
    assert [rank.state for rank in status.ranks] == [State.STOPPED, State.FAILED]

    source = """
import os, time
try:
    print("up")
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


def test_srun_over_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_for: WaitFor) -> None:
    """Ranks on two nodes find each other; within an allocation they are a step of it, and end with it."""
    lacking = missing()
    if lacking:
        pytest.skip(lacking)
    place = tmp_path / "shared"
    place.mkdir(0o755)
    tmp_path.chmod(0o755)
    monkeypatch.setenv("SLURM_CONF", str(place / "slurm.conf"))
    monkeypatch.setenv("JUPYTER_DIST_RUNS", str(place / "runs"))
    (place / "runs").mkdir(0o700)
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")  # which the nodes do not see
    source = """
import os, socket
import torch
import jupyter_dist as dist

dist.init()
total = torch.ones(())
torch.distributed.all_reduce(total)
names = "LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR SLURM_JOB_ID OMP_NUM_THREADS".split()
place = os.getcwd()
socket.gethostname(), total.item(), place, [os.environ[name] for name in names], os.environ["TF_CONFIG"]
"""
    with Hosts(tmp_path / "hosts", ["h1", "h2"], shared=[place]) as hosts:
        cluster = Slurm(place, hosts)
        try:
            wait_for(cluster.ready, what="nodes that run tasks")
            allocate = ["salloc", "--nodes=2", "--no-shell"]
            granted = run_process(allocate, check=True).stderr
            (job,) = re.findall(r"Granted job allocation (\d+)", granted)
            monkeypatch.setenv("SLURM_JOB_ID", job)
            monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
            monkeypatch.setenv("SLURM_JOB_NODELIST", "h[1-2]")
            folder, status = run(source, 3, launcher="slurm", mpi_args="--nodes=2")
            assert status.state is State.SUCCEEDED, story(folder)
            found = results(folder, 3)
            assert [host for host, *_ in found] == ["h1", "h1", "h2"]
            assert [total for _, total, *_ in found] == [3.0] * 3
            assert {where for _, _, where, *_ in found} == {str(Path.home())}
            assert [values for *_, values, _ in found] == [
                ["0", "2", "0", "h1", job, "1"],
                ["1", "2", "0", "h1", job, "1"],
                ["0", "1", "1", "h1", job, str(len(os.sched_getaffinity(0)))],
            ]
            workers = json.loads(found[0][-1])["cluster"]["worker"]
            assert [worker.partition(":")[0] for worker in workers] == ["h1", "h1", "h2"]
            with pytest.raises(InputError, match=r"a Slurm allocation of several nodes, .* --launcher slurm"):
                backend.Mpi().check(2, {"launcher": "openmpi", "mpirun": "true"})

            with monkeypatch.context() as patch:
                patch.setenv("JUPYTER_DIST_RUNS", str(tmp_path / "unseen"))
                (tmp_path / "unseen").mkdir(0o700)
                _, status = run("1", launcher="slurm", mpi_args="--nodes=2")
                assert re.search(
                    r"the node h\d cannot read .*\. Start JupyterLab with JUPYTER_DIST_RUNS",
                    status.reason or "",
                )

            endless = start(
                "import time\nprint('up')\ntime.sleep(600)", launcher="slurm", mpi_args="--nodes=2"
            )
            wait_for(lambda: all(logs(endless, rank) == ["up"] for rank in (0, 1)), what="the ranks")
            subprocess.run(["scancel", job], check=True)
            status = ended(endless)
            assert status.state is State.FAILED
            assert "CANCELLED" in launcher_log(endless), launcher_log(endless)
            wait_for(
                lambda: not any("worker" in " ".join(p.argv) for n in hosts.names for p in hosts.pids(n))
            )
        finally:
            print(cluster.said())
            cluster.close()
