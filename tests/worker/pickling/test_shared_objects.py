"""Objects that belong to processes of the notebook: a rank connects to them, or they are refused by name."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.notebook_cells import Notebook


@pytest.fixture
def manager() -> Iterator[Any]:
    with multiprocessing.Manager() as made:
        yield made


def test_dicts_lists_and_queues_of_a_manager_are_the_notebooks_own(
    notebook: Notebook,
    manager: Any,
) -> None:
    table, rows, queue, value = manager.dict(), manager.list([1]), manager.Queue(), manager.Value("i", 3)
    table["inner"] = inner = manager.list()
    notebook.names.update(table=table, rows=rows, queue=queue, value=value)
    result = notebook.run(
        "table['rank'] = 7; rows.append(2); queue.put('hello'); value.value += 1\n"
        "table['inner'].append(5)\nresult = list(rows)"
    )
    assert result == [1, 2]
    assert (table["rank"], list(rows), queue.get(timeout=5), value.value) == (7, [1, 2], "hello", 4)
    assert list(inner) == [5]


def test_a_rank_that_the_manager_does_not_reach_says_so(
    notebook: Notebook,
    manager: Any,
    tmp_path: Path,
) -> None:
    notebook.names["table"] = manager.dict()
    captured = notebook.capture("result = dict(table)")
    address = manager.address
    os.rename(address, tmp_path / "away")
    try:
        assert (
            "cannot connect to the notebook's multiprocessing.Manager():" in notebook.start(captured).stderr
        )
    finally:
        shutil.move(tmp_path / "away", address)


def test_a_manager_itself_and_one_behind_a_port_are_refused(
    notebook: Notebook,
    manager: Any,
) -> None:
    from multiprocessing.managers import DictProxy, Token

    notebook.names.update(made=manager, inner=[manager.dict()])
    message = notebook.error("result = made.dict()")
    assert message.startswith("made: a SyncManager, whose process belongs to the notebook")
    assert message.endswith("Nothing was started.")
    far: Any = DictProxy(Token("dict", ("10.0.0.1", 5), "1"), "pickle", authkey=b"x", incref=False)
    notebook.names["inner"] = [far]
    assert notebook.error("result = inner").startswith("inner[0]: a proxy of a manager at ('10.0.0.1', 5)")


GROUP = """
import torch, torch.distributed as td
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
td.init_process_group("gloo", store=td.HashStore(), rank=0, world_size=1)
class Net(nn.Module):
    def __init__(self): super().__init__(); self.body = DDP(nn.Linear(2, 1))
net, wrapped = Net(), DDP(nn.Linear(2, 1))
group, subgroup = td.group.WORLD, td.new_group([0])
mesh = td.device_mesh.init_device_mesh("cpu", (1,))
sampler = DistributedSampler(range(10))
loader = DataLoader(list(range(10)), sampler=sampler)
def step(): return wrapped(torch.ones(1, 2))
"""


@pytest.mark.needs("torch")
def test_models_and_groups_of_the_notebooks_process_group_are_refused(
    notebook: Notebook,
) -> None:
    notebook.cell(GROUP)
    try:
        for code, path, what in (
            ("wrapped", "wrapped", "a model that DistributedDataParallel has wrapped"),
            ("step()", "step() uses wrapped", "a model that DistributedDataParallel has wrapped"),
            ("net", "net._modules['body']", "a model that DistributedDataParallel has wrapped"),
            ("torch.compile(wrapped)", "wrapped", "a model that DistributedDataParallel has wrapped"),
            ("group", "group", "a ProcessGroup, which no"),
            ("[subgroup]", "subgroup", "a ProcessGroup, which no"),
            ("mesh", "mesh", "a DeviceMesh, which no"),
        ):
            message = notebook.error(f"result = {code}")
            assert message.startswith(f"{path}: {what}"), message
            assert "dist.init()" in message
        notebook.cell("model = wrapped.module")
        assert notebook.run("result = tuple(model(torch.ones(1, 2)).shape)") == (1, 1)
        captured = notebook.capture("result = len(list(loader))")
        assert [note for note in captured.notes if "sampler" in note] == [
            "every rank gets part 0 of 1 from the DistributedSampler of the notebook. Create the sampler "
            "inside the cell, after dist.init(), so that each rank gets a part of its own"
        ]
        assert notebook.run_payload(captured) == 10
    finally:
        notebook.names["td"].destroy_process_group()


@pytest.mark.needs("torch")
def test_a_note_names_tensors_in_shared_memory(notebook: Notebook) -> None:
    notebook.cell("import torch\ncount = torch.zeros(3)\ncount.share_memory_()")
    assert (
        notebook.capture("result = count").notes == ()
    )  # as a batch of a DataLoader, which is shared as well
    notebook.names["In"] = ["", "count.share_memory_()"]
    notes = notebook.capture("count += 1\nresult = count.tolist()").notes
    assert notes == ("every rank has a copy of tensors in shared memory: no rank sees what another writes",)
    assert notebook.run("count += 1\nresult = count.tolist()") == [1, 1, 1]
    assert notebook.names["count"].tolist() == [0, 0, 0]
