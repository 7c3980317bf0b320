"""Networks that really learn in the pods of Kubeflow's jobs: digits, read as well as on one machine.

JUPYTER_DIST_CONFORMANCE=whole also has a PyTorchJob learn them, as an Indexed Job does in kubernetes.ipynb,
and a TFJob, as processes do in tf-parameter-server.ipynb: a minute more. What is theirs, the roles and the
places, is in test_kubeflow.py.
The API server is real, and the operators are stand-ins: tests/kube_plane/kubeflow_stand_in.py.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest
from kube_plane.fixtures import plane, runs  # noqa: F401
from kube_plane.plane import IN_SHARED

from jupyter_dist.conformance.runs import Runs, story
from jupyter_dist.job import State

pytestmark = [pytest.mark.xdist_group(IN_SHARED), pytest.mark.timeout(300)]

_LOCAL_ACCURACY = 0.95

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
    told = {"accuracy": right, "size": size, "pod": os.uname().nodename}
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
{"accuracy": float(right.mean()), "on": weights, "pod": os.uname().nodename}
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
    assert results[0]["accuracy"] >= _LOCAL_ACCURACY


@pytest.mark.needs("horovod", "torch", "sklearn")
def test_horovod_learns_by_mpi_in_an_mpijob(runs: Runs, digits: dict[str, Any]) -> None:
    """In a second attempt: mpirun, whose places the first has used up, is started anew in the same pods."""
    flags: dict[str, Any] = {"kind": "mpijob", "processes_per_host": 2, "max_restarts": 1}
    run = runs.finish(HOROVOD, digits, **flags, training_s=90)
    alike(run, run.results)
    assert run.status.attempt == 1
    pods = [result["pod"].removeprefix(f"jd-{run.id}-") for result in run.results]
    assert pods == ["worker-0", "worker-0", "worker-1"]


if os.environ.get("JUPYTER_DIST_CONFORMANCE") == "whole":

    @pytest.mark.needs("torch", "sklearn")
    def test_torch_learns_in_a_pytorchjob(runs: Runs, digits: dict[str, Any]) -> None:
        run = runs.finish(TORCH, digits, kind="pytorchjob", training_s=60)
        alike(run, run.results)

    @pytest.mark.needs("tensorflow", "sklearn")
    def test_tensorflow_learns_with_a_parameter_server_in_a_tfjob(runs: Runs, digits: dict[str, Any]) -> None:
        run = runs.finish(PARAMETER_SERVER, digits, kind="tfjob", np=4, chief=True, ps=1, training_s=90)
        assert run.status.state is State.SUCCEEDED, story(run)
        chief, *served = run.results
        assert chief["pod"].endswith("-chief-0")
        assert "/job:ps/" in chief["on"]
        assert chief["accuracy"] >= _LOCAL_ACCURACY
        assert served == [None, None, None]
