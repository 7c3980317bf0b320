"""Ranks that wait for each other: in the run folder and through torch.distributed."""

from __future__ import annotations

import json
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jupyter_dist as dist
from jupyter_dist.conformance.ports import take_port
from jupyter_dist.worker.output import events
from tests.rigs.rank_maker import alone, outputs, ranks

BARRIERS = """
import random
random.seed(dist.rank())
for i in range(60):
    if random.random() < .1:
        time.sleep(random.random() * .02)
    open(f"{os.environ['JUPYTER_DIST_RUN']}/came-{i}-{dist.rank()}", "w").close()
    dist.barrier(timeout_s=50)
    for r in range(dist.world_size()):
        assert os.path.exists(f"{os.environ['JUPYTER_DIST_RUN']}/came-{i}-{r}"), (i, r)
"""


def test_barriers_in_the_run_folder_hold_every_rank(tmp_path: Path) -> None:
    outputs(ranks(tmp_path, BARRIERS, 3))
    barriers = tmp_path / "attempts" / "0" / "barriers"
    assert len(list(barriers.iterdir())) <= 2, "those that are over are taken away"
    for path in [barriers, *barriers.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def leave_result(folder: Path) -> None:
    (folder / "attempts/0/ranks/1/result.pkl").touch()


def leave_error(folder: Path) -> None:
    (folder / "attempts/0/ranks/1/error.json").write_text("{}")


def leave_event(folder: Path) -> None:
    writer = events.EventWriter(str(folder / "attempts/0/ranks/1/events.jsonl"))
    writer.metric({"loss": 1.0}, 1)
    writer.result("None", None, "cannot pickle")
    writer.close()


def leave_state(folder: Path) -> None:
    (folder / "state.json").write_text(
        json.dumps(
            {"attempt": 0, "ranks": [{"rank": 0, "state": "running"}, {"rank": 1, "state": "succeeded"}]}
        )
    )


@pytest.mark.parametrize("end", [leave_result, leave_error, leave_event, leave_state])
def test_a_barrier_that_an_ended_rank_never_reaches(
    tmp_path: Path, end: Callable[[Path], None], wait_for: Callable[..., Any]
) -> None:
    # Rank 1 is never started: there is only what it would have left behind.
    code = "try:\n    dist.barrier()\nexcept RuntimeError as error:\n    print(error)"
    (waiting,) = ranks(tmp_path, code, only=[0])
    wait_for((tmp_path / "attempts/0/barriers/0/0").exists)
    (tmp_path / "attempts/0/ranks/1").mkdir()
    (tmp_path / "state.json").write_text(
        json.dumps({"attempt": 1, "ranks": [{"rank": 1, "state": "failed"}]})
    )
    (tmp_path / "attempts/0/ranks/1/events.jsonl").write_text(
        json.dumps({"kind": "note", "text": '"kind": "result"'}) + "\n"
    )
    with pytest.raises(subprocess.TimeoutExpired):
        waiting.wait(timeout=0.5)
    end(tmp_path)
    assert outputs([waiting]) == ["rank 1 has ended and cannot arrive at this barrier\n"]


def test_a_barrier_that_times_out_names_who_is_missing(tmp_path: Path) -> None:
    code = """
if dist.rank() == 0:
    try:
        dist.barrier(timeout_s=0.2)
    except TimeoutError as error:
        print(error)
    open(os.environ["JUPYTER_DIST_RUN"] + "/go", "w").close()
while not os.path.exists(os.environ["JUPYTER_DIST_RUN"] + "/go"):
    time.sleep(.01)
dist.barrier()
dist.barrier()
"""
    assert outputs(ranks(tmp_path, code)) == [
        "rank 0 waited 0.2 s at a barrier, and rank 1 did not arrive\n",
        "",
    ]


def test_a_barrier_without_a_folder_says_what_to_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match=r"Call dist\.init\(\) first"):
        dist.barrier()


@pytest.mark.needs("torch")
def test_init_opens_a_group_on_all_ranks(tmp_path: Path) -> None:
    code = """
import torch
dist.init(timeout_s=50)
dist.init()
import torch.distributed as group
total = torch.tensor([dist.rank() + 1.0])
group.all_reduce(total)
dist.barrier()
dist.barrier(timeout_s=20)
assert not os.path.exists(os.environ["JUPYTER_DIST_RUN"] + "/attempts/0/barriers")
try:
    dist.init("nccl")
except RuntimeError as error:
    assert "already open with 'gloo'" in str(error)
else:
    raise AssertionError
print(group.get_backend(), group.get_world_size(), float(total), dist.device())
from jupyter_dist.worker import api
api._finish(False)
assert group.is_initialized()
api._state.opened_group = True
api._finish(True)
assert not group.is_initialized()
"""
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(take_port())}
    assert outputs(ranks(tmp_path, code, env=env)) == ["gloo 2 3.0 cpu\n"] * 2


@pytest.mark.needs("torch")
def test_a_torch_barrier_that_times_out(tmp_path: Path) -> None:
    code = """
dist.init()
if dist.rank() == 0:
    try:
        dist.barrier(timeout_s=0.5)
    except TimeoutError as error:
        print("rank 0 waited 0.5 s at a barrier" in str(error), "1" in str(error))
    open(os.environ["JUPYTER_DIST_RUN"] + "/go", "w").close()
while not os.path.exists(os.environ["JUPYTER_DIST_RUN"] + "/go"):
    time.sleep(.01)
"""
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(take_port())}
    assert outputs(ranks(tmp_path, code, env=env)) == ["True True\n", ""]


@pytest.mark.needs("torch")
def test_init_outside_a_run_makes_a_group_of_one(tmp_path: Path) -> None:
    code = """
import torch
dist.init()
import torch.distributed as group
total = torch.ones(2)
group.all_reduce(total)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
model(total).sum().backward()
dist.barrier()
print(group.get_world_size(), total.tolist(), dist.device())
"""
    assert alone(code, tmp_path) == "1 [1.0, 1.0] cpu\n"


def asks_the_store_late() -> int | None:
    import datetime
    import os
    import time

    import torch.distributed as torch_dist
    from torch.distributed import rpc

    import jupyter_dist as dist

    rpc.init_rpc(f"worker{dist.rank()}", rank=dist.rank(), world_size=2)
    rpc.shutdown()
    if dist.rank() == 0:
        return None
    time.sleep(1)  # as a busy machine may have it between two questions of `rpc.shutdown()`
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    patience = datetime.timedelta(seconds=20)
    return int(torch_dist.TCPStore(address, port, is_master=False, timeout=patience).add("asked", 1))


@pytest.mark.needs("torch")
def test_the_rank_that_holds_the_store_of_rpc_outlasts_the_others() -> None:
    assert dist.run(asks_the_store_late, np=2, options={"gpus_per_worker": 0}).results == [None, 1]
