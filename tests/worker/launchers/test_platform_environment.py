"""Every row of the table of platforms: what their variables say of a process's place in a job."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from jupyter_dist.worker.launchers import platform_environment
from jupyter_dist.worker.launchers.platform_environment import JobPosition, standing

CLUSTER = {"worker": ["b:1", "[fd00::3]:1"], "chief": ["a:1"], "ps": ["d:1"]}
THREE_OF_FOUR = {"rank": 3, "world_size": 4}
ROWS: list[tuple[str, dict[str, str], dict[str, Any]]] = [
    (
        "torch",
        {
            **{"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1"},
            **{"GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "h0", "MASTER_PORT": "29500"},
            "CUDA_VISIBLE_DEVICES": "0,1",
        },
        {
            **{"node": 1, "nodes": 2, "rank": 5, "world_size": 8, "local_rank": 1, "local_size": 4},
            **{"master_addr": "h0", "master_port": 29500, "gpus": 2},
        },
    ),
    # Kubeflow's PyTorchJob: one process per pod, the local variables left to torchrun.
    ("torch", {"RANK": "3", "WORLD_SIZE": "4"}, {"node": 3, "rank": 3, "world_size": 4}),
    (
        "torch",
        {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"},
        {"rank": 3, "world_size": 4, "local_rank": 1},
    ),
    (
        "ompi",
        {
            **{"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"},
            **{"OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
        },
        {"rank": 2, "world_size": 4, "local_rank": 0, "local_size": 2},
    ),
    (
        "slurm",
        {
            **{"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_NODEID": "1", "SLURM_NNODES": "2"},
            **{"SLURM_LOCALID": "1", "SLURM_GPUS_ON_NODE": "8", "JOB_COMPLETION_INDEX": "7"},
        },
        {"node": 1, "nodes": 2, "rank": 3, "world_size": 4, "local_rank": 1, "gpus": 8},
    ),
    (
        "sagemaker",
        {
            "SM_HOSTS": json.dumps(["algo-10", "algo-2", "algo-1"]),
            **{"SM_CURRENT_HOST": "algo-2", "SM_NUM_GPUS": "4"},
        },
        {"node": 1, "nodes": 3, "master_addr": "algo-1", "gpus": 4},
    ),
    (
        "tensorflow",
        {"TF_CONFIG": json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": 1}})},
        {"node": 2, "nodes": 4, "rank": 2, "world_size": 4, "master_addr": "a"},
    ),
    (
        "tensorflow",
        {"TF_CONFIG": json.dumps({"cluster": CLUSTER, "task": {"type": "ps", "index": "0"}})},
        {"node": 3, "nodes": 4, "rank": 3, "world_size": 4, "master_addr": "a"},
    ),
    ("kubernetes", {"JOB_COMPLETION_INDEX": "4"}, {"node": 4}),
    (
        "ray",
        {"RAY_JOB_ID": "01000000", "CUDA_VISIBLE_DEVICES": "3", "OMP_NUM_THREADS": "1"},
        {"gpus": 1, "drop": ("OMP_NUM_THREADS",)},
    ),
    ("ray", {"RAY_JOB_ID": "01000000", "OMP_NUM_THREADS": "8"}, {}),
    ("spark", {"SPARK_REUSE_WORKER": "1", "OMP_NUM_THREADS": "1"}, {"drop": ("OMP_NUM_THREADS",)}),
]


@pytest.mark.parametrize(("name", "environ", "told"), ROWS)
def test_a_platform(name: str, environ: dict[str, str], told: dict[str, Any]) -> None:
    assert standing({**environ, "PATH": "/bin"}) == JobPosition(platform=name, **told)


def test_every_row_has_its_test() -> None:
    assert {name for name, _, _ in ROWS} == set(platform_environment._TABLE)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"RANK": "first", "WORLD_SIZE": "2"},
        {"SM_HOSTS": "[]", "SM_CURRENT_HOST": "algo-1"},
        {"SM_HOSTS": "no JSON", "SM_CURRENT_HOST": "algo-1"},
        {"TF_CONFIG": "[]"},
        {"TF_CONFIG": json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": 9}})},
        {"JOB_COMPLETION_INDEX": ""},
    ],
)
def test_what_no_platform_has_set_says_nothing(environ: dict[str, str]) -> None:
    assert standing(environ) == JobPosition()


@pytest.mark.parametrize(("text", "gpus"), [("", 0), ("-1", 0), ("0,-1,2", 1), ("GPU-a,GPU-b", 2)])
def test_gpus_are_counted_as_cuda_does(text: str, gpus: int) -> None:
    assert standing({"CUDA_VISIBLE_DEVICES": text}) == dataclasses.replace(JobPosition(), gpus=gpus)
