"""The backend `mpi` beyond what every backend does: whose mpirun it is, mpi4py, Slurm, whole lines."""

from __future__ import annotations

import os
import shutil
import signal
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
from jupyter_dist.errors import InputError, MissingEngine
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Job, State, Status
from jupyter_dist.worker import payload as container

WaitFor = Callable[..., Any]


def program(name: str, package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(name) is None, reason=f"needs {name}: apt-get install {package}")


needs_openmpi = program("mpirun.openmpi", "openmpi-bin")
needs_mpich = program("mpiexec.mpich", "mpich")
both = pytest.mark.parametrize(
    "mpirun",
    [
        pytest.param("mpirun.openmpi", marks=needs_openmpi),
        pytest.param("mpiexec.mpich", marks=needs_mpich),
    ],
)


def start(source: str, np: int = 2, max_restarts: int = 0, **options: Any) -> RunFolder:
    payload = capture_cell(source, {}, label="In[1]", directory=Path.cwd())
    wanted = mpi.MpiOptions(**options).model_dump(mode="json")
    request = launch.Request("mpi", np, source, "In[1]", options=wanted, max_restarts=max_restarts, cold=True)
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


def launcher_log(folder: RunFolder, attempt: int = 0) -> str:
    return (folder.path / "attempts" / str(attempt) / "launcher.log").read_text()


def logs(folder: RunFolder, rank: int) -> list[str]:
    return reader.output(folder, rank).decode().splitlines()


def results(folder: RunFolder, np: int) -> list[Any]:
    return [container.load(folder.rank(0, rank).result) for rank in range(np)]


OPEN_MPI_4 = "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/"
OPEN_MPI_5 = "mpirun (Open MPI) 5.0.5\n\nReport bugs to https://www.open-mpi.org/community/help/"
HYDRA = "HYDRA build details:\n    Version:                                 4.0.2\n    CC:  gcc"
INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.13 Build 20240701\nCopyright 2003-2024"


@pytest.mark.parametrize(
    ("path", "version", "kind"),
    [
        ("/usr/bin/mpirun", OPEN_MPI_4, "openmpi"),
        ("/usr/bin/mpirun", OPEN_MPI_5, "openmpi"),
        ("/usr/bin/prterun", "prterun (PRRTE) 3.0.6", "openmpi"),
        ("/usr/bin/mpiexec", HYDRA, "mpich"),
        ("/opt/intel/mpirun", INTEL, "intel"),
        ("/usr/bin/srun", "slurm 23.11.4", "slurm"),
        ("/usr/bin/srun", "srun: fatal: Could not establish a configuration source", "slurm"),
        ("/usr/bin/mpirun", "something else 1.0", None),
        ("/usr/bin/mpirun", "", None),
    ],
)
def test_launchers_are_told_apart(path: str, version: str, kind: str | None) -> None:
    assert mpi.told_apart(path, version) == kind


def test_the_programs_that_are_here_are_told_apart() -> None:
    found = {}
    for name in (
        "mpirun.openmpi",
        "mpiexec.openmpi",
        "mpirun.mpich",
        "mpiexec.mpich",
        "mpiexec.hydra",
        "srun",
    ):
        path = shutil.which(name)
        if path is not None:
            found[name] = mpi.told_apart(path, mpi._version(path))
    assert found == {
        name: "openmpi" if "openmpi" in name else "slurm" if name == "srun" else "mpich" for name in found
    }
    assert found, "apt-get install openmpi-bin"


def test_each_launcher_gets_its_own_arguments() -> None:
    ours = mpi.arguments("openmpi", 4, root=True)
    assert ours[0] == "--allow-run-as-root"
    assert ours[-2:] == ["-np", "4"]
    assert "--allow-run-as-root" not in mpi.arguments("openmpi", 4, root=False)
    assert mpi.arguments("mpich", 4, root=True) == ["-disable-auto-cleanup", "-n", "4"]
    assert mpi.arguments("intel", 4, root=True) == ["-n", "4"]
    assert mpi.arguments("slurm", 4, root=False)[:2] == ["--ntasks", "4"]


@needs_openmpi
def test_the_request_is_what_is_started() -> None:
    options = {"mpirun": "mpirun.openmpi", "mpi_args": "--bind-to core -x 'A B'"}
    job = Job("id", "mpi", 3, 0.0, "/cwd", "/py", "1", options=options)
    request = mpi.Mpi().request(job)
    assert request["argv"][0] == shutil.which("mpirun.openmpi")
    assert request["argv"][-9:] == [
        *("-np", "3", "--bind-to", "core", "-x", "A B"),
        *("/py", "-m", "jupyter_dist.worker"),
    ]
    assert request["env"]["MASTER_PORT"] == "0", "no port is taken for it"
    assert request["env"]["JUPYTER_DIST_LAUNCHER"] == "mpi"


def test_bad_input() -> None:
    backend = mpi.Mpi()
    with pytest.raises(InputError, match="--mpirun 'nowhere' is not a program"):
        backend.check(2, {"mpirun": "nowhere"})
    with pytest.raises(InputError, match=r"says '.*' about its version: say whose it is with --launcher"):
        backend.check(2, {"mpirun": "ls"})
    with pytest.raises(ValueError, match="a quote is not closed"):
        mpi.MpiOptions(mpi_args="--x 'y")


