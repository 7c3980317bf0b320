"""The hosts, GPUs and environments of ranks, as computed from facts about hosts."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.backends.ranks.placement import (
    RankEnvironmentOptions,
    environments,
    gpu_trouble,
    places,
    ports_needed,
)
from jupyter_dist.backends.ssh.backend import Ssh
from jupyter_dist.backends.ssh.options import SshOptions
from jupyter_dist.errors import InputError
from jupyter_dist.folder import RunFolder
from jupyter_dist.hosts.facts import HostFacts, host_facts
from jupyter_dist.job import Job


def test_ranks_fill_the_hosts_in_order() -> None:
    hosts = [{"name": "a", "slots": 2}, {"name": "b", "slots": 3}, {"name": "c", "slots": 1}]
    found = places(4, hosts)
    assert [(place.rank, place.host, place.local_rank, place.local_size) for place in found] == [
        (0, "a", 0, 2),
        (1, "a", 1, 2),
        (2, "b", 0, 2),
        (3, "b", 1, 2),
    ]
    assert ports_needed(found) == {"a": 4, "b": 2}


def about(name: str, node: int, gpus: int, **more: Any) -> HostFacts:
    told: dict[str, Any] = {"hostname": name, "client": None, "python": "python3", "version": "3.11"}
    told |= {"cores": 8, "home": "~", "machine": name, "stage": "/s", "free_disk": 1}
    told |= {"address": f"fd00::{node + 1}"}
    told |= {"interfaces": {"eth0": [f"fd00::{node + 1}"], "eth1": [f"10.0.0.{node + 1}"]}, **more}
    return host_facts(name, node, 4, {**told, "gpus": [str(gpu) for gpu in range(gpus)]})


def test_gpus_are_shared_by_those_that_train(folder: RunFolder) -> None:
    hosts = [{"name": "a", "slots": 2}, {"name": "b", "slots": 3}]
    where = places(5, hosts)
    facts = {"a": about("a", 0, 4), "b": about("b", 1, 3)}
    ports = {"a": [1, 0, 2, 3], "b": [4, 5, 6]}
    seen: dict[Any, list[str]] = {}
    for wanted in (None, 1, 0):
        asked = SshOptions(ps=2, chief=True, gpus_per_worker=wanted).wanted()
        job = Job(folder.id, "ssh", 5, 0.0, "/tmp", sys.executable, "1", options={"hosts": hosts})
        assert gpu_trouble(job, asked, where, facts) is None
        envs = environments(job, 0, asked, where, facts, ports)
        seen[wanted] = [env["CUDA_VISIBLE_DEVICES"] for env in envs]
        assert [env["JUPYTER_DIST_GPUS"] for env in envs] == [
            str(len(gpus.replace("-1", "").replace(",", ""))) for gpus in seen[wanted]
        ]
    # The roles are: chief and worker on a; worker, ps, ps on b.
    assert seen == {
        None: ["0,1", "2,3", "0,1,2", "-1", "-1"],
        1: ["0", "1", "0", "-1", "-1"],
        0: ["-1"] * 5,
    }
    assert json.loads(envs[0]["TF_CONFIG"])["cluster"]["ps"] == ["[fd00::2]:5", "[fd00::2]:6"]


@pytest.mark.parametrize(
    ("gpus", "options", "told"),
    [
        ((4, 1), {}, "host b has 1 GPU, too few for 2 of the workers: .*--gpus-per-worker 0"),
        ((4, 2), {"gpus_per_worker": 2}, "host b has 2 GPUs, too few for 2 .* --gpus-per-worker 2"),
        ((0, 0), {"gpus_per_worker": 1}, "host a has 0 GPUs"),
        ((0, 0), {}, None),
        ((1, 0), {"gpus_per_worker": 0}, None),
        ((2, 0), {"ps": 2}, None),
    ],
)
def test_gpus_that_do_not_suffice(
    folder: RunFolder, gpus: tuple[int, int], options: dict[str, Any], told: str | None
) -> None:
    where = places(4, [{"name": "a", "slots": 2}, {"name": "b", "slots": 2}])
    job = Job(folder.id, "ssh", 4, 0.0, "/tmp", sys.executable, "1")
    facts = {"a": about("a", 0, gpus[0]), "b": about("b", 1, gpus[1])}
    said = gpu_trouble(job, SshOptions(**options).wanted(), where, facts)
    assert said is told is None or (told and re.match(told, said or "")), said


def test_one_machine_under_two_names_is_refused_where_it_has_gpus(folder: RunFolder) -> None:
    where = places(2, [{"name": "a", "slots": 1}, {"name": "b", "slots": 1}])
    job = Job(folder.id, "ssh", 2, 0.0, "/tmp", sys.executable, "1")
    for gpus, told in ((1, "a and b are the same machine"), (0, "None")):
        facts = {name: about(name, node, gpus, machine="one") for node, name in enumerate("ab")}
        assert str(gpu_trouble(job, RankEnvironmentOptions(), where, facts)).startswith(told)


def test_a_dry_run_shows_hosts_and_environments(folder: RunFolder) -> None:
    hosts = [{"name": "a", "slots": 1}, {"name": "b", "slots": 1}]
    options = {"hosts": hosts, "ssh_config": "/tmp/my config", "ps": 1}
    job = Job(folder.id, "ssh", 2, 0.0, "/tmp", sys.executable, "1", options=options)
    shown = Ssh().request(job)
    assert [host["name"] for host in shown["hosts"]] == ["a", "b"]
    assert shown["hosts"][1]["argv"][:4] == ["ssh", "-T", "-F", "/tmp/my config"]
    assert "StrictHostKeyChecking=yes" in shown["hosts"][0]["argv"]
    assert [rank["host"] for rank in shown["ranks"]] == ["a", "b"]
    assert shown["ranks"][1]["env"]["MASTER_ADDR"] == "<address of a>"
    assert '"task": {"type": "ps", "index": 0}' in shown["ranks"][1]["env"]["TF_CONFIG"]


def test_options_that_cannot_work_are_refused_before_anything_is_started(tmp_path: Path) -> None:
    hosts = [{"name": "localhost", "slots": 2}]
    for options, told in (
        ({}, "-H node1:4"),
        ({"hosts": hosts, "rsync": ["/no/such/folder"]}, "/no/such/folder"),
        ({"hosts": hosts, "ssh_config": "/no/such/file"}, "/no/such/file"),
        ({"hosts": hosts, "ps": 2}, "--ps"),
    ):
        with pytest.raises(InputError, match=told):
            Ssh().check(2, options)
    with pytest.raises(InputError, match="more slots than the 2 of the hosts"):
        Ssh().check(3, {"hosts": hosts})
    assert Ssh().check(2, {"hosts": hosts}) == []
