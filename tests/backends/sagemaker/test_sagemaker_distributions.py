"""What AWS's containers start processes with, of which a cell sees nothing; inputs, logs, warm pools."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest

from jupyter_dist.conformance.run_control import Runs, story
from jupyter_dist.job import State
from tests.rigs.sagemaker import SageMakerPlane
from tests.rigs.sagemaker.fixtures import job_of, kept_plane, plane, runs, signed_in, until  # noqa: F401

pytestmark = [
    pytest.mark.needs("boto3", "moto"),
    pytest.mark.xdist_group("sagemaker-distributions"),
]

SEEN = """
import os, jupyter_dist as dist
known = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "SM_CURRENT_HOST", "SM_HOSTS",
         "SM_NUM_GPUS", "SM_MODEL_DIR", "SM_HP_LR", "SM_CHANNEL_TRAINING", "JUPYTER_DIST_GPUS",
         "TRAINING_JOB_NAME")
seen = {name: os.environ.get(name) for name in known}
seen["TRAINING_JOB_NAME"] = (seen["TRAINING_JOB_NAME"] or "").startswith("jupyter-dist-")
seen |= {"rank": dist.rank(), "local_rank": dist.local_rank(), "world_size": dist.world_size(),
         "input": (dist.input("training") / "a.txt").read_text(), "host": os.uname().nodename,
         "model": str(dist.model_dir()), "secret": "JUPYTER_DIST_MAILBOX_KEY" in os.environ}
"""
TRAINS = {
    "torchrun": """
import torch, torch.distributed as group
dist.init()
total = torch.ones(1) * (dist.rank() + 1)
group.all_reduce(total)
seen, total.item()
""",
    "mpi": """
from mpi4py import MPI
seen, float(MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank + 1))
""",
    "horovod": """
import torch, horovod.torch as hvd
hvd.init()
assert (hvd.rank(), hvd.size(), hvd.local_rank()) == (dist.rank(), dist.world_size(), dist.local_rank())
assert hvd.mpi_enabled()
model = torch.nn.Linear(1, 1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
model(torch.ones(1, 1) * dist.rank()).sum().backward()
optimizer.step()
same = hvd.allgather(model.weight.detach())
assert torch.equal(same.min(), same.max()), same
seen, hvd.allreduce(torch.ones(1) * (hvd.rank() + 1), op=hvd.Sum).item()
""",
    "mwms": """
import tensorflow as tf
strategy = dist.strategy()
assert type(strategy).__name__ == "CollectiveAllReduceStrategy", strategy
values = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce(
    "SUM", tf.constant(dist.rank() + 1.0)))
seen, float(values)
""",
    "parameter_server": """
import tensorflow as tf
strategy = dist.strategy()
with strategy.scope():
    total = tf.Variable(0.0)
@tf.function
def add(value):
    total.assign_add(value)
for value in (1.0, 2.0):
    strategy.coordinator.schedule(add, args=(value,))
strategy.coordinator.join()
seen, total.numpy().item()
""",
}
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}


@pytest.mark.parametrize(
    ("distribution", "np"),
    [
        ("torchrun", 4),
        pytest.param("mpi", 4, marks=pytest.mark.needs("mpi4py")),
        pytest.param("horovod", 4, marks=pytest.mark.needs("horovod with MPI")),
        pytest.param("mwms", 2, marks=pytest.mark.needs("tensorflow")),
        pytest.param("parameter_server", 3, marks=pytest.mark.needs("tensorflow")),
    ],
)
def test_a_cell_sees_the_same_whatever_starts_it(
    plane: SageMakerPlane, runs: Runs, distribution: str, np: int
) -> None:
    """And trains over both instances with what it is for."""
    plane.s3.create_bucket(Bucket="data")
    plane.s3.put_object(Bucket="data", Key="train/a.txt", Body=b"data")
    given: dict[str, Any] = {"distribution": distribution, "env": QUIET}
    if distribution in ("mwms", "parameter_server"):
        given["image"] = "123456789012.dkr.ecr.us-east-1.amazonaws.com/my-tensorflow-training:1"
    if distribution == "parameter_server":
        given["ps"] = 1
    given |= {"input": {"training": "s3://data/train"}, "hyperparameters": {"lr": "0.1"}}
    run = runs.finish(SEEN + TRAINS[distribution], np=np, instance_count=2, **given)
    job = job_of(plane, run)
    assert run.state is State.SUCCEEDED, story(run) + str(job.lines)
    hosts = [f"algo-{1 + rank // -(-np // 2)}" for rank in range(np)]
    if distribution == "parameter_server":
        assert run.results[1:] == [None, None], "they serve"
        told = [run.results[0]]
        assert told[0][1] == 3.0
    else:
        told = list(run.results)
        assert [total for _, total in told] == [sum(range(1, np + 1))] * np
    for rank, (seen, _) in enumerate(told):
        local = rank - hosts.index(hosts[rank])
        assert seen == {
            "RANK": str(rank),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(np),
            "LOCAL_WORLD_SIZE": str(hosts.count(hosts[rank])),
            "MASTER_ADDR": told[0][0]["MASTER_ADDR"],
            "SM_CURRENT_HOST": hosts[rank],
            "SM_HOSTS": '["algo-1","algo-2"]',
            "SM_NUM_GPUS": "0",
            "SM_MODEL_DIR": "/opt/ml/model",
            "SM_HP_LR": "0.1",
            "SM_CHANNEL_TRAINING": "/opt/ml/input/data/training",
            "JUPYTER_DIST_GPUS": "0",
            "TRAINING_JOB_NAME": True,
            "rank": rank,
            "local_rank": local,
            "world_size": np,
            "input": "data",
            "host": hosts[rank],
            "model": "/opt/ml/model",
            "secret": False,
        }
    until(lambda: not job.active, "the job's end")
    assert job.status == "Completed", (job.reason, job.lines)


LINES = int(os.environ.get("JUPYTER_DIST_TEST_LINES", "4000"))


@pytest.mark.needs("mpi4py")
def test_no_line_is_lost_though_s3_is_throttled(plane: SageMakerPlane, runs: Runs) -> None:
    """Nor there twice, nor out of order; and CloudWatch has each of them, whole, behind its rank, in the
    stream of its host: also under mpirun, which brings all of them to the first one, with lines torn."""
    cell = """
