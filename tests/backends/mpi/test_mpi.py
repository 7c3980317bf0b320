"""The backend `mpi` beyond what every backend does: whose mpirun it is, mpi4py, Slurm, whole lines."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.backends.mpi import backend as mpi
from jupyter_dist.backends.mpi import options
from jupyter_dist.errors import InputError, MissingEngine
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Job, State, Status
from jupyter_dist.plan.run_plan import read_command_line
from jupyter_dist.record import reader
from tests.rigs.launching import ended, launch_cell, launcher_log, logs, only_child, results, until_up
from tests.rigs.stopwatch import WaitFor

pytestmark = pytest.mark.usefixtures("warm")


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
    return launch_cell("mpi", source, np, options, max_restarts=max_restarts)


def run(source: str, np: int = 2, **options: Any) -> tuple[RunFolder, Status]:
    folder = start(source, np, **options)
    return folder, ended(folder)


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
    if not found:
        pytest.skip("needs a launcher: apt-get install openmpi-bin")


def test_each_launcher_gets_its_own_arguments() -> None:
    ours = mpi.arguments("openmpi", 4, root=True)
    assert ours[0] == "--allow-run-as-root"
    assert ours[-2:] == ["-np", "4"]
    assert "--allow-run-as-root" not in mpi.arguments("openmpi", 4, root=False)
    for version in (OPEN_MPI_4, "mpirun.openmpi (OpenRTE) 4.1.4", "mpirun (Open MPI) 10.4 of somebody's"):
        assert (
            "orte_abort_on_non_zero_status" in mpi.arguments("openmpi", 4, root=True, version=version)
        ) == ("4.1.4" in version)
    assert "--runtime-options" in mpi.arguments("openmpi", 4, root=True, version=OPEN_MPI_5)
    assert mpi.arguments("mpich", 4, root=True) == ["-disable-auto-cleanup", "-n", "4"]
    assert mpi.arguments("intel", 4, root=True) == ["-n", "4"]
    assert mpi.arguments("slurm", 4, root=False)[:2] == ["--ntasks", "4"]


@pytest.mark.parametrize(
    ("more", "placed"),
    [
        ([], ["--map-by", "slot", "--bind-to", "none"]),
        (["--bind-to", "core"], ["--map-by", "slot"]),
        (["-map-by", "ppr:2:node"], ["--bind-to", "none"]),
        (["--map-by=node", "--bind-to=socket"], []),
        (["--rankfile", "r.txt"], []),
        (["-N", "2"], ["--bind-to", "none"]),
        (["--map-by", "slot:PE=2"], []),
        (["--map-by=ppr:2:node:pe=4"], []),
    ],
)
def test_ranks_fill_slot_after_slot_unbound_unless_told_otherwise(more: list[str], placed: list[str]) -> None:
    argv = mpi.arguments("openmpi", 4, root=False, version=OPEN_MPI_5, more=more)
    assert argv[argv.index("error-nonzero-status=false") + 1 : -2] == placed


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
    with pytest.raises(InputError, match="--mpirun 'nowhere' is not an executable program"):
        backend.check(2, {"mpirun": "nowhere"})
    with pytest.raises(InputError, match=r"from its version, '.*'\. Name it with --launcher"):
        backend.check(2, {"mpirun": "ls"})
    with pytest.raises(ValueError, match="a quote is not closed"):
        options.MpiOptions(mpi_args="--x 'y")
    with pytest.raises(ValueError, match="cannot contain -np: write -np outside --mpi-args"):
        options.MpiOptions(mpi_args="--bind-to core -np 4")
    with pytest.raises(
        ValueError, match="cannot contain --hostfile=hosts: write -H or --hostfile outside --mpi-args"
    ):
        options.MpiOptions(mpi_args="--hostfile=hosts")
    with pytest.raises(InputError, match=r"--map-by is a flag of mpirun or srun. .* '--map-by …'"):
        read_command_line("--backend mpi --map-by node")
    with pytest.raises(InputError, match="did you mean --hostfile"):
        read_command_line("--backend mpi --hostfiel x")


def test_an_mpi_beside_the_notebooks_python_is_found_where_it_is_not_on_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mpirun = tmp_path / "mpirun"
    mpirun.write_text('#!/bin/sh\nexec mpiexec.hydra "$@"\n')
    hydra = tmp_path / "mpiexec.hydra"
    hydra.write_text(f"#!/bin/sh\necho '{INTEL.splitlines()[0]}'\n")
    for program in (mpirun, hydra):
        program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    assert mpi._program(options.MpiOptions()) == str(mpirun)
    assert mpi.Mpi().detect()["Intel MPI"] == "2021.13", "and so is what it calls itself"
    monkeypatch.setattr("sys.executable", sys.executable)
    monkeypatch.chdir(tmp_path)
    assert options.MpiOptions(mpirun="./mpirun").mpirun == str(mpirun), "the supervisor has another folder"


def test_a_missing_engine_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        MissingEngine, match=r"needs mpirun, mpiexec or srun. .*: apt-get install openmpi-bin"
    ):
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
import jupyter_dist as dist
dist.barrier()
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
try:
    print("up")
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


def test_a_rank_that_comes_up_after_the_stop_hears_of_it(tmp_path: Path, wait_for: WaitFor) -> None:
    if shutil.which("mpiexec.mpich") is None:
        pytest.skip("needs mpiexec.mpich: apt-get install mpich")
    slow = tmp_path / "mpirun"
    # It is also asked for its version, before the run: it is up when it is to start ranks.
    up = f"case $* in *jupyter_dist.worker*) touch {tmp_path}/up;; esac"
    slow.write_text(f"#!/bin/sh\ntrap '' TERM\n{up}\nsleep 1\nexec mpiexec.mpich \"$@\"\n")
    slow.chmod(0o755)
    source = "import time\ntry:\n    time.sleep(600)\nfinally:\n    print('saved')"
    folder = launch_cell("mpi", source, 2, {"mpirun": str(slow), "launcher": "mpich"}, stop_grace=600)
    wait_for((tmp_path / "up").exists)
    folder.request("stop")
    status = ended(folder)
    assert status.state is State.STOPPED
    assert [rank.exit_code for rank in status.ranks] == [143, 143], "not killed"


@needs_mpich
@pytest.mark.parametrize("late_s", [0, 4])
def test_who_has_called_mpi_abort(late_s: int, tmp_path: Path) -> None:
    """MPICH's mpirun kills all ranks then, and with them most processes that would say how they ended.

    Some do say it, and may do so while mpirun has yet to end.
    """
    slow = tmp_path / "mpirun"
    slow.write_text(f'#!/bin/sh\nmpiexec.mpich "$@"\ncode=$?\nsleep {late_s}\nexit $code\n')
    slow.chmod(0o755)
    source = """
