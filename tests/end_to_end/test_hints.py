"""Mistakes that raise no error: a note names each. The nearest right code is silent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jupyter_dist.folder import RunFolder
from jupyter_dist.job import State
from jupyter_dist.queries import run_info
from jupyter_dist.record import reader
from jupyter_dist.record.cursor import Tail
from jupyter_dist.showing import summary
from jupyter_dist.showing.view import View
from jupyter_dist.worker.hints import NAMES
from tests.rigs.launching import ended, launch_cell, results, story

ROOT = Path(__file__).parents[2]
PRELOADED = ["torch", "tensorflow"]
pytestmark = [
    pytest.mark.needs("torch"),
    pytest.mark.usefixtures("warm"),
    pytest.mark.xdist_group("hints"),
]

DATA_PARALLEL = """
import threading
import torch
import jupyter_dist as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init()
torch.set_num_threads(1)
samples = torch.arange(96, dtype=torch.float32).reshape(32, 3) / 96
data = TensorDataset(samples, samples.sum(1, keepdim=True))
rank = dist.rank()
bad = {bad}
sampler = None if bad else DistributedSampler(data, drop_last=True)
checks = DistributedSampler(data)  # shuffles by default, which does not matter for an evaluation
batches = DataLoader(data, batch_size=4 if bad else 8, sampler=sampler)
model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
lines = 0

def crash(wrong):
    if wrong:
        raise KeyError("no such thing")

for epoch in range(6):
    if sampler:
        sampler.set_epoch(epoch)
    for x, y in batches:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        if bad and rank == 1 and epoch == 1:
            loss = loss * float("nan")
        loss.backward()
        optimizer.step()
    for x, y in DataLoader(data, batch_size=8, sampler=checks):
        with torch.no_grad():
            model(x)
    dist.log(loss=0.1, val_loss=float("nan"), best_loss=float("inf"), step=epoch)
