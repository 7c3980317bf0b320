"""Ranks under a launcher: what they take from its variables, how they end, and what is made of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist import folder
from jupyter_dist.backends.launchers.local_launcher import environment, last_words
from jupyter_dist.capture.payload_builder import capture_cell
from jupyter_dist.conformance.deadlines import output_of, wait_for_exit
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Job
from jupyter_dist.record import reader
from jupyter_dist.worker import payload as container
from jupyter_dist.worker.launchers import launched_rank, srun_rank
from tests.rigs.rank_maker import ranks
from tests.rigs.stopwatch import WaitFor

OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}
HYDRA = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}
SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_NTASKS": "9",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
}
HOROVOD = {
    "HOROVOD_RANK": "5",
    "HOROVOD_SIZE": "8",
    "HOROVOD_LOCAL_RANK": "1",
    "HOROVOD_LOCAL_SIZE": "4",
    "HOROVOD_CROSS_RANK": "1",
}
WITHIN_SLURM = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2"}
"""What a batch script has, and so has every mpirun in it."""


def translated(launcher: str, said: Mapping[str, str]) -> dict[str, str]:
    base = {launched_rank.LAUNCHER: launcher, "JUPYTER_DIST_ATTEMPT": "0"}
    return launched_rank.translated({**base, **said})


@pytest.mark.parametrize(
    ("launcher", "said"),
    [
        ("mpi", OPEN_MPI),
        ("mpi", HYDRA),
        ("mpi", SLURM),
        ("mpi", {**WITHIN_SLURM, **OPEN_MPI}),
        ("mpi", {**WITHIN_SLURM, **HYDRA}),
        ("horovod", {**OPEN_MPI, **HOROVOD}),
        ("horovod", OPEN_MPI),
    ],
)
def test_a_rank_is_what_its_launcher_says(launcher: str, said: Mapping[str, str]) -> None:
    found = translated(launcher, said)
    assert found == {
        "JUPYTER_DIST_ATTEMPT": "0",
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "GROUP_RANK": "1",
    }


def test_slurms_nodes_may_have_different_numbers_of_tasks() -> None:
    uneven = {**SLURM, "SLURM_STEP_TASKS_PER_NODE": "1(x3),4,2", "SLURM_NODEID": "3"}
    assert translated("mpi", uneven)["LOCAL_WORLD_SIZE"] == "4"
    assert translated("mpi", {**uneven, "SLURM_NODEID": "4"})["LOCAL_WORLD_SIZE"] == "2"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("h1", ["h1"]),
        ("h[1-3]", ["h1", "h2", "h3"]),
        ("h[08-10,12],login", ["h08", "h09", "h10", "h12", "login"]),
        ("r[1-2]n[1-2]-ib", ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]),
        ("", []),
    ],
)
def test_slurms_names_of_nodes(text: str, names: list[str]) -> None:
    assert list(srun_rank.names(text)) == names


def test_srun_may_deal_tasks_out_in_turn() -> None:
    said = {"SLURM_STEP_NODELIST": "h[1-2]", "SLURM_STEP_TASKS_PER_NODE": "3,1", "SLURM_NODEID": "1"}
    said |= {"JUPYTER_DIST_TF_WORKERS": "x:1,x:2,x:3,x:4", "SLURM_CPUS_PER_TASK": "1"}
    found = srun_rank.meeting({**said, "SLURM_DISTRIBUTION": "cyclic"})
    assert found["JUPYTER_DIST_TF_WORKERS"] == "h1:1,h2:2,h1:3,h1:4"
    assert (found["MASTER_ADDR"], found["OMP_NUM_THREADS"]) == ("h1", "1")
    assert srun_rank.meeting(said)["JUPYTER_DIST_TF_WORKERS"] == "h1:1,h1:2,h1:3,h2:4"
    plane = srun_rank.meeting({**said, "SLURM_DISTRIBUTION": "plane", "SLURM_DIST_PLANESIZE": "2"})
    assert plane["JUPYTER_DIST_TF_WORKERS"] == "h1:1,h1:2,h2:3,h1:4"
    alone = srun_rank.meeting({**said, "SLURM_STEP_NODELIST": "h1", "SLURM_STEP_TASKS_PER_NODE": "4"})
    assert "MASTER_ADDR" not in alone


def test_torchruns_restarts_are_attempts_and_its_variables_are_left_alone() -> None:
    said = {"RANK": "1", "TORCHELASTIC_RESTART_COUNT": "2", "JUPYTER_DIST_ATTEMPT": "1"}
    assert translated("torchrun", said) == {"JUPYTER_DIST_ATTEMPT": "3"}


def test_a_launcher_that_does_not_say_which_rank_is_an_error() -> None:
    with pytest.raises(KeyError, match="mpi did not set the rank of this process"):
        translated("mpi", {"SLURM_NTASKS": "2"})


def test_each_rank_has_its_own_tf_config() -> None:
    found = translated("mpi", {**OPEN_MPI, "JUPYTER_DIST_TF_WORKERS": "a:1,b:2"})
    assert json.loads(found["TF_CONFIG"]) == {
        "cluster": {"worker": ["a:1", "b:2"]},
        "task": {"type": "worker", "index": 5},
    }


class Place:
    """A run folder with a cell in it, whose ranks are started by hand as a launcher would."""

    def __init__(self, root: Path) -> None:
        self.folder: RunFolder = folder.create(root, folder.new_id(), 1)
        self.exit = self.folder.rank(0, 0).path / "exit.json"

    def start(
        self, source: str, program: Sequence[str] = ("-m", "jupyter_dist.worker"), **env: str
    ) -> subprocess.Popen[bytes]:
        payload = capture_cell(source, {}, label="In[1]", directory=Path.cwd())
        payload.write(self.folder.payload)
        said = {
            launched_rank.LAUNCHER: "mpi",
            "OMPI_COMM_WORLD_RANK": "0",
            "OMPI_COMM_WORLD_SIZE": "1",
            "JUPYTER_DIST_RUN": str(self.folder.path),
            "JUPYTER_DIST_RUN_ID": self.folder.id,
            "JUPYTER_DIST_ATTEMPT": "0",
        }
        root = Path(container.__file__).parents[2]
        return subprocess.Popen(
            [sys.executable, *program],
            env={**os.environ, **said, **env},
            cwd=root,
            start_new_session=True,
        )

    def said(self) -> dict[str, Any]:
        return dict(json.loads(self.exit.read_bytes()))

    def log(self) -> str:
        return reader.output(self.folder, 0, 0).decode()


@pytest.fixture
def place(own_folders: Path) -> Place:
    return Place(own_folders)


@pytest.mark.parametrize(
    ("source", "code", "signum"),
    [
        ("1", 0, None),
        ("raise ValueError('no')", 1, None),
        ("import sys; sys.exit(7)", 7, None),
        ("import os; os._exit(9)", 9, None),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", None, signal.SIGKILL),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", None, signal.SIGSEGV),
        ("import os; os.abort()", None, signal.SIGABRT),
    ],
)
def test_the_launcher_sees_the_rank_end_as_it_ended(
    place: Place, source: str, code: int | None, signum: int | None
) -> None:
    process = place.start(source)
    # Some mpirun kill all ranks when one of their processes was ended by a signal.
    assert wait_for_exit(process) == (code if signum is None else 128 + signum)
    said = place.said()
    assert (said["exit_code"], said["signal"]) == (code, signum)
    (started,) = (event for event in reader.events(place.folder) if event.kind == "started")
    assert said["pid"] == started.data["pid"] != process.pid
    assert said["host"] == started.data["host"]
    assert started.time <= said["ended"]
    assert 5e6 < said["peak_memory_bytes"] < 1e9
    assert {path.name for path in place.exit.parent.glob(".*")} == set(), "nothing is left over"


def test_torchrun_sees_the_signal_too(place: Place) -> None:
    by = {launched_rank.LAUNCHER: "torchrun", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    by |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "TORCHELASTIC_RESTART_COUNT": "0"}
    process = place.start("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", **by)
    assert wait_for_exit(process) == -signal.SIGKILL
    assert place.said()["signal"] == signal.SIGKILL


def test_signals_are_passed_on(place: Place, wait_for: WaitFor) -> None:
    source = """