import jupyter_dist as dist
for number in range(LINES):
    print(f"line {number} of rank {dist.rank()}", "." * (number % 80))
"""
    plane.fail("(GET|PUT|POST|DELETE) /sagemaker-", 503, "SlowDown", "Reduce your request rate", share=0.15)
    given: dict[str, Any] = {"np": 8, "instance_count": 2, "distribution": "mpi"}
    run = runs.finish(cell, {"LINES": LINES}, **given)
    plane.heal()
    assert run.state is State.SUCCEEDED, story(run)
    until(lambda: not job_of(plane, run).active, "the job's end")
    shown = plane.cloudwatch(job_of(plane, run))
    for rank in range(8):
        lines = [f"line {number} of rank {rank} {'.' * (number % 80)}" for number in range(LINES)]
        assert run.log(rank).split("\n")[:-1] == lines, "none lost, none twice, in order"
        host = f"algo-{1 + rank // 4}"
        assert [line for line in shown[host] if line.startswith(f"[{rank}] ")] == [
            f"[{rank}] {x}" for x in lines
        ]


def test_the_second_cell_starts_on_the_same_instances(plane: SageMakerPlane, runs: Runs) -> None:
    """Those of a warm pool, in other containers."""
    cell = """
from pathlib import Path
mark = Path("/tmp/was-here")
was, _ = mark.exists(), mark.write_text("")
Path("/etc/instance-id").read_text().strip(), was
"""
    before = plane.cold_starts
    first = runs.finish(cell, np=2, instance_count=2, keep_alive="2m")
    until(lambda: not job_of(plane, first).active, "the job's end")
    second = runs.finish(cell, np=2, instance_count=2, keep_alive="2m")
    assert first.results == second.results, "the same machines"
    assert {was for _, was in (*first.results, *second.results)} == {False}, "new containers"
    told = job_of(plane, first).described()["WarmPoolStatus"]
    assert told == {"Status": "Reused", "ReusedByJob": job_of(plane, second).name}
    assert plane.cold_starts == before + 1, "nothing to wait for"


def test_inputs_of_every_kind(plane: SageMakerPlane, runs: Runs) -> None:
    """A pipe that a rank reads, a shard for each instance, and file systems."""
    plane.s3.create_bucket(Bucket="data")
    for number in range(4):
        plane.s3.put_object(Bucket="data", Key=f"parts/{number}.txt", Body=f"{number}\n".encode())
    plane.file_systems["fs-0123456789abcdef0"] = {"mount/data/x.txt": b"of Lustre", "other/y.txt": b"no"}
    plane.file_systems["fs-0123456789abcdef1"] = {"home/z.txt": b"of EFS"}
    cell = """
import jupyter_dist as dist
epochs = [dist.input("pipe", epoch=number).read_text() for number in range(2)]
names = ("shards", "fast", "lustre", "efs")
listed = {name: sorted(path.name for path in dist.input(name).iterdir()) for name in names}
(dist.model_dir() / f"weights-{dist.rank()}").write_text("w" * 10)
epochs, listed, (dist.input("lustre") / "x.txt").read_text()
"""
    given = {
        "pipe": "s3://data/parts,mode=Pipe",
        "shards": "s3://data/parts,distribution=ShardedByS3Key,content_type=text/plain",
        "fast": "s3://data/parts,mode=FastFile",
        "lustre": "fsx://fs-0123456789abcdef0/mount/data,ro",
        "efs": "efs://fs-0123456789abcdef1/home,rw",
    }
    network: dict[str, Any] = {"subnets": "subnet-1,subnet-2", "security_group_ids": "sg-1"}
    run = runs.finish(cell, np=2, instance_count=2, input=given, **network)
    assert run.state is State.SUCCEEDED, story(run)
    whole = ["0.txt", "1.txt", "2.txt", "3.txt"]
    for rank, (epochs, listed, text) in enumerate(run.results):
        assert epochs == ["0\n1\n2\n3\n"] * 2
        assert listed == {"shards": whole[rank::2], "fast": whole, "lustre": ["x.txt"], "efs": ["z.txt"]}
        assert text == "of Lustre"
    job = job_of(plane, run)
    until(lambda: not job.active, "the job's end")
    bucket, _, key = job.output("model.tar.gz").removeprefix("s3://").partition("/")
    assert key in plane.names(bucket), "the model's files"
    assert re.fullmatch(r"[\w-]+/output/model\.tar\.gz", key)
