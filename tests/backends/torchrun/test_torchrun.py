"""The backend `torchrun` beyond what every backend does: its options, its restarts, its own error report."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from typing import Any

import pytest

from jupyter_dist.backends.torchrun import backend
from jupyter_dist.backends.torchrun.options import TorchrunOptions
from jupyter_dist.errors import InputError
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Job, State
from jupyter_dist.plan.run_plan import make_plan, read_command_line
from jupyter_dist.record import reader
from jupyter_dist.record.failures import failures
from jupyter_dist.worker import payload as container
from tests.rigs.launching import ended, launch_cell, launcher_log, logs, only_child, until_up
from tests.rigs.stopwatch import WaitFor

pytestmark = [pytest.mark.needs("torch"), pytest.mark.usefixtures("warm")]


def start(source: str, np: int = 2, max_restarts: int = 0, **options: Any) -> RunFolder:
    return launch_cell("torchrun", source, np, options, max_restarts=max_restarts)


def request(np: int, max_restarts: int = 0, **options: Any) -> list[str]:
    wanted = TorchrunOptions(**options).model_dump(mode="json")
    job = Job("the-id", "torchrun", np, 0.0, "/cwd", "/py", "1", options=wanted, max_restarts=max_restarts)
    return list(backend.Torchrun().request(job)["argv"])


def value(argv: list[str], flag: str) -> str:
    return argv[argv.index(flag) + 1]


def test_the_request_is_torchruns_own_command_line() -> None:
    argv = request(4, 3, rdzv_conf="join_timeout=60", monitor_interval=0.5)
    assert argv[:3] == ["/py", "-m", "torch.distributed.run"]
    assert argv[-4:] == ["--no-python", "/py", "-m", "jupyter_dist.worker"]
    assert value(argv, "--nnodes") == "1"
    assert value(argv, "--nproc-per-node") == "4"
    assert value(argv, "--max-restarts") == "3"
    assert value(argv, "--monitor-interval") == "0.5"
    assert value(argv, "--rdzv-id") == "the-id"
    assert value(argv, "--rdzv-endpoint") == "127.0.0.1:0"
    assert value(argv, "--rdzv-conf") == "join_timeout=60,last_call_timeout=2"
    assert value(request(2, rdzv_conf="last_call_timeout=9"), "--rdzv-conf") == "last_call_timeout=9"
    assert value(request(2, rdzv_endpoint="127.0.0.1:29400"), "--rdzv-endpoint") == "127.0.0.1:29400"


def test_ranks_meet_at_the_port_of_a_static_rendezvous() -> None:
    folder = start("import jupyter_dist as dist; dist.init(); dist.world_size()", rdzv_backend="static")
    assert ended(folder).state is State.SUCCEEDED


@pytest.mark.parametrize(
    ("given", "np"),
    [
        ({"nproc_per_node": "3"}, 3),
        ({"nproc_per_node": "3", "nnodes": "1"}, 3),
        ({"np": "3"}, 3),
        ({"np": "3", "nproc_per_node": "3"}, 3),
        ({"nproc_per_node": "cpu"}, len(os.sched_getaffinity(0))),
        ({"nnodes": "1:4", "np": "3"}, 3),
    ],
)
def test_how_many_ranks_there_are(given: dict[str, Any], np: int) -> None:
    assert make_plan({"backend": "torchrun", **given}, cluster=False).world_size == np


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rdzv_backend": "etcd-v2"}, "--rdzv-backend etcd-v2 needs python-etcd: pip install"),
        (
            {"rdzv_backend": "static", "hosts": "a:1,b:1"},
            "--rdzv-backend static works only on one machine. Remove it",
        ),
        ({"standalone": True, "hosts": "a:1,b:1"}, "--standalone works only on one machine. Remove it"),
        ({"np": "4", "nproc_per_node": "3"}, "-np 4 is not --nnodes 1 times --nproc-per-node 3, which is 3"),
        ({"nnodes": "2"}, "--nnodes 2 needs more hosts"),
        ({"nnodes": "4:1"}, r"--nnodes needs a number of nodes such as 2, or MIN:MAX such as 1:4, got '4:1'"),
        ({"nnodes": "some"}, "--nnodes needs a number of nodes"),
        ({"nproc_per_node": "0"}, "--nproc-per-node needs a whole number of at least 1"),
        ({"nproc_per_node": "many"}, "--nproc-per-node needs a whole number of at least 1, gpu, cpu or auto"),
        (
            {"nproc_per_node": "auto", "hosts": "localhost:8,b:8"},
            "--nproc-per-node auto counts the devices of this machine",
        ),
        *(
            ({"rdzv_conf": text}, "--rdzv-conf needs NAME=VALUE pairs")
            for text in ("x", "a=1,", ",a=1", "a=1,,b=2", "a= ,b=2")
        ),
        ({"monitor_interval": "0"}, "--monitor-interval needs a number above 0"),
    ],
)
def test_bad_input(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_plan({"backend": "torchrun", **given}, cluster=False)


def test_every_flag_of_torchrun_is_there_or_says_what_to_do_instead() -> None:
    from torch.distributed.run import get_args_parser

    theirs = {
        max(action.option_strings, key=len): action.nargs
        for action in get_args_parser()._actions
        if action.option_strings and action.dest != "help"
    }
    assert len(theirs) > 20
    for flag, nargs in theirs.items():
        value = [] if nargs == 0 else ["1"]
        for spelled in (flag.replace("_", "-"), "--" + flag.lstrip("-").replace("-", "_")):
            with contextlib.suppress(InputError):
                read_command_line(["--backend", "torchrun", spelled, *value])
                continue
            with pytest.raises(
                InputError, match=f"^{spelled} (works only with|is not needed|has no effect here)"
            ):
                read_command_line(["--backend", "torchrun", spelled, *value])


def test_more_of_torchruns_flags_reach_it() -> None:
    line = (
        "--role trainer --shutdown-timeout 7 --rdzv-id mine --rdzv_conf join_timeout=60 --virtual_local_rank"
    )
    given = dict(read_command_line(f"--backend torchrun --standalone --nproc_per_node=2 {line}").given)
    assert given.pop("backend") == "torchrun"
    folder = start(
        "import os\n[os.environ[n] for n in ('ROLE_NAME', 'TORCHELASTIC_RUN_ID', 'LOCAL_RANK')]", **given
    )
    status = ended(folder)
    assert status.state is State.SUCCEEDED, (status, launcher_log(folder))
    assert [container.load(folder.rank(0, rank).result) for rank in (0, 1)] == [["trainer", "mine", "0"]] * 2


TRAINS = """
import os, signal
import torch
import jupyter_dist as dist

