"""The hosts of a run whose arguments make mpirun map ranks by node."""

from __future__ import annotations

import shlex
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_dist.backends.launchers import multi_host_launcher
from jupyter_dist.backends.launchers.multi_host_launcher import rank_environments
from jupyter_dist.backends.mpi.host_mapping import is_ranked_by_node, mapped_hosts
from jupyter_dist.backends.mpi.options import MpiOptions
from jupyter_dist.job import Job

HOSTS = ({"name": "a", "slots": 3}, {"name": "b", "slots": 1}, {"name": "c", "slots": 4})


@pytest.mark.parametrize(
    ("np", "more", "slots"),
    [
        (2, "--map-by node", {"a": 1, "b": 1}),
        (5, "-map-by node:PE=2", {"a": 2, "b": 1, "c": 2}),
        (7, "--bynode", {"a": 3, "b": 1, "c": 3}),
        (3, "--map-by=node", {"a": 1, "b": 1, "c": 1}),
        (3, "--map-by ppr:1:node", {"a": 1, "b": 1, "c": 1}),
        (4, "--map-by ppr:2:node:PE=2", {"a": 2, "b": 1, "c": 1}),
        (2, "-N 1", {"a": 1, "b": 1}),
        (2, "-ppn 1", {"a": 1, "b": 1}),
        (3, "-pernode", {"a": 1, "b": 1, "c": 1}),
        (2, "--map-by slot", {"a": 3, "b": 1, "c": 4}),
        (2, "--map-by socket --rank-by node", {"a": 3, "b": 1, "c": 4}),
        (4, "-N 1", {"a": 3, "b": 1, "c": 4}),
    ],
)
def test_mpirun_gets_the_hosts_that_its_mapping_uses(np: int, more: str, slots: dict[str, int]) -> None:
    found = mapped_hosts(np, HOSTS, shlex.split(more))
    assert {host["name"]: host["slots"] for host in found} == slots


@pytest.mark.parametrize(
    ("more", "by_node"),
    [
        ("", False),
        ("--map-by node", True),
        ("--map-by node --rank-by slot", False),
        ("--rank-by node", True),
        ("--map-by ppr:1:node", False),
        ("-x NODE=node", False),
    ],
)
def test_the_order_of_ranks(more: str, by_node: bool) -> None:
    assert is_ranked_by_node(shlex.split(more)) == by_node


def test_each_rank_has_the_address_of_its_own_host_in_tf_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multi_host_launcher, "environment_there", lambda *_: {})
    monkeypatch.setattr(multi_host_launcher, "addresses_of", lambda _, names: {name: name for name in names})
    ports = {"a": [1, 2, 3, 4], "b": [5, 6]}
    there: Any = SimpleNamespace(
        names=["a", "b"], fleet=SimpleNamespace(ports=ports.__getitem__, facts=lambda name: None)
    )
    job = Job("id", "mpi", 4, 0.0, "/cwd", "/py", "1", options={})
    found = rank_environments("mpi", job, 0, MpiOptions(hosts=HOSTS[:2]), there, by_node=True)
    hosts = [worker.partition(":")[0] for worker in found["a"]["JUPYTER_DIST_TF_WORKERS"].split(",")]
    assert hosts == ["a", "b", "a", "a"]
    assert found["a"]["MASTER_ADDR"] == "a"
