"""Networks that learn to read digits, as users write them, for the backends whose ranks are far away.

They reach LOCAL_ACCURACY on images that they have not seen, as on one machine. Fixture: `digits`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from jupyter_dist.conformance.run_control import story
from jupyter_dist.job import State

__all__ = ["HOROVOD", "LOCAL_ACCURACY", "PARAMETER_SERVER", "TORCH", "alike", "digits"]

LOCAL_ACCURACY = 0.95

_WITH_TORCH = """
import hashlib, os
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
images, labels = torch.tensor(pixels), torch.tensor(digits)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

def learn(model, optimizer, mine, epochs=12):
    for epoch in range(epochs):
        order = mine[torch.randperm(len(mine))]
        for batch in order.split(32):
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

def result(model, size):
    with torch.no_grad():
        right = (model(images[unseen]).argmax(1) == labels[unseen]).float().mean().item()
        weights = b"".join(weight.numpy().tobytes() for weight in model.parameters())
    told = {"accuracy": right, "size": size, "host": os.uname().nodename}
    return {**told, "weights": hashlib.sha256(weights).hexdigest()}
"""
HOROVOD = (
    _WITH_TORCH
    + """
import signal
import horovod.torch as hvd
import jupyter_dist as dist

hvd.init()
assert hvd.mpi_enabled(), "they have not met by MPI"
if dist.attempt() == 0 and hvd.rank() == 2:
    os.kill(os.getpid(), signal.SIGKILL)
optimizer = hvd.DistributedOptimizer(
    torch.optim.Adam(model.parameters(), lr=3e-3), named_parameters=model.named_parameters()
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
learn(model, optimizer, torch.arange(unseen.start)[hvd.rank() :: hvd.size()][:470])
result(model, hvd.size())
"""
)
TORCH = (
    _WITH_TORCH
    + """
import jupyter_dist as dist

dist.init()
wrapped = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.Adam(wrapped.parameters(), lr=3e-3)
learn(wrapped, optimizer, torch.arange(unseen.start)[dist.rank() :: dist.world_size()][:470])
result(model, dist.world_size())
"""
)
PARAMETER_SERVER = """
import os
import tensorflow as tf
import jupyter_dist as dist
from tensorflow import keras

strategy = dist.strategy()
with strategy.scope():
    layers = [keras.layers.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(10)]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(3e-3), loss)
seen = slice(0, unseen.start)
data = tf.data.Dataset.from_tensor_slices((pixels[seen], digits[seen])).shuffle(1500).repeat().batch(32)
model.fit(data, epochs=8, steps_per_epoch=unseen.start // 32, verbose=0)
right = model(pixels[unseen]).numpy().argmax(1) == digits[unseen]
weights = model.trainable_variables[0].value.device
{"accuracy": float(right.mean()), "on": weights, "host": os.uname().nodename}
"""


@pytest.fixture(scope="module")
def digits() -> dict[str, Any]:
    datasets, numpy = pytest.importorskip("sklearn.datasets"), pytest.importorskip("numpy")
    pixels, labels = datasets.load_digits(return_X_y=True)
    order = numpy.random.default_rng(0).permutation(len(labels))
    scaled = (pixels[order] / 16).astype("float32")
    return {"pixels": scaled, "digits": labels[order], "unseen": slice(len(labels) - 360, len(labels))}


def alike(run: Any, results: Sequence[dict[str, Any]]) -> None:
    assert run.status.state is State.SUCCEEDED, story(run)
    assert {result["size"] for result in results} == {3}
    assert len({result["weights"] for result in results}) == 1, "gradients were not averaged"
    assert results[0]["accuracy"] >= LOCAL_ACCURACY
