"""Runs as the supervisor leaves them: states, results, restarts, ports, stacks, and how little it costs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import pytest

from jupyter_dist.job import State
from jupyter_dist.record import reader
from jupyter_dist.record.cursor import Tail
from jupyter_dist.record.failures import failures
from jupyter_dist.worker import payload as container
from tests.rigs.gates import Gates
from tests.rigs.launching import ended, logs, open_files, rank_pids, until_up
from tests.rigs.local_runs import UP, run, start, supervisor_pid
from tests.rigs.stopwatch import Stopwatch, WaitFor

pytestmark = pytest.mark.usefixtures("warm")


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


def test_the_reason_is_the_root_cause_and_not_what_was_noticed_first(
    tmp_path: Path, wait_for: WaitFor
) -> None:
    gates = Gates(tmp_path)
    source = """
import os, pathlib, time
import jupyter_dist as dist
dist.barrier()
print("up")
gate("fail")
if os.environ["RANK"] == "0":
    raise ConnectionResetError("Connection reset by peer")
first = pathlib.Path(os.environ["JUPYTER_DIST_RUN"], "attempts/0/ranks/0/error.json")
while not first.exists():
    time.sleep(0.005)
raise ValueError("boom")
"""
    folder = start(gates.source + source)
    until_up(folder)
    supervisor = supervisor_pid(folder)
    os.kill(supervisor, signal.SIGSTOP)  # it must not end rank 1 before that has failed too
    try:
        gates.open("fail")
        wait_for(folder.rank(0, 1).error.exists, "the failure of rank 1")
    finally:
        os.kill(supervisor, signal.SIGCONT)
    assert ended(folder).reason == "rank 1 failed: ValueError: boom"


@pytest.mark.parametrize(
    ("source", "code", "log"),
    [
        ("import sys\nsys.exit(3)", 3, []),
        ("import os\nos._exit(4)", 4, []),
        ("import sys\nsys.exit('no')", 1, ["no"]),
    ],
)
def test_an_exit_code_is_a_failure_with_that_code(source: str, code: int, log: list[str]) -> None:
    folder, status = run(source, np=1)
    assert status.state is State.FAILED
    (error,) = failures.failures(folder)
    assert (error.kind, error.exit_code) == ("exit", code)
    assert logs(folder, 0) == log


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
    print("attempt", dist.attempt())
    dist.barrier()  # the failure of one rank ends the other one, wherever it is
    raise RuntimeError("planted")
seen.read_text()
"""
    folder, status = run(source, max_restarts=2)
    assert (status.state, status.attempt) == (State.SUCCEEDED, 2)
    assert folder.attempts() == [0, 1, 2]
    assert container.load(folder.rank(2, 0).result) == "1"
    assert "attempt 0" in reader.output(folder, 0, 0).decode()
    lines = [line for batch in Tail(folder).drain() for line in batch.lines]
    assert {line.attempt for line in lines} == {0, 1}


def test_a_run_that_cannot_start_again_fails_for_its_own_reason() -> None:
    """A full disk may have ended the ranks, and has no room for the folders of another attempt."""
    source = """
import os
open(os.path.join(os.environ["JUPYTER_DIST_RUN"], "attempts", "1"), "w").close()
raise ValueError("planted")
"""
    _, status = run(source, np=1, max_restarts=1)
    assert (status.state, status.reason) == (State.FAILED, "rank 0 failed: ValueError: planted")


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
            from jupyter_dist.worker.stack_signals import STACK_SIGNAL

            os.kill(rank.pid, STACK_SIGNAL)
    rank_pids(folder)
    assert reader.status(folder).state is State.RUNNING
    folder.request("kill")
    ended(folder)


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


def test_many_ranks() -> None:
    folder, status = run("import os\nint(os.environ['RANK'])", np=24)
    assert status.state is State.SUCCEEDED
    assert [container.load(folder.rank(0, rank).result) for rank in range(24)] == list(range(24))
