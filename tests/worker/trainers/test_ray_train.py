"""A training function that was written for Ray Train runs on the ranks of a run, unchanged."""

from __future__ import annotations

from types import ModuleType

import pytest

from jupyter_dist.record.metrics import points
from jupyter_dist.worker import payload as container
from jupyter_dist.worker.output import events
from jupyter_dist.worker.trainers import ray_train
from tests.rigs.launching import ended, launch_cell, story

CELL = """
import pathlib, tempfile
import torch
import jupyter_dist
import ray.train, ray.train.collective, ray.train.torch
from ray.train import Checkpoint
from torch.utils.data import DataLoader, TensorDataset

def train_func(config):
    context = ray.train.get_context()
    rank = context.get_world_rank()
    seen = {
        "who": [rank, context.get_world_size(), context.get_local_rank(), context.get_local_world_size()],
        "node": context.get_node_rank(),
        "device": str(ray.train.torch.get_device()),
    }
    model = ray.train.torch.prepare_model(torch.nn.Linear(1, 1))
    loader = DataLoader(TensorDataset(torch.arange(8)), batch_size=2)
    loader = ray.train.torch.prepare_data_loader(loader)
    seen["model"] = type(model).__name__
    seen["batches"] = [batch.tolist() for batch, in loader]
    seen["weight"] = model.module.weight.item()
    seen["from 0"] = ray.train.collective.broadcast_from_rank_zero(rank)
    start = 0
    found = ray.train.get_checkpoint()
    if found is not None:
        with found.as_directory() as folder:
            left = {path.name: path.read_text() for path in pathlib.Path(folder).iterdir()}
        seen["found"] = left
        start = int(left[f"rank-{rank}"]) + 1
    for epoch in range(start, config["epochs"]):
        if epoch == 2 and found is None and rank == 1:
            ray.train.collective.barrier()
            raise ValueError("not this time")
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, f"rank-{rank}").write_text(str(epoch))
            values = {"loss": 1 / (1 + epoch), "epoch": epoch, "kind": "text"}
            ray.train.report(values, checkpoint=Checkpoint.from_directory(folder))
        if epoch == 2 and found is None:
            ray.train.collective.barrier()
    last = ray.train.get_checkpoint()
    seen["last"] = (pathlib.Path(last.path) / f"rank-{rank}").read_text()
    seen["kept"] = jupyter_dist.checkpoint_dir() in pathlib.Path(last.path).parents
    try:
        ray.train.get_dataset_shard("train")
    except RuntimeError as error:
        seen["shard"] = str(error)
    return seen

train_func({"epochs": 4})
"""


@pytest.mark.needs("torch", "ray")
def test_a_function_for_torch_trainer() -> None:
    """Rank 1 fails before its third report: the next attempt begins with the second checkpoint."""
    run = launch_cell("local", CELL, max_restarts=1)
    status = ended(run)
    assert str(status.state) == "succeeded", story(run)
    found = [container.load(run.rank(1, rank).result) for rank in range(2)]
    assert [one["who"] for one in found] == [[0, 2, 0, 2], [1, 2, 1, 2]]
    assert [one["node"] for one in found] == [0, 0]
    assert [one["model"] for one in found] == ["DistributedDataParallel"] * 2
    assert sorted(place for one in found for batch in one["batches"] for place in batch) == list(range(8))
    assert found[0]["weight"] == found[1]["weight"]
    assert [one["from 0"] for one in found] == [0, 0]
    assert [one["found"] for one in found] == [{"rank-0": "1", "rank-1": "1"}] * 2
    values = {(p.attempt, p.rank, p.step, p.name): p.value for p in points.points(run)}
    assert {place[2:] for place in values if place[:2] == (0, 1)} == {
        (step, name) for step in (0, 1) for name in ("loss", "epoch")
    }
    assert values[0, 0, 2, "loss"] == pytest.approx(1 / 3)
    for rank in (0, 1):
        assert [values[1, rank, step, "epoch"] for step in (2, 3)] == [2, 3], "the curve goes on"
    assert [one["last"] for one in found] == ["3", "3"]
    assert all(one["kept"] for one in found)
    assert all("dist.shard(dataset)" in one["shard"] for one in found)


def test_the_first_ray_train_is_not_passed_over_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(events, "tell", told.append)
    monkeypatch.setenv("WORLD_SIZE", "2")
    ray_train.patch_old(ModuleType("session"))
    assert told == []
    monkeypatch.setenv("RAY_TRAIN_V2_ENABLED", "0")
    ray_train.patch_old(ModuleType("session"))
    assert len(told) == 1
    assert "RAY_TRAIN_V2_ENABLED" in told[0]