def test_a_missing_engine_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingEngine, match="needs mpirun, mpiexec or srun: apt-get install openmpi-bin"):
        mpi.Mpi().check(2, {})
    assert mpi.Mpi().detect() == {}


@needs_openmpi
@pytest.mark.needs("mpi4py")
def test_mpi4py_works_in_a_cell() -> None:
    source = """
import atexit
from mpi4py import MPI
import jupyter_dist as dist

world = MPI.COMM_WORLD
assert (world.rank, world.size) == (dist.rank(), dist.world_size())
atexit.register(lambda: print("last:", world.allreduce(world.rank)))
world.allgather(world.rank * 10)
"""
    folder, status = run(source, 3, mpirun="mpirun.openmpi")
    assert status.state is State.SUCCEEDED, (status, launcher_log(folder))
    assert results(folder, 3) == [[0, 10, 20]] * 3
    assert [logs(folder, rank) for rank in range(3)] == [["last: 3"]] * 3, "MPI is there until the end"
    assert launcher_log(folder) == "", "every rank has taken its leave"


@needs_openmpi
@pytest.mark.needs("mpi4py")
def test_a_failing_rank_among_ranks_that_wait_in_mpi() -> None:
    source = """
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 1:
    raise ValueError("no")
MPI.COMM_WORLD.recv(source=1)
"""
    _, status = run(source, 3, mpirun="mpirun.openmpi")
    assert status.reason == "rank 1 failed: ValueError: no"
    assert [rank.state for rank in status.ranks] == [State.STOPPED, State.FAILED, State.STOPPED]


@both
def test_torch_and_tensorflow_find_their_variables(mpirun: str) -> None:
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR"
    source = f"import os\n[os.environ[n] for n in {names.split()!r}], os.environ['TF_CONFIG']"
    folder, _ = run(source, 3, mpirun=mpirun)
    found = results(folder, 3)
    assert [values for values, _ in found] == [[r, r, "3", "3", "0", "127.0.0.1"] for r in "012"]
    assert len({config for _, config in found}) == 3


@both
def test_the_first_rank_to_fail_is_the_cause(mpirun: str) -> None:
    source = """
import os, signal, time
time.sleep(0.3)
if os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""
    _, status = run(source, 3, mpirun=mpirun)
    assert (status.state, status.reason) == (State.FAILED, "rank 1 was ended by SIGKILL")
    assert [rank.state for rank in status.ranks] == [State.STOPPED, State.FAILED, State.STOPPED]
    assert status.ranks[1].signal == signal.SIGKILL


@both
def test_a_stopped_rank_has_its_time_after_others_have_ended(mpirun: str, wait_for: WaitFor) -> None:
    """mpirun would end all ranks a second after the first."""
    source = """
import os, time
print("up")
try:
    time.sleep(600)
finally:
    time.sleep(2.5 * int(os.environ["RANK"]))
    print("saved")
"""
    folder = start(source, mpirun=mpirun)
    wait_for(lambda: all(logs(folder, rank) == ["up"] for rank in (0, 1)))
    folder.request("stop")
    assert ended(folder).state is State.STOPPED
    assert [logs(folder, rank) for rank in (0, 1)] == [["up", "saved"]] * 2


@both
def test_ranks_end_with_their_launcher(mpirun: str, wait_for: WaitFor) -> None:
    folder = start("import time\nprint('up')\ntime.sleep(600)", mpirun=mpirun)
    wait_for(lambda: all(logs(folder, rank) == ["up"] for rank in (0, 1)))
    supervisor = reader.status(folder).supervisor
    assert supervisor is not None
    children = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text().split()
    (launcher,) = (
        int(pid) for pid in children if b"jupyter_dist.worker" in Path("/proc", pid, "cmdline").read_bytes()
    )
    os.kill(launcher, signal.SIGKILL)
    status = ended(folder)
    assert status.state is State.FAILED
    assert "was ended by SIGKILL, and its ranks with it" in (status.reason or "")
    assert all(rank.pid and reader.start_ticks(rank.pid) is None for rank in status.ranks)


@needs_openmpi
def test_what_mpirun_says_is_the_reason_where_no_rank_tells() -> None:
    folder, status = run("1", mpirun="mpirun.openmpi", mpi_args="--bogus")
    assert status.state is State.FAILED
    assert status.reason is not None
    assert status.reason.startswith("mpirun.openmpi ended with exit code")
    assert 'unknown option "--bogus"' in status.reason
    assert "--bogus" in launcher_log(folder)


@pytest.mark.serial
@needs_openmpi
def test_no_line_is_torn_or_lost(tmp_path: Path) -> None:
    """8 ranks, 50,000 lines each, short and long ones. mpirun itself tears some of them (facts)."""
    source = """
import os
rank = os.environ["RANK"]
for n in range(50_000):
    print(rank, n, "x" * (20 if n % 50 else 4000))
"""
    folder, status = run(source, 8, mpirun="mpirun.openmpi")
    assert status.state is State.SUCCEEDED
    for rank in range(8):
        expected = "".join(f"{rank} {n} {'x' * (20 if n % 50 else 4000)}\n" for n in range(50_000))
        assert reader.output(folder, rank).decode() == expected


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
            path = shutil.which(argv[0], path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
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


@program("slurmctld", "slurmctld slurmd slurm-client munge")
@program("srun", "slurm-client")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: slurmd starts tasks as other users")
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
