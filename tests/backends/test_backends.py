"""The backends' table, and what `local` gives its ranks: environment, GPUs, ports."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_dist import backends
from jupyter_dist.errors import InputError, UnknownBackend
from jupyter_dist.job import Job
from jupyter_dist.worker.gpus import devices as _gpus
from jupyter_dist.worker.host import ports as _ports
from jupyter_dist.worker.host import ports as ports_of_worker


def job(world_size: int = 2, **options: object) -> Job:
    return Job("20260101-000000-abcd", "local", world_size, time.time(), "/", "python", "1", options=options)


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A fake nvidia-smi that lists as many GPUs as the file it returns has lines."""
    listed = tmp_path / "gpus"
    fake = tmp_path / "bin" / "nvidia-smi"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\nsed 's/.*/GPU &: A fake (UUID: GPU-fake-&)/' '{listed}'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    _gpus._visible.cache_clear()
    yield listed
    _gpus._visible.cache_clear()


def visible(job_: Job) -> list[str]:
    return [rank["env"].get("CUDA_VISIBLE_DEVICES") for rank in backends.load("local").request(job_)["ranks"]]


def test_an_unknown_backend_is_named_with_what_there_is() -> None:
    with pytest.raises(
        UnknownBackend, match=r"no backend 'locale'. Did you mean 'local'\? There are: azureml, databricks"
    ):
        backends.load("locale")


def test_a_request_is_pure_and_names_every_rank(own_folders: Path) -> None:
    request = backends.load("local").request(job(3))
    assert [rank["rank"] for rank in request["ranks"]] == [0, 1, 2]
    assert [rank["env"]["RANK"] for rank in request["ranks"]] == ["0", "1", "2"]
    assert request["ranks"][0]["env"]["MASTER_PORT"] == "0"
    assert not own_folders.exists()


@pytest.mark.parametrize(
    ("count", "world_size", "options", "expected"),
    [
        (4, 2, {}, ["0,1", "2,3"]),
        (4, 4, {}, ["0", "1", "2", "3"]),
        (5, 2, {}, ["0,1", "2,3"]),
        (4, 2, {"gpus_per_worker": 1}, ["0", "1"]),
        (1, 2, {"gpus_per_worker": 0}, ["-1", "-1"]),
        (0, 2, {}, [None, None]),
    ],
)
def test_gpus_are_shared_out_by_local_rank(
    gpus: Path, count: int, world_size: int, options: dict[str, int], expected: list[str]
) -> None:
    gpus.write_text("".join(f"{index}\n" for index in range(count)))
    backends.load("local").check(world_size, options)
    assert visible(job(world_size, **options)) == expected


def test_only_what_the_notebook_may_see_is_shared_out(gpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus.write_text("0\n1\n2\n3\n")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-8a5f,-1,2")
    assert visible(job(2)) == ["3", "GPU-8a5f"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert _gpus.visible_gpus() == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"3 workers, but only 2 GPUs are visible here\. Use -np 2, or --gpus-per-worker 0\.5 to share"),
        ({"gpus_per_worker": 1}, r"-np 3 with --gpus-per-worker 1 needs 3 GPUs, but 2 GPUs are visible"),
    ],
)
def test_more_workers_than_gpus_is_an_error(gpus: Path, options: dict[str, int], message: str) -> None:
    gpus.write_text("0\n1\n")
    with pytest.raises(InputError, match=message):
        backends.load("local").check(3, options)


def test_the_default_number_of_ranks_is_that_of_the_gpus(gpus: Path) -> None:
    gpus.write_text("0\n1\n2\n")
    assert backends.load("local").default_np() == 3


def test_without_gpus_the_default_is_two() -> None:
    assert backends.load("local").default_np() == 2


def test_more_workers_than_cores_is_a_warning() -> None:
    cores = len(os.sched_getaffinity(0))
    assert backends.load("local").check(cores, {}) == []
    assert backends.load("local").check(cores + 1, {}) == [
        f"{cores + 1} workers share {cores} CPU cores: each will run slower than alone."
    ]


def test_ports_are_free_distinct_and_not_handed_out_by_the_kernel() -> None:
    ports = _ports.free_ports(50)
    assert len(set(ports)) == 50
    assert all(15_000 <= port < ports_of_worker.bounds()[1] for port in ports)
    for port in ports:
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_ports_that_are_taken_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    port, *others = _ports.free_ports(3)
    with socket.create_server(("127.0.0.1", port)):
        monkeypatch.setattr(ports_of_worker._RANDOM, "sample", lambda pool, count: [port, *others])
        assert port not in _ports.free_ports(1)
        with pytest.raises(OSError, match="only 2 of 3"):
            _ports.free_ports(3)