import signal, time
signal.signal(signal.SIGUSR1, lambda *_: print("one"))
signal.signal(signal.SIGUSR2, lambda *_: print("two"))
try:
    print("up")
    time.sleep(60)
finally:
    print("saved")
"""
    process = place.start(source)
    wait_for(lambda: "up" in place.log())
    process.send_signal(signal.SIGUSR1)
    wait_for(lambda: "one" in place.log())
    process.send_signal(signal.SIGUSR2)
    wait_for(lambda: "two" in place.log())
    process.send_signal(signal.SIGTERM)
    assert wait_for_exit(process) == 143
    assert place.log() == "up\none\ntwo\nsaved\n"


ASKED_EARLY = """
import os, signal
from jupyter_dist.worker.launchers import launched_rank
from jupyter_dist.worker.stack_signals import ALL_STACKS_SIGNAL, STACK_SIGNAL
both = STACK_SIGNAL, ALL_STACKS_SIGNAL
for signum in both:
    signal.signal(signum, signal.SIG_DFL)  # as sshd starts a process
launched_rank.enter()
for signum in both:
    os.kill(os.getpid(), signum)
os._exit(0)
"""


def test_a_rank_that_starts_outlives_the_question_for_its_stacks(place: Place) -> None:
    assert wait_for_exit(place.start("1", ("-c", ASKED_EARLY))) == 0
    assert place.said()["exit_code"] == 0


STOPPED = """
import signal
from jupyter_dist.worker import __main__ as rank

def stopped(*_):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(600)

rank.cell.run = lambda *_: (0, True)
rank.{moment} = stopped
try:
    rank.main()