dist.init()
place = dist.checkpoint_dir() / "step"
begin = int(place.read_text()) if place.exists() else 0
for step in range(begin, 6):
    total = torch.ones(())
    torch.distributed.all_reduce(total)
    dist.log(step_done=step, step=step)
    if dist.rank() == 0:
        place.write_text(str(step + 1))
    dist.barrier()
    if step == 2 and dist.rank() == 1 and dist.attempt() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
{"begin": begin, "attempt": dist.attempt(), "total": total.item(), "id": os.environ["TORCHELASTIC_RUN_ID"]}
"""


def test_a_killed_rank_starts_all_again_as_a_new_attempt() -> None:
    folder = start(TRAINS, max_restarts=2)
    status = ended(folder)
    assert (status.state, status.attempt) == (State.SUCCEEDED, 1), (status, launcher_log(folder))
    assert [rank.state for rank in status.ranks] == [State.SUCCEEDED] * 2
    expected = {"begin": 3, "attempt": 1, "total": 2.0, "id": folder.id}
    assert [container.load(folder.rank(1, rank).result) for rank in (0, 1)] == [expected] * 2
    steps: dict[tuple[int, int], list[int]] = {(e.attempt, e.rank): [] for e in reader.events(folder)}
    for event in reader.events(folder):
        if event.kind == "metric":
            steps[event.attempt, event.rank].append(event.data["step"])
    assert steps == {(0, 0): [0, 1, 2], (0, 1): [0, 1, 2], (1, 0): [3, 4, 5], (1, 1): [3, 4, 5]}
    assert (folder.path / "attempts" / "0" / "torchrun").is_dir(), "not in /tmp"


def test_the_last_attempts_failure_is_the_cause_and_torchruns_report_names_it() -> None:
    source = """
import time
import jupyter_dist as dist
if dist.rank() == 1:
    raise ValueError(f"no {dist.attempt()}")
time.sleep(600)
"""
    folder = start(source, max_restarts=1)
    status = ended(folder)
    assert (status.state, status.attempt) == (State.FAILED, 1)
    assert status.reason == "rank 1 failed: ValueError: no 1"
    assert [rank.state for rank in status.ranks] == [State.STOPPED, State.FAILED]
    first, *_ = failures.failures(folder)
    assert (first.rank, first.type, first.collateral) == (1, "ValueError", False)
    report = launcher_log(folder)
    assert re.search(r"Root Cause.*rank +: 1 .*ValueError: no 1", report, re.DOTALL)


def test_a_stop_is_not_answered_by_a_restart(wait_for: WaitFor) -> None:
    source = "import time\ntry:\n    print('up')\n    time.sleep(600)\nfinally:\n    print('saved')"
    folder = start(source, max_restarts=3)
    wait_for(lambda: all(logs(folder, rank) == ["up"] for rank in (0, 1)))
    folder.request("stop")
    status = ended(folder)
    assert (status.state, status.attempt) == (State.STOPPED, 0)
    assert [logs(folder, rank) for rank in (0, 1)] == [["up", "saved"]] * 2


def test_ranks_end_with_their_launcher() -> None:
    folder = start("import time\nprint('up')\ntime.sleep(600)", max_restarts=3)
    supervisor = until_up(folder).supervisor
    assert supervisor is not None
    os.kill(only_child(supervisor.pid, "torch"), signal.SIGKILL)
    status = ended(folder)
    assert status.state is State.FAILED
    assert "was ended by SIGKILL, and its ranks with it" in (status.reason or "")
    assert all(rank.pid and reader.start_ticks(rank.pid) is None for rank in status.ranks)


def test_what_torchrun_says_is_the_reason_where_no_rank_tells() -> None:
    folder = start("1", rdzv_backend="no-such")
    status = ended(folder)
    assert status.state is State.FAILED
    assert status.reason is not None
    assert re.match(r"torchrun ended with exit code 1: .*no-such", status.reason), status.reason
