"""Runs as the supervisor leaves them: states, restarts, stops, kills; nothing left running."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.errors import LaunchError
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import State, Status
from jupyter_dist.launch import template
from jupyter_dist.record import reader
from jupyter_dist.record.cursor import Tail
from jupyter_dist.record.failures import failures
from jupyter_dist.worker import payload as container
from jupyter_dist.worker.output import time_index
from tests.conftest import run_processes
from tests.rigs.gates import Gates
from tests.rigs.launching import ended, launch_cell, logs, open_files, rank_pids
from tests.rigs.stopwatch import Stopwatch

WaitFor = Callable[..., Any]


def start(source: str, np: int = 2, names: dict[str, Any] | None = None, **request: Any) -> RunFolder:
    """Start a cold run of the local backend; returns while it runs."""
    return launch_cell("local", source, np, names=names, **request)


def run(source: str, **options: Any) -> tuple[RunFolder, Status]:
    folder = start(source, **options)
    return folder, ended(folder)


def gone(*pids: int) -> bool:
    return all(reader.start_ticks(pid) is None for pid in pids)


def supervisor_pid(folder: RunFolder) -> int:
    supervisor = reader.status(folder).supervisor
    assert supervisor is not None
    return supervisor.pid


def children_of(pid: int) -> list[int]:
    """Its living children, zombies left out."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in listed if reader.start_ticks(int(child)) is not None]


UP = "import time\nprint('up')\ntime.sleep(600)"


def test_every_rank_runs_the_cell_and_returns_its_last_expression() -> None:
    folder, status = run(
        "import os\nr = int(os.environ['RANK'])\nprint('rank', r)\nX * 10 + r", names={"X": 4}
    )
    assert status.state is State.SUCCEEDED
    assert [rank.state for rank in status.ranks] == [State.SUCCEEDED] * 2
    assert [rank.exit_code for rank in status.ranks] == [0, 0]
    # The run is not shorter than its ranks.
    assert status.started == min(rank.started or 0 for rank in status.ranks)
    assert (status.ended or 0) >= max(rank.ended or 0 for rank in status.ranks)
    assert [logs(folder, rank) for rank in (0, 1)] == [["rank 0"], ["rank 1"]]
    assert [container.load(folder.rank(0, rank).result) for rank in (0, 1)] == [40, 41]