import ctypes, os
mpi, world = ctypes.CDLL("libmpich.so.12"), 0x44000000
mpi.MPI_Init(None, None)
mpi.MPI_Barrier(world)
if os.environ["RANK"] == "1":
    mpi.MPI_Abort(world, 3)
mpi.MPI_Barrier(world)
"""
    _, status = run(source, 3, mpirun=str(slow), launcher="mpich")
    assert status.reason == "rank 1 ended with exit code 3"
    assert [rank.state for rank in status.ranks] == [State.STOPPED, State.FAILED, State.STOPPED]


@needs_openmpi
@pytest.mark.needs("mpi4py")
def test_a_rank_without_mpi_among_ranks_with_it(tmp_path: Path) -> None:
    # mpirun knows of a rank's MPI once its PMIx_Init has returned. MPI_Init itself waits for rank 0.
    source = f"""
import ctypes, os, pathlib, time
known = pathlib.Path({str(tmp_path)!r})
if os.environ["RANK"] == "0":
    while len(list(known.iterdir())) < 2:
        time.sleep(0.01)
else:
    assert ctypes.CDLL("libpmix.so.2").PMIx_Init(ctypes.create_string_buffer(1024), None, 0) == 0
    (known / os.environ["RANK"]).touch()
    from mpi4py import MPI
"""
    _, status = run(source, 3, mpirun="mpirun.openmpi")
    assert "rank 0 ended without MPI_Init or without MPI_Finalize" in (status.reason or "")


@both
def test_ranks_end_with_their_launcher(mpirun: str) -> None:
    folder = start("import time\nprint('up')\ntime.sleep(600)", mpirun=mpirun)
    supervisor = until_up(folder).supervisor
    assert supervisor is not None
    os.kill(only_child(supervisor.pid, "jupyter_dist.worker"), signal.SIGKILL)
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
