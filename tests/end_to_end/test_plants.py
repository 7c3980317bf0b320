"""Failures that are planted in cells: the card's first line names the cause and the rank."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.folder import RunFolder
from jupyter_dist.job import State, Status
from jupyter_dist.record import reader
from jupyter_dist.record.failures import parting, stacks
from jupyter_dist.record.failures.card import MOST_LINES, card
from jupyter_dist.worker.output.events import COLLECTIVES
from tests.rigs.hosts import Hosts, missing
from tests.rigs.launching import ended, launch_cell, story, until
from tests.rigs.plants import PLANTS, Plant, table
from tests.rigs.ray.nodes import IN_SHARED, shared_ray

PRELOADED = ["torch"]
LOOP = """
import torch
import torch.distributed as d
import jupyter_dist as dist

dist.init()
for _ in range(5):
    d.all_reduce(torch.ones(4))
"""
_ANSWERED_S = 3.0
"""Ranks that have a record have written it by then."""
DOCS = Path(__file__).parents[2] / "docs" / "failures.md"


def run(plant: Plant, backend: str, options: Mapping[str, Any]) -> RunFolder:
    """Plant the failure. A run that hangs is stopped when its ranks have told why."""
    folder = launch_cell(backend, plant.code, plant.np, options, cold=False, stop_grace=1.0)
    if plant.hangs:

        def told(status: Status) -> bool:
            _, asked = stacks.kept(folder)
            if status.state is State.RUNNING and time.time() - asked > _ANSWERED_S:
                folder.request("stacks")
            return plant.says(parting.of_running(folder, status))

        until(folder, told, plant.first)
        folder.request("stop")
    ended(folder)
    return folder


def check(plant: Plant, backend: str, options: Mapping[str, Any]) -> None:
    folder = run(plant, backend, options)
    found = card(folder)
    assert found is not None, story(folder)
    lines = "\n".join(found.lines())
    assert plant.says(found.headline), f"{plant.first}\n{lines}"
    assert plant.hint in " ".join(found.hints), lines
    assert any(plant.place in place for place in found.places) or not plant.place, lines
    assert len(found.lines()) <= MOST_LINES
    if not plant.hangs and "failed first" not in found.title:
        assert reader.status(folder).reason == found.headline


def marked(plant: Plant) -> Any:
    return pytest.param(plant, id=plant.name, marks=pytest.mark.needs(*plant.needs))


@pytest.mark.usefixtures("warm")
@pytest.mark.xdist_group("plants")
@pytest.mark.parametrize("plant", [marked(plant) for plant in PLANTS])
def test_the_first_line_names_the_cause(plant: Plant, own_folders: Path) -> None:
    check(plant, plant.backend, {})


@pytest.fixture(
    scope="module",
    params=[
        "torchrun",
        pytest.param("horovod", marks=pytest.mark.needs("horovod")),
        "ssh",
        pytest.param("ray", marks=pytest.mark.needs("ray")),
    ],
)
def elsewhere(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, dict[str, Any]]]:
    """A backend and its options. Its hosts and nodes serve all tests."""
    with contextlib.ExitStack() as stack:
        options: dict[str, Any] = {}
        if request.param == "ssh":
            if lacking := missing():
                pytest.skip(lacking)
            hosts = stack.enter_context(Hosts(tmp_path_factory.mktemp("ssh") / "hosts"))
            listed = [{"name": name, "slots": 1} for name in hosts.names]
            options = {"hosts": listed, "ssh_config": str(hosts.ssh_config), "python": sys.executable}
        elif request.param == "ray":
            ray = stack.enter_context(shared_ray(tmp_path_factory))
            options = {"address": ray.address, "gpus_per_worker": 0}
        yield request.param, options


@pytest.mark.xdist_group(IN_SHARED)
@pytest.mark.parametrize(
    "plant", [plant for plant in PLANTS if plant.everywhere], ids=lambda plant: plant.name
)
def test_the_first_line_names_the_cause_elsewhere(
    plant: Plant, elsewhere: tuple[str, dict[str, Any]], own_folders: Path
) -> None:
    check(plant, *elsewhere)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("name", ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"])
def test_the_users_own_buffer_size_wins(
    name: str, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "2")
    folder = launch_cell("local", LOOP, np=2)
    ended(folder)
    records = [event.data for event in reader.events(folder) if event.kind == COLLECTIVES]
    of_torch = [[number for group, number, *_ in record["calls"] if group == "0"] for record in records]
    assert of_torch == [[4, 5]] * 2
    assert all(record["final"] for record in records)


def test_the_table_of_the_docs() -> None:
    assert table() in DOCS.read_text(), "write it: python -m tests.rigs.plants"