def test_the_environment_is_what_torchrun_and_tensorflow_users_expect() -> None:
    folder, _ = run("import os\ndict(os.environ)", env={"MINE": "yes", "SECRET": "hush"})
    first, second = (container.load(folder.rank(0, rank).result) for rank in (0, 1))
    for rank, env in enumerate((first, second)):
        assert env["RANK"] == env["LOCAL_RANK"] == str(rank)
        assert env["WORLD_SIZE"] == env["LOCAL_WORLD_SIZE"] == "2"
        assert env["MASTER_ADDR"] == "127.0.0.1"
        assert env["MINE"] == "yes"
        config = json.loads(env["TF_CONFIG"])
        assert config["task"] == {"type": "worker", "index": rank}
        assert len(set(config["cluster"]["worker"])) == 2
        assert int(env["OMP_NUM_THREADS"]) == max(1, len(os.sched_getaffinity(0)) // 2)
    assert first["MASTER_PORT"] == second["MASTER_PORT"] != "0"
    assert first["TF_CONFIG"] != second["TF_CONFIG"]
    everything = "".join(path.read_text() for path in folder.path.rglob("*.json") if path.is_file())
    assert "hush" not in everything
    assert reader.job(folder).env_names == ("MINE", "SECRET")


def test_omp_num_threads_of_the_user_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    folder, _ = run("import os\nos.environ['OMP_NUM_THREADS']", np=1)
    assert container.load(folder.rank(0, 0).result) == "7"


def test_output_of_print_c_and_subprocesses_arrives_whole() -> None:
    source = """
import ctypes, os, subprocess, sys
print("from print", "in", "pieces")
ctypes.CDLL(None).puts(b"from C")
subprocess.run(["echo", "from a subprocess"])
print("on stderr", file=sys.stderr)
sys.stdout.write("no newline, ünïcode 🚀")
"""
    folder, status = run(source, np=1)
    assert status.state is State.SUCCEEDED
    assert sorted(logs(folder, 0)) == sorted(
        ["from print in pieces", "from C", "from a subprocess", "on stderr", "no newline, ünïcode 🚀"]
    )


def test_a_failing_rank_ends_the_others_and_is_named_first() -> None:
    watch = Stopwatch()
    folder, status = run(
        "import os, time\nif os.environ['RANK'] == '1':\n    raise ValueError('boom')\ntime.sleep(600)"
    )
    assert watch.under(5)
    assert status.state is State.FAILED
    assert status.reason == "rank 1 failed: ValueError: boom"
    assert [rank.state for rank in status.ranks] == [State.STOPPED, State.FAILED]
    (error,) = failures.failures(folder)
    assert (error.rank, error.type, error.message) == (1, "ValueError", "boom")
    assert 'File "In[1]", line 3' in error.text
    assert "raise ValueError('boom')" in error.text
    assert "jupyter_dist" not in error.text


def test_the_reason_is_the_root_cause_and_not_what_was_noticed_first() -> None:
    source = """
import os, time
import jupyter_dist as dist
dist.barrier()
if os.environ["RANK"] == "0":
    raise ConnectionResetError("Connection reset by peer")
time.sleep(0.15)
raise ValueError("boom")
"""
    _, status = run(source)
    assert status.reason == "rank 1 failed: ValueError: boom"


@pytest.mark.parametrize(
    ("source", "code"),
    [("import sys\nsys.exit(3)", 3), ("import os\nos._exit(4)", 4), ("import sys\nsys.exit('no')", 1)],
)
def test_an_exit_code_is_a_failure_with_that_code(source: str, code: int) -> None:
    folder, status = run(source, np=1)
    assert status.state is State.FAILED
    (error,) = failures.failures(folder)
    assert (error.kind, error.exit_code) == ("exit", code)


def test_sys_exit_zero_is_a_success() -> None:
    _, status = run("import sys\nsys.exit()", np=1)
    assert status.state is State.SUCCEEDED


def test_a_result_that_cannot_be_pickled_fails_nobody() -> None:
    folder, status = run("import os, zlib\nzlib.compressobj() if os.environ['RANK'] == '0' else 5")
    assert status.state is State.SUCCEEDED
    results = [event for event in reader.events(folder) if event.kind == "result"]
    errors = {event.rank: event.data["error"] for event in results}
    assert "zlib.Compress" in errors[0]
    assert errors[1] is None
    assert container.load(folder.rank(0, 1).result) == 5


def test_restarts_are_new_attempts_with_fresh_files_and_a_shared_checkpoint_folder() -> None:
    source = """
import jupyter_dist as dist
seen = dist.checkpoint_dir() / f"seen-{dist.rank()}"
if dist.attempt() < 2:
    seen.write_text(str(dist.attempt()))
    raise RuntimeError(f"attempt {dist.attempt()}")
seen.read_text()
"""
    folder, status = run(source, max_restarts=2)
    assert (status.state, status.attempt) == (State.SUCCEEDED, 2)
    assert folder.attempts() == [0, 1, 2]
    assert container.load(folder.rank(2, 0).result) == "1"
    assert "attempt 0" in reader.output(folder, 0, 0).decode()
    lines = [line for batch in Tail(folder).drain() for line in batch.lines]
    assert {line.attempt for line in lines} == {0, 1}


def test_no_more_restarts_than_asked_for() -> None:
    _, status = run("1 / 0", np=1, max_restarts=1)
    assert (status.state, status.attempt) == (State.FAILED, 1)
    assert status.reason == "rank 0 failed: ZeroDivisionError: division by zero"


def test_a_cell_that_finds_a_port_taken_is_not_run_again() -> None:
    source = """
import os, socket
print("line of the cell")
taken = socket.create_server(("127.0.0.1", 0))
socket.create_server(taken.getsockname())
"""
    folder, status = run(source, np=1)
    assert (status.state, status.attempt) == (State.FAILED, 0)
    assert status.reason is not None
    assert "Address already in use" in status.reason
    assert folder.attempts() == [0]


PORT_TAKEN = """
import os, socket
from jupyter_dist.worker import payload

def read_header(path, *, original=payload.read_header):
    if os.environ["JUPYTER_DIST_ATTEMPT"] == "0" or "ALWAYS" in os.environ:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            socket.create_server(taken.getsockname())
    return original(path)

payload.read_header = read_header
"""


def test_a_port_that_is_taken_before_the_cell_begins_is_chosen_again(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(PORT_TAKEN)
    folder, status = run("1", env={"PYTHONPATH": str(tmp_path)})
    assert (status.state, status.attempt) == (State.SUCCEEDED, 1), status.reason
    assert "a port was taken" in folder.supervisor_log.read_text()
    assert (status.port_retries, status.restarts) == (1, 0)


def test_a_port_that_is_always_taken_is_not_chosen_for_ever(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(PORT_TAKEN)
    _, status = run("1", np=1, env={"PYTHONPATH": str(tmp_path), "ALWAYS": "1"})
    assert (status.state, status.attempt, status.port_retries) == (State.FAILED, 3, 3)


def test_stop_lets_finally_blocks_run() -> None:
    folder = start("import time\ntry:\n    print('up')\n    time.sleep(600)\nfinally:\n    print('saved')")
    rank_pids(folder)
    folder.request("stop")
    status = ended(folder)
    assert (status.state, status.reason) == (State.STOPPED, "stopped by the user")
    assert [logs(folder, rank)[-1] for rank in (0, 1)] == ["saved", "saved"]
    assert failures.failures(folder) == []


def test_stop_ends_ranks_that_ignore_sigterm() -> None:
    folder = start("import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + UP)
    pids = rank_pids(folder)
    folder.request("stop")
    status = ended(folder)
    assert status.state is State.STOPPED
    assert gone(*pids)


def test_kill_ends_at_once() -> None:
    folder = start("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + UP)
    pids = rank_pids(folder)
    folder.request("stop")
    folder.request("kill")
    watch = Stopwatch()
    assert ended(folder).state is State.STOPPED
    assert watch.under(3)
    assert gone(*pids)


def test_timeout_fails_the_run() -> None:
    _, status = run(UP, timeout=0.5)
    assert (status.state, status.reason) == (State.FAILED, "not done within --timeout 0.5 s")


SET_BACK = """
import time
real, begun = time.time, time.monotonic()
time.time = lambda: real() - (3600 if time.monotonic() - begun > 2 else 0)
"""


def test_a_clock_that_is_set_back_delays_no_end(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SET_BACK)
    _, status = run(UP, timeout=3, env={"PYTHONPATH": str(tmp_path)})
    assert (status.state, status.reason) == (State.FAILED, "not done within --timeout 3 s")
    assert status.ended is not None
    assert status.ended < time.time() - 3000, "the clock was set back"


def test_a_rank_that_somebody_ends_in_order() -> None:
    folder = start(UP)
    os.kill(rank_pids(folder)[1], signal.SIGTERM)
    assert ended(folder).reason == "rank 1 ended with exit code 143 (SIGTERM)"


def remove(folder: RunFolder) -> None:
    """Remove it as a user does, who asks again where rm says "Directory not empty": the run writes."""
    while folder.path.exists():
        shutil.rmtree(folder.path, ignore_errors=True)


def test_a_run_whose_folder_is_removed_ends(wait_for: WaitFor) -> None:
    folder = start(UP)
    pids = [*rank_pids(folder), supervisor_pid(folder)]
    remove(folder)
    wait_for(lambda: gone(*pids), "the end of the supervisor and its ranks")
    assert not folder.path.exists()


@pytest.mark.parametrize("kept", ["state.json", "attempts/0/ranks/1/output.log", "requests/stop.part"])
def test_a_run_of_whose_folder_a_file_is_left_ends(wait_for: WaitFor, kept: str) -> None:
    """What rm leaves with "Directory not empty", where the run wrote this file meanwhile."""
    folder = start(UP)
    pids = [*rank_pids(folder), supervisor_pid(folder)]
    remove(folder)
    left = folder.path / kept
    left.parent.mkdir(parents=True)
    left.write_text("{}")
    wait_for(lambda: gone(*pids), "the end of the supervisor and its ranks")
    remove(folder)


@pytest.fixture
def small_disk(own_folders: Path) -> Iterator[None]:
    """The runs are on a disk of 1 MB."""
    own_folders.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", own_folders]).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield
    subprocess.run(["umount", "-l", own_folders], check=True)


_FILL = """
import os
import jupyter_dist as dist
ballast = open(os.path.join(os.environ["JUPYTER_DIST_RUNS"], "ballast"), "wb", buffering=0)
def fill():
    try:
        while ballast.write(bytes(100)):
            pass
    except OSError:
        pass
"""


@pytest.mark.usefixtures("small_disk")
def test_a_training_outlives_a_full_disk_and_its_record_counts_what_is_lost() -> None:
    source = f"""{_FILL}
dist.log(loss=1.0, step=0)
fill()
for step in range(1, 2001):
    dist.log(loss=1.0, step=step)
ballast.truncate(0)
dist.log(loss=0.5, step=2001)
"done"
"""
    folder, status = run(source, np=1)
    assert (status.state, status.reason) == (State.SUCCEEDED, None)
    events = reader.events(folder)
    steps = [event.data["step"] for event in events if event.kind == "metric"]
    assert steps[0] == 0
    assert steps[-1] == 2001
    (note,) = (event.data["text"] for event in events if event.kind == "note" and event.seq >= 0)
    assert note.startswith(f"{2002 - len(steps):,} metrics of this rank were not written: No space left")
    assert sum("No space left" in line or "not written" in line for line in logs(folder, 0)) == 1


@pytest.mark.usefixtures("small_disk")
@pytest.mark.parametrize(
    "fill",
    ["while True: print('x' * 999)", f"{_FILL}fill()\ndist.log(loss=1.0)\nresult = bytes(99_999)\nresult"],
)
def test_a_full_disk_is_what_the_run_says_it_failed_of(fill: str) -> None:
    folder, status = run(f"import jupyter_dist as dist\n{fill}", np=1)
    assert status.state is State.FAILED
    assert status.reason is not None
    assert status.reason.startswith("rank 0 failed: OSError: [Errno 28] No space left on device")
    (error,) = failures.failures(folder)
    assert "print" not in fill or fill in error.text


def test_a_killed_rank_takes_the_others_down_and_leaves_all_it_wrote() -> None:
    source = """
import time
import jupyter_dist as dist
for step in range(10**9):
    dist.log(loss=1 / (step + 1), step=step)
    print("line", step)
    if step == 1000:
        print("up")
    time.sleep(0 if step < 1000 else 0.001)
"""
    folder = start(source)
    pids = rank_pids(folder)
    os.kill(pids[1], signal.SIGKILL)
    watch = Stopwatch()
    status = ended(folder)
    assert watch.under(5)
    assert (status.state, status.reason) == (State.FAILED, "rank 1 was ended by SIGKILL")
    assert gone(*pids)
    (error, *_) = failures.failures(folder)
    assert (error.rank, error.kind, error.signal) == (1, "signal", signal.SIGKILL)
    assert error.peak_memory_bytes is not None
    assert error.peak_memory_bytes > 1 << 20
    lines = [line for line in logs(folder, 1) if line != "up"]
    assert len(lines) > 1000
    assert lines == [f"line {step}" for step in range(len(lines))]
    steps = [
        event.data["step"] for event in reader.events(folder) if event.kind == "metric" and event.rank == 1
    ]
    assert steps == list(range(len(steps)))
    assert len(steps) - len(lines) in (0, 1)


@pytest.mark.parametrize("warm", [False, True])
def test_a_killed_supervisor_takes_its_ranks_and_their_subprocesses_with_it(
    warm: bool, wait_for: WaitFor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "child"
    source = f"""
import os, subprocess, sys, time
p = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
open({str(child)!r} + os.environ["RANK"], "w").write(str(p.pid))
print("up")
time.sleep(600)
"""
    monkeypatch.setattr(template, "wanted", lambda: warm)
    folder = start(source, cold=not warm)
    try:
        pids = rank_pids(folder)
        assert reader.status(folder).warm is warm
        children = [int(Path(f"{child}{rank}").read_text()) for rank in (0, 1)]
        os.kill(supervisor_pid(folder), signal.SIGKILL)
        wait_for(lambda: reader.status(folder).state is State.LOST, "the lost state")
        wait_for(lambda: gone(*pids, *children), "the end of the ranks and their subprocesses")
        status = reader.status(folder)
        assert status.reason is not None
        assert "supervisor is gone" in status.reason
        assert [rank.state for rank in status.ranks] == [State.LOST] * 2
        assert logs(folder, 0) == ["up"]
    finally:
        template.close()


def test_what_ranks_leave_running_is_ended_with_the_run(wait_for: WaitFor) -> None:
    source = """
import subprocess, sys
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
a = subprocess.Popen(sleep)
b = subprocess.Popen(sleep, start_new_session=True)
a.returncode = b.returncode = 0
(a.pid, b.pid)
"""
    folder, status = run(source, np=1)
    assert status.state is State.SUCCEEDED
    pids = container.load(folder.rank(0, 0).result)
    wait_for(lambda: gone(*pids), "their end")


def test_a_killed_guard_is_replaced(wait_for: WaitFor) -> None:
    folder = start(UP)
    pids = rank_pids(folder)
    supervisor = supervisor_pid(folder)

    def guards() -> list[int]:
        return [pid for pid in children_of(supervisor) if pid not in pids]

    (first,) = wait_for(lambda: guards() if len(guards()) == 1 else None, "one guard")
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: guards() not in ([], [first]), "another guard")
    os.kill(supervisor, signal.SIGKILL)
    wait_for(lambda: gone(*pids), "the end of the ranks")


def test_ranks_end_even_when_supervisor_and_guard_die_at_once(wait_for: WaitFor) -> None:
    folder = start(UP)
    pids = rank_pids(folder)
    supervisor = supervisor_pid(folder)
    os.kill(supervisor, signal.SIGSTOP)  # it must not replace the guard before its own end
    guard = next(pid for pid in children_of(supervisor) if pid not in pids)
    os.kill(guard, signal.SIGKILL)
    os.kill(supervisor, signal.SIGKILL)
    wait_for(lambda: gone(*pids), "the end of the ranks")
    assert reader.status(folder).state is State.LOST


def test_a_silent_run_says_so_and_shows_stacks(wait_for: WaitFor) -> None:
    folder = start(
        "import time\ndef waits_here():\n    time.sleep(600)\nprint('up')\nwaits_here()", stall_timeout=0.5
    )
    wait_for(lambda: reader.status(folder).stall is not None, what="the stall")
    for rank in (0, 1):
        wait_for(
            lambda rank=rank: (
                folder.rank(0, rank).stacks.exists()
                and b"in waits_here" in folder.rank(0, rank).stacks.read_bytes()
            ),
            what="its stacks",
        )
    assert reader.status(folder).state is State.RUNNING
    folder.request("kill")
    ended(folder)


def test_asking_for_stacks_before_a_rank_can_answer_does_not_end_it(wait_for: WaitFor) -> None:
    folder = start(UP)
    wait_for(lambda: folder.state.exists() and any(r.pid for r in reader.status(folder).ranks), what="pids")
    for rank in reader.status(folder).ranks:
        if rank.pid is not None:
            from jupyter_dist.worker.boot import STACK_SIGNAL

            os.kill(rank.pid, STACK_SIGNAL)
    rank_pids(folder)
    assert reader.status(folder).state is State.RUNNING
    folder.request("kill")
    ended(folder)


def test_the_time_index_tells_when_a_line_came(wait_for: WaitFor, tmp_path: Path) -> None:
    began, gates = time.time(), Gates(tmp_path)
    folder = start(gates.source + "print('a')\ngate('b')\nprint('b\\nc')", np=1)

    def times() -> dict[str, Any]:
        return {line.text: line.time for line in reader.line_times(folder, 0, 0)}

    # A line that the index does not cover yet has come "just now", which is before its record.
    wait_for(lambda: time_index.covered(folder.rank(0, 0).times) >= len("a\n"), what="the record of a line")
    between = time.time()
    gates.open("b")
    ended(folder)
    found = times()
    assert began <= found["a"] <= between <= found["b"] <= time.time()
    assert found["c"] == found["b"]


def test_files_are_private_whatever_the_umask() -> None:
    before = os.umask(0)
    try:
        folder, _ = run("import jupyter_dist as dist\ndist.log(a=1)\nprint(1)\n1", np=1)
    finally:
        os.umask(before)
    modes = {
        str(path.relative_to(folder.path)): path.stat().st_mode & 0o777 for path in folder.path.rglob("*")
    }
    wrong = {p: oct(m) for p, m in modes.items() if m != (0o700 if (folder.path / p).is_dir() else 0o600)}
    assert wrong == {}
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert folder.path.parent.stat().st_mode & 0o777 == 0o700


def test_the_supervisor_of_silent_ranks_seldom_wakes_until_a_user_asks(wait_for: WaitFor) -> None:
    folder = start(UP)
    rank_pids(folder)
    pid = supervisor_pid(folder)
    since = (time.monotonic(), switches(pid))

    def seldom_wakes() -> bool:
        nonlocal since
        now = (time.monotonic(), switches(pid))
        if now[1] - since[1] < 10:
            return False
        per_s = (now[1] - since[1]) / (now[0] - since[0])
        since = now
        return per_s < 13

    wait_for(seldom_wakes, "ten turns of 0.2 s")
    assert f"ino:{folder.requests.stat().st_ino:x} " in watches(pid), "a request wakes it"
    folder.request("kill")
    ended(folder)


def switches(pid: int) -> int:
    """How often a process has waited."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("voluntary_ctxt_switches:")[1].split()[0])


def watches(pid: int) -> str:
    """What Linux says of a process's open files, such as the inodes that it watches."""
    found = ""
    for path in Path(f"/proc/{pid}/fdinfo").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found += path.read_text()
    return found


def test_nothing_of_ours_listens() -> None:
    folder = start(UP)
    pids = {*rank_pids(folder), supervisor_pid(folder)}
    names = set().union(*map(open_files, pids))
    assert not any(name.startswith("socket:") for name in names)
    folder.request("kill")
    ended(folder)


def test_a_supervisor_that_cannot_start_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, own_folders: Path
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(LaunchError, match="supervisor did not start"):
        start("1")
    assert list(own_folders.iterdir()) == []


BUSY = """
import os
import subprocess
from jupyter_dist.processes import rank_processes as processes

def spawn(argv, env, *rest, original=processes.spawn):
    if env["RANK"] == "2":
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return original(argv, env, *rest)

processes.spawn = spawn
"""


def test_ranks_that_cannot_all_be_started_are_ended(tmp_path: Path) -> None:
    """As where the number of processes is limited."""
    (tmp_path / "sitecustomize.py").write_text(BUSY)
    _, status = run(UP, np=3, env={"PYTHONPATH": str(tmp_path)}, max_restarts=0)
    assert status.state is State.FAILED
    assert status.reason == (
        "rank 2 of 3 could not be started: Resource temporarily unavailable. All were ended."
    )
    assert {rank.state for rank in status.ranks} == {State.STOPPED}


def test_many_ranks() -> None:
    folder, status = run("import os\nint(os.environ['RANK'])", np=24)
    assert status.state is State.SUCCEEDED
    assert [container.load(folder.rank(0, rank).result) for rank in range(24)] == list(range(24))


@pytest.mark.parametrize("warm", [False, True])
def test_a_supervisor_that_is_killed_right_after_its_start_leaves_nothing(
    warm: bool, wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where a rank was just being forked, or had left its group and had no parent to die with."""
    source = "import os, sys, time\nif os.fork() == 0:\n    os.setsid()\nprint('up')\ntime.sleep(600)"
    monkeypatch.setattr(template, "wanted", lambda: warm)
    try:
        for number in range(8):
            folder = start(source, cold=not warm)
            told = wait_for(
                lambda folder=folder: (
                    folder.supervisor_log.exists()
                    and re.search(r"supervisor (\d+):", folder.supervisor_log.read_text())
                ),
                what="the supervisor",
            )
            time.sleep(number * 0.02)
            os.kill(int(told[1]), signal.SIGKILL)
            wait_for(lambda folder=folder: run_processes(folder.path) == {}, "the end of all of it")
    finally:
        template.close()


def test_a_guard_from_the_store_that_was_killed_is_replaced(
    wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template, "wanted", lambda: True)
    try:
        template.observe({})
        wait_for(lambda: any(map(is_spare, children_of(template._current().pid))), "a supervisor in store")
        folder = start(UP, cold=False)
        pids = rank_pids(folder)
        supervisor = supervisor_pid(folder)
        assert reader.status(folder).warm
        (pipe,) = {link for link in pipes(supervisor) if holders(link) - {supervisor}}
        (guard,) = holders(pipe) - {supervisor}
        assert guard not in children_of(supervisor), "it was forked while nobody waited"
        os.kill(guard, signal.SIGKILL)
        wait_for(lambda: len(children_of(supervisor)) == 3, "another guard")
        os.kill(supervisor, signal.SIGKILL)
        wait_for(lambda: gone(*pids), "the end of the ranks")
    finally:
        template.close()


def is_spare(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text() == "jdist spare\n"
    return False


def pipes(pid: int) -> set[str]:
    """The pipes that a process has open."""
    return {link for link in open_files(pid) if link.startswith("pipe:")}


def holders(link: str) -> set[int]:
    """The processes that have this file or pipe open."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if os.readlink(path) == link:
                found.add(int(path.parts[2]))
    return found