torch.save(model.state_dict(), "model.pt" if bad else f"model-{{rank}}.pt")
thread = threading.Thread(target=crash, args=(bad,), name="reader")
thread.start()
thread.join()
"""
BY_HAND = """
import torch
import torch.distributed as d
import jupyter_dist as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init()
torch.set_num_threads(64 if {bad} else 1)
data = TensorDataset(torch.randn(16, 3))
sampler = DistributedSampler(data)
model = nn.Linear(3, 1)
if not {bad}:
    for parameter in model.parameters():
        d.broadcast(parameter.data, 0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(6):
    if not {bad}:
        sampler.set_epoch(epoch)
    for (x,) in DataLoader(data, batch_size=4, sampler=sampler):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        for parameter in model.parameters():
            d.all_reduce(parameter.grad)
        optimizer.step()
"""
ALONE = """
import torch
import torch.distributed as d
import jupyter_dist as dist
from torch import nn

torch.set_num_threads({threads})
{begin}
model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(105):
    optimizer.zero_grad()
    model(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()
    {exchange}
"""
PLAIN = "nn.Linear(3, 1)"
UNWRAPPED = f"(whole := nn.parallel.DistributedDataParallel({PLAIN})).module"
GROUP_OF_ONE = "d.init_process_group('gloo', store=d.HashStore(), rank=0, world_size=1)"
GOSSIP = "d.send(model.bias, 1) if dist.rank() == 0 and step % 30 == 29 else None"
LISTEN = "d.recv(model.bias.data, 0) if dist.rank() == 1 and step % 30 == 29 else None"
HOROVOD = """
import torch
import horovod.torch as hvd
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

hvd.init()
torch.set_num_threads(1)
bad = {bad}
data = TensorDataset(torch.arange(240, dtype=torch.float32).reshape(80, 3) / 240)
sampler = None if bad else DistributedSampler(data, hvd.size(), hvd.rank())
model = nn.Linear(3, 1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
for (x,) in DataLoader(data, batch_size=4, sampler=sampler):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
hvd.size()
"""


KERAS = """
import os
import numpy as np
import tensorflow as tf
import jupyter_dist as dist
{use}
tf.keras.utils.set_random_seed({seed})
model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
model.compile(tf.keras.optimizers.SGD({rate}), "mse")
x, y = np.ones((8, 3)), np.ones(8)
model.fit({data}, shuffle={shuffle}, verbose=0)
"""
ARRAYS, DATASET = "x, y", "tf.data.Dataset.from_tensor_slices((x, y)).batch(4)"


@pytest.fixture(autouse=True)
def _folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def hints(folder: RunFolder) -> dict[str, str]:
    """The notes of a run that succeeded, by the names of their hints."""
    assert ended(folder).state is State.SUCCEEDED, story(folder)
    notes = run_info.full(folder)["notes"]
    assert all("--no-hint " in note for note in notes), notes
    return {note.rpartition("--no-hint ")[2]: note for note in notes}


def test_data_parallel_training_with_mistakes(own_folders: Path) -> None:
    folder = launch_cell("local", DATA_PARALLEL.format(bad=True), cold=False)
    found = hints(folder)
    assert found.keys() == {"nan", "same-data", "batch-norm", "one-file", "thread-error"}
    assert "rank 1: the loss is nan from call 9 of backward() on. The loss of rank 0 followed" in found["nan"]
    assert "ranks 0-1: these ranks train on the same data" in found["same-data"]
    assert "BatchNorm ('1') normalizes over 4 samples" in found["batch-norm"]
    assert f"may destroy the file of another: '{Path.cwd()}/model.pt'" in found["one-file"]
    assert (
        "the thread 'reader' ended with KeyError: 'no such thing' at In[1], line 24." in found["thread-error"]
    )
    # The other views show the same.
    told = summary.gather(folder)
    assert all(note in told.text() for note in found.values())
    view, tail = View(folder, reader.job(folder), keep=100), Tail(folder)
    for _ in range(2):
        view.feed(tail.poll(), 0.0)
    lines = [entry.text for entry in view.fold.entries]
    assert sorted(line for line in lines if line.startswith("note: ")) == sorted(
        f"note: {note}" for note in found.values()
    )


def test_data_parallel_training_without_mistakes(own_folders: Path) -> None:
    assert hints(launch_cell("local", DATA_PARALLEL.format(bad=False), cold=False)) == {}


def test_gradients_averaged_by_hand(own_folders: Path) -> None:
    # Cold: the hooks then wait for the import of torch, as they do on every other host.
    found = hints(launch_cell("local", BY_HAND.format(bad=True), no_hint="nan,cpu-threads"))
    assert found.keys() == {"weights", "set-epoch"}
    assert "the ranks began with other weights" in found["weights"]
    assert "sampler.set_epoch(epoch)" in found["set-epoch"]


def test_gradients_averaged_by_hand_after_a_broadcast(own_folders: Path) -> None:
    assert hints(launch_cell("local", BY_HAND.format(bad=False), cold=False)) == {}


@pytest.mark.parametrize(
    ("begin", "name", "text", "model"),
    [
        ("", "own-model", "each rank trains a model of its own: 10 steps", PLAIN),
        ("dist.init()", "own-model", "each rank trains a model of its own: 100 steps", PLAIN),
        ("dist.init()", "own-model", "call the wrapped model, not model.module", UNWRAPPED),
        (GROUP_OF_ONE, "world-size", "torch.distributed has one rank here, and the run has 2", PLAIN),
    ],
)
def test_a_model_for_each_rank(begin: str, name: str, text: str, model: str, own_folders: Path) -> None:
    found = hints(launch_cell("local", ALONE.format(threads=64, begin=begin, model=model, exchange="")))
    assert found.keys() == {name, "cpu-threads"}
    assert found[name].startswith("ranks 0-1: ")
    assert text in found[name]
    assert "2 ranks with 64 CPU threads each" in found["cpu-threads"]


@pytest.mark.parametrize(
    ("begin", "exchange"), [("dist.init()", f"{GOSSIP}; {LISTEN}"), ("# ranks try seeds", "")]
)
def test_a_model_for_each_rank_on_purpose(begin: str, exchange: str, own_folders: Path) -> None:
    assert (
        hints(launch_cell("local", ALONE.format(threads=1, begin=begin, model=PLAIN, exchange=exchange)))
        == {}
    )


@pytest.mark.needs("tensorflow", "horovod")
@pytest.mark.parametrize(
    ("seed", "rate", "data", "shuffle", "names"),
    [
        ("7", "0.1", ARRAYS, True, {"own-model"}),
        ("7", "1 / os.getpid()", ARRAYS, True, set()),
        ("7", "0.1", DATASET, True, set()),
        ("dist.rank()", "0.1", ARRAYS, True, set()),
        ("hvd.init() or 7", "0.1", ARRAYS, False, {"same-data"}),
    ],
)
def test_fit_of_keras_on_every_rank(
    seed: str, rate: str, data: str, shuffle: bool, names: set[str], own_folders: Path
) -> None:
    """Ranks may try several learning rates, and nobody knows what is in a dataset."""
    use = "import horovod.tensorflow as hvd" if "hvd" in seed else ""
    code = KERAS.format(use=use, seed=seed, rate=rate, data=data, shuffle=shuffle)
    folder = launch_cell("local", code, cold=False)
    assert hints(folder).keys() == names


@pytest.mark.needs("horovod")
@pytest.mark.parametrize(("bad", "names"), [(True, {"same-data"}), (False, set())])
def test_horovod_on_local_ranks(bad: bool, names: set[str], own_folders: Path) -> None:
    folder = launch_cell("local", HOROVOD.format(bad=bad))
    assert hints(folder).keys() == names
    assert results(folder) == [2, 2]


def test_docs_list_every_hint() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", (ROOT / "docs/hints.md").read_text(), re.MULTILINE)
    assert rows == list(NAMES)
