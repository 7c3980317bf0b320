"""Objects of Keras with torch as its backend: the same on the ranks as with TensorFlow."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import Kernel

pytestmark = pytest.mark.needs("torch", "keras")

NOTEBOOK = """
import os
os.environ["KERAS_BACKEND"] = "torch"
%load_ext jupyter_dist
import json
import keras
import numpy as np
import torch
import jupyter_dist as dist
from keras import layers

class Scale(layers.Layer):
    def __init__(self, by=2.0):
        super().__init__()
        self.by = by
    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1],), initializer="ones")
    def call(self, x):
        return x * self.w * self.by

class Net(keras.Model):
    def __init__(self, units):
        super().__init__()
        self.dense, self.scale, self.notes = layers.Dense(units), Scale(3.0), {"units": [units]}
    def call(self, x):
        return self.scale(self.dense(x))

def squared(y, p):
    return keras.ops.mean((y - p) ** 2)

class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.linear(x)

keras.utils.set_random_seed(3)
X = np.random.rand(64, 4).astype("float32")
Y = X.sum(1, keepdims=True)
once = dict(epochs=2, verbose=0, shuffle=False)
net = Net(1)
net.compile(keras.optimizers.SGD(0.01, momentum=0.9), squared)
net.fit(X, Y, **once)
given = keras.Input((4,))
one = layers.Dense(4, activation="relu")(given)
two = layers.Dropout(0.3, seed=1)(layers.BatchNormalization()(one))
both = keras.Model(given, layers.Dense(1)(Scale()(layers.Add()([one, two]))))
decay = keras.optimizers.schedules.CosineDecay(0.1, 100)
both.compile(keras.optimizers.Adam(decay), keras.losses.Huber(), metrics=["mae"])
both.fit(X, Y, **once)
row = keras.Sequential([layers.Input((4,)), layers.TorchModuleWrapper(Inner()), layers.Dense(1)])
fresh = keras.Sequential([layers.Embedding(10, 4), layers.LSTM(3)])
variable, mean = keras.Variable([1.0, 2.0]), keras.metrics.Mean()
mean.update_state([1.0, 3.0])
"""

LOOK = """
def look():
    found = {name: model.fit(X, Y, **once).history["loss"] for name, model in (("net", net), ("both", both))}
    steps = [int(model.optimizer.iterations) for model in (net, both)]
    values = row.predict(X, verbose=0).sum(), variable.value.sum(), mean.result()
    shapes = list(fresh(np.arange(6).reshape(2, 3)).shape), len(list(row.parameters())), net.notes
    kept = net.loss is squared, net.optimizer.momentum
    return json.dumps([found, steps, [*map(float, values)], shapes, kept])
"""

LOOP = """
dist.init()
own = [any(value is weight.value for value in both.parameters()) for weight in both.trainable_variables]
wrapped = torch.nn.parallel.DistributedDataParallel(both)
before = both.get_weights()
rate = 0.1 * (dist.rank() + 1)
loss = squared(torch.tensor(Y) * rate, wrapped(torch.tensor(X)))
loss.backward()
torch.optim.SGD(wrapped.parameters(), 0.1).step()
len(own), all(own), both.get_weights(), not np.allclose(before[0], both.get_weights()[0])
"""


def test_objects_of_keras_with_torch_travel_whole_and_train_on(kernel: Kernel) -> None:
    def shown(code: str) -> Any:
        return json.loads(kernel.run(code).stdout.partition("FOUND ")[2])

    kernel.run(NOTEBOOK)
    kernel.run(LOOK)
    ran = kernel.run("%%distribute -np 2 --out run\nlook()")
    assert "fit of Keras with torch exchanges nothing between ranks. Call dist.init()" in ran.text, ran.text
    ranks = shown("print('FOUND', json.dumps(list(run.results)))")
    assert ranks[0] == ranks[1]
    kernel.run(f"%%distribute -np 2 --out looped\n{LOOP}")
    looped = shown("print('FOUND', json.dumps([[n, own, moved] for n, own, _, moved in looped.results]))")
    assert looped == [[7, True, True]] * 2
    apart = shown(
        "first, second = (result[2] for result in looped.results)\n"
        "print('FOUND', max(float(abs(a - b).max()) for a, b in zip(first[:2], second[:2])))"
    )
    assert apart == 0, "the variables of both ranks moved by the same mean gradient"
    assert json.loads(ranks[0]) == json.loads(shown("print('FOUND', json.dumps(look()))"))