except BaseException:
    os._exit(70)  # as where a rank is started, once the log has the traceback
"""


@pytest.mark.parametrize("moment", ["cell.run", "_keep_store"])
def test_a_stop_before_the_cell_and_after_it_is_no_fault_of_the_rank(tmp_path: Path, moment: str) -> None:
    """It ends as one that is stopped in the cell, and its log shows nothing of ours."""
    (rank,) = ranks(tmp_path, STOPPED.format(moment=moment), 1)
    assert output_of(rank) == ("", "")
    assert rank.returncode == 128 + signal.SIGTERM
    assert (tmp_path / "attempts" / "0" / "ranks" / "0" / "output.log").read_text() == ""


def test_a_rank_does_not_outlive_the_process_that_stands_for_it(place: Place, wait_for: WaitFor) -> None:
    process = place.start("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)")
    wait_for(lambda: place.log().endswith("\n"))
    process.kill()
    assert wait_for_exit(process) == -signal.SIGKILL
    rank = int(place.log())
    wait_for(lambda: reader.start_ticks(rank) is None)
    assert not place.exit.exists(), "nobody was there to say it"


def test_what_the_rank_started_ends_with_it(place: Place, wait_for: WaitFor) -> None:
    process = place.start("import subprocess\nprint(subprocess.Popen(['sleep', '600']).pid)")
    assert wait_for_exit(process) == 0
    child = int(place.log())
    wait_for(lambda: reader.start_ticks(child) is None)


def test_the_process_that_waits_is_small(place: Place, wait_for: WaitFor) -> None:
    """Python itself takes 3 MB: a host may have a hundred of them."""
    process = place.start("import time\nprint('up')\ntime.sleep(600)")
    wait_for(lambda: "up" in place.log())
    text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    process.terminate()
    wait_for_exit(process)
    assert sum(map(int, re.findall(r"^Private_\w+: +(\d+) kB", text, re.MULTILINE))) < 8_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB, for root."""
    place = tmp_path / "small"
    place.mkdir(0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "tmpfs", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs root to mount a small disk: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_how_a_rank_ended_is_told_on_a_disk_that_it_has_filled(small_disk: Path) -> None:
    place = Place(small_disk)
    source = """
import errno, os
with open(os.environ["JUPYTER_DIST_RUN"] + "/filler", "wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError as error:
        assert error.errno == errno.ENOSPC
os._exit(6)
"""
    assert wait_for_exit(place.start(source)) == 6
    assert place.said()["exit_code"] == 6


def test_torchruns_error_file_says_what_the_rank_said(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "error.json"
    assert wait_for_exit(place.start("raise ValueError('no')", TORCHELASTIC_ERROR_FILE=str(file))) == 1
    told = json.loads(file.read_bytes())["message"]
    assert told["message"] == "ValueError: no"
    assert 'File "In[1]", line 1' in told["extraInfo"]["py_callstack"]
    assert told["extraInfo"]["timestamp"].isdigit()


def test_torchruns_error_file_is_taken_where_there_is_no_other(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "error.json"
    source = """
import json, os
extra = {"py_callstack": "Traceback: deep", "timestamp": "1700000000"}
message = {"message": {"message": "mine.OddError: what: now", "extraInfo": extra}}
open(os.environ["TORCHELASTIC_ERROR_FILE"], "w").write(json.dumps(message))
os._exit(4)
"""
    assert wait_for_exit(place.start(source, TORCHELASTIC_ERROR_FILE=str(file))) == 4
    error = json.loads(place.folder.rank(0, 0).error.read_bytes())
    assert (error["type"], error["message"], error["text"]) == (
        "mine.OddError",
        "what: now",
        "Traceback: deep",
    )
    assert (error["time"], error["exit_code"]) == (1_700_000_000, 4)


def test_the_users_umask_is_the_ranks(place: Place, tmp_path: Path) -> None:
    source = f"import os\nopen({str(tmp_path / 'made')!r}, 'w').close()"
    assert wait_for_exit(place.start(source, JUPYTER_DIST_UMASK="27")) == 0
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o640


JOB = Job("id", "mpi", 4, 0.0, "/cwd", "/py", "1")


def test_the_environment_of_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    found = environment("mpi", JOB, 2, 4, {"MPLBACKEND": "module://matplotlib_inline.backend_inline"})
    assert found.pop("OMP_NUM_THREADS").isdigit()
    assert found == {
        launched_rank.LAUNCHER: "mpi",
        "JUPYTER_DIST_RUN_ID": "id",
        "JUPYTER_DIST_ATTEMPT": "2",
        "JUPYTER_DIST_CWD": "/cwd",
        "MPLBACKEND": "Agg",
    }
    assert "OMP_NUM_THREADS" not in environment("mpi", JOB, 0, 4, {"OMP_NUM_THREADS": "3"})


def test_the_last_words_are_words() -> None:
    assert last_words("first\nno such host\n\n------\n") == "no such host"
    assert last_words("") == ""
