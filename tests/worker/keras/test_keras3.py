"""Keras 3 over several ranks from a notebook as people write one: imports and objects in earlier cells."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import LACKS, Kernel

pytestmark = pytest.mark.needs("tensorflow", "keras")

IMPORTS = """
import os
os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0", CUDA_VISIBLE_DEVICES="-1")
%load_ext jupyter_dist
import keras
import numpy as np
import tensorflow as tf
import jupyter_dist as dist
from tensorflow import keras as of_tf
from tensorflow.keras import layers
"""
"""Both ways to Keras: `keras`, and `of_tf` with `layers`."""

OBJECTS = """
rng = np.random.RandomState(0)
X, Y = rng.randn(96, 8).astype("float32"), rng.randn(96, 1).astype("float32")
BATCH, STEPS = 24, 4
start = [rng.randn(*shape).astype("f") * 0.3 for shape in ((8, 16), (16,), (16, 1), (1,))]
ways = {"import keras": (keras, keras.layers), "from tensorflow import keras": (of_tf, layers)}

class Net(keras.Model):
    def __init__(self, hidden):
        super().__init__()
        self.hidden, self.out, self.notes = hidden, layers.Dense(1), {"units": [16, 1]}
    def call(self, x):
        return self.out(self.hidden(x))

def built(keras, layers):
    model = keras.Sequential([keras.Input((8,)), layers.Dense(16, activation="relu"), layers.Dense(1)])
    model.set_weights(start)
    return model

def flat(model):
    return np.concatenate([np.ravel(w) for w in model.get_weights()])

class Seen(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.batches = 0
    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1

def squared(y_true, y_pred):
    return tf.reduce_mean((y_true - y_pred) ** 2)

class Squared(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return keras.ops.mean((y_true - y_pred) ** 2, axis=-1)

rounds = dict(batch_size=BATCH, shuffle=False, verbose=0)
trained = Net(layers.Dense(16, activation="relu"))
error = keras.metrics.MeanAbsoluteError()
trained.compile(keras.optimizers.SGD(0.02, momentum=0.9), Squared(), metrics=[error])
trained(X[:1])
trained.set_weights(start)
trained.fit(X, Y, epochs=1, **rounds)  # the velocities of its optimizer are slots that count
seen, adam, once = Seen(), keras.optimizers.Adam(0.01), built(keras, layers)

@tf.function  # traced here, and by each rank for itself
def forward(model, x):
    return model(x, training=True)

forward(once, X[:2])
"""

ALONE = """
def adam_alone(keras):
    model = built(keras, layers)
    optimizer = keras.optimizers.Adam(0.01)
    for at in range(0, len(X), BATCH):
        with tf.GradientTape() as tape:
            loss = squared(Y[at:at + BATCH], model(X[at:at + BATCH], training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return model

def copied(model):  # with its slots: a fit of its own, from the same start
    again = Net(layers.Dense(16, activation="relu"))
    again.compile(keras.optimizers.SGD(0.02, momentum=0.9), Squared(), metrics=["mae"])
    again(X[:1])
    again.set_weights(start)
    again.fit(X, Y, epochs=3, **rounds)
    return again

alone = {"fit": built(keras, layers), "loop": adam_alone(keras), "trained": copied(trained)}
alone["fit"].compile(keras.optimizers.SGD(0.02, momentum=0.9), "mse")
alone["fit"].fit(X, Y, epochs=2, **rounds)
alone = {name: flat(model) for name, model in alone.items()}

def compare(run):
    ranks, found = list(run.results), {}
    for name in ranks[0]:
        kind, values = name.split(":")[0], [np.asarray(result[name]) for result in ranks]
        apart = max(float(np.abs(value - values[0]).max()) for value in values)
        off = float(np.abs(values[0] - alone[kind]).max()) if kind in alone else None
        found[name] = (apart, off)
    return found
"""

HOROVOD = """
import horovod.keras as hvk
import horovod.tensorflow as hvt
import horovod.tensorflow.keras as hvd

def shard(values):
    mine = BATCH // hvd.size()
    return np.concatenate([values[i * BATCH + hvd.rank() * mine:][:mine] for i in range(STEPS)])

def fitted(hvd, keras, layers, rate=0.02, passes=1, **options):
    model = built(keras, layers)
    optimizer = keras.optimizers.SGD(rate, momentum=0.9)
    if passes > 1:
        options |= dict(backward_passes_per_step=passes, average_aggregated_gradients=True)
    model.compile(hvd.DistributedOptimizer(optimizer, **options), "mse")
    again = dict(rounds, batch_size=BATCH // hvd.size() // passes)
    hooks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    model.fit(shard(X), shard(Y), epochs=2, callbacks=hooks, **again)
    return flat(model)

def looped(keras, layers, model, optimizer):
    x, y, mine = shard(X), shard(Y), BATCH // hvt.size()
    for at in range(0, len(x), mine):
        with tf.GradientTape() as tape:
            loss = squared(y[at:at + mine], forward(model, x[at:at + mine]))
        tape = hvt.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        if at == 0:
            hvt.broadcast_variables(model.variables, root_rank=0)
            hvt.broadcast_variables(optimizer.variables(), root_rank=0)
    return flat(model)

def train():
    hvd.init()
    found = {}
    for way, names in ways.items():
        found[f"fit:{way}"] = fitted(hvk if names[0] is keras else hvd, *names)
        found[f"loop:{way}"] = looped(*names, built(*names), names[0].optimizers.Adam(0.01))
    found["fit:sum"] = fitted(hvd, *names, rate=0.02 / hvd.size(), op=hvd.Sum)
    found["fit:passes"] = fitted(hvd, *names, passes=2)
    found["loop:objects"] = looped(keras, layers, once, adam)
    trained.compile(hvd.DistributedOptimizer(trained.optimizer), trained.loss, metrics=["mae"])
    mine = dict(rounds, batch_size=BATCH // hvd.size())
    trained.fit(shard(X), shard(Y), epochs=2, callbacks=[seen], **mine)
    assert seen.batches == 2 * STEPS and trained.notes == {"units": [16, 1]}
    found["trained:object"] = flat(trained)
    model = built(keras, layers)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse")
    model.fit(shard(X), shard(Y), epochs=1, **mine)
    model.save(f"{hvd.rank()}.keras")
    model = hvd.load_model(f"{hvd.rank()}.keras")
    assert len(model.optimizer.variables) == 2 + 2 * 4 and int(model.optimizer.iterations) == STEPS
    model.fit(shard(X), shard(Y), epochs=1, **mine)
    found["loaded"] = flat(model)
    # Without the hook in `apply`, which is what the missing names alone amount to, each trains its own.
    model = built(keras, layers)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.02))
    object.__delattr__(optimizer, "apply")
    model.compile(optimizer, "mse")
    model.fit(shard(X), shard(Y), epochs=1, **rounds)
    found["naive"] = flat(model)
    return found
"""


def notebook(kernel: Kernel, *cells: str) -> None:
    for cell in cells:
        kernel.run(cell)


def compared(kernel: Kernel, line: str, body: str = "train()") -> dict[str, tuple[float, float | None]]:
    """Name → how far the ranks' weights are from each other, and from those of one process."""
    kernel.run(f"%%distribute {line} --out run\n{body}")
    shown = kernel.run("import json\nprint('FOUND', json.dumps(compare(run)))").stdout
    found: dict[str, Any] = json.loads(shown.partition("FOUND ")[2])
    return {name: (apart, off) for name, (apart, off) in found.items()}


@pytest.mark.needs("horovod")
def test_horovod(kernel: Kernel) -> None:
    """One notebook, which has TensorFlow and a model of its own, for both ways to start it."""
    notebook(kernel, IMPORTS, OBJECTS, ALONE, HOROVOD)
    are_as_one(compared(kernel, "--backend horovod -np 3 --gloo"))
    lacking = LACKS["horovod with MPI"]()
    if lacking is not None:
        pytest.skip(lacking)
    are_as_one(compared(kernel, "--backend horovod -np 2 --mpi"))


def are_as_one(found: dict[str, tuple[float, float | None]]) -> None:
    assert found.pop("naive")[0] > 1e-3
    assert len(found) == 9
    assert not [name for name, (apart, _) in found.items() if apart], str(found)
    assert not [name for name, (_, off) in found.items() if off is not None and off > 1e-6], found


STRATEGY = """
def data():
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH).with_options(options)

batches, zero = data(), tf.constant(0.0)

def fitted(strategy, keras, layers):
    with strategy.scope():
        model = built(keras, layers)
        model.compile(keras.optimizers.SGD(0.02, momentum=0.9), "mse")
    model.fit(data(), epochs=2, verbose=0)
    return flat(model)

def looped(strategy, model, optimizer):
    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((y - forward(model, x)) ** 2) / BATCH
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss
    for x, y in strategy.experimental_distribute_dataset(data()):
        strategy.reduce("SUM", strategy.run(step, args=(x, y)), axis=None)
    return flat(model)

def moving(strategy):
    with strategy.scope():
        norm = layers.BatchNormalization(momentum=0.5)
        model = keras.Sequential([keras.Input((8,)), norm, layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(data(), epochs=1, verbose=0)
    return np.concatenate([norm.moving_mean.numpy(), norm.moving_variance.numpy()])

def train():
    strategy = dist.strategy()
    found = {}
    for way, names in ways.items():
        found[f"fit:{way}"] = fitted(strategy, *names)
        with strategy.scope():
            model, optimizer = built(*names), names[0].optimizers.Adam(0.01)
        found[f"loop:{way}"] = looped(strategy, model, optimizer)
    found["loop:objects"] = looped(strategy, once, adam)
    trained.fit(data(), epochs=2, verbose=0, callbacks=[seen])
    assert seen.batches == 2 * STEPS and trained.distribute_strategy is strategy
    found["trained:object"] = flat(trained)
    scores = np.array(trained.evaluate(data(), verbose=0))
    found["scores"], found["guesses"] = scores, trained.predict(X, batch_size=BATCH, verbose=0)
    found["moving"] = moving(strategy)
    # With the statistics as Keras makes them, each worker keeps those of its own shard.
    layers.BatchNormalization.add_weight = keras.layers.Layer.add_weight
    found["naive"] = moving(strategy)
    return found
"""


WRITTEN = """
import contextlib
import pathlib
import shutil
import sys
import types

class Checkpointer:
    def __init__(self, directory, **policies):
        self.place = pathlib.Path(directory)

    def save_checkpointables(self, step, state):
        (self.place / str(step)).mkdir(parents=True)  # fails for a second writer

    def close(self):
        pass

def without_orbax():  # Orbax needs JAX, which has several hundred MB
    training = types.SimpleNamespace(
        Checkpointer=Checkpointer,
        preservation_policies=types.SimpleNamespace(LatestN=int),
        save_decision_policies=types.SimpleNamespace(FixedIntervalPolicy=int),
    )
    sys.modules["orbax"] = sys.modules["orbax.checkpoint"] = module = types.ModuleType("orbax.checkpoint")
    module.v1 = types.SimpleNamespace(training=training, Context=contextlib.nullcontext)

def write():
    strategy, place = dist.strategy(), pathlib.Path("written")
    with strategy.scope():
        model = built(keras, layers)
        model.compile("sgd", "mse")
    kinds, epochs, copy, copied = keras.callbacks, [], shutil.copy, []
    without_orbax()
    for again in "ab":
        back = kinds.BackupAndRestore(str(place / "backup"), save_freq=1, double_checkpoint=True)
        model.save_weights(f"own-{dist.rank()}.weights.h5")
        if dist.rank() == 0:  # an earlier run was killed while it wrote
            (place / "backup" / "mine").mkdir(parents=True)
            copy("own-0.weights.h5", place / "backup" / "latest.weights.h5.bkp")
            (place / "backup" / "latest.weights.h5").write_bytes(b"half")
            (place / "backup" / "training_metadata.json").write_text("half")
        calls = [
            back,
            kinds.ModelCheckpoint(str(place / "{epoch}.weights.h5"), save_weights_only=True),
            kinds.CSVLogger(str(place / "log.csv"), append=True),
            kinds.TensorBoard(str(place / "board")),
            kinds.OrbaxCheckpoint(str(place / again), save_on_background=False),
        ]
        dist.barrier()
        shutil.copy = lambda source, target: copied.append(str(target)) or copy(source, target)
        epochs += model.fit(data(), epochs=2, verbose=0, callbacks=calls).epoch
        model.load_weights(place / "2.weights.h5")
        assert calls[1].filepath == str(place / "{epoch}.weights.h5")
    assert sorted(path.name for path in (place / again).iterdir()) == ["0", "1"]
    names = sorted(path.name for path in place.iterdir())
    shutil.copy, repairs = copy, [path for path in copied if path.startswith("written")]
    assert bool(repairs) == (dist.rank() == 0), repairs
    return epochs, names, len(list((place / "board" / "train").glob("events*"))), flat(model)

def write_on_one():
    strategy = dist.strategy()
    with strategy.scope():
        model = built(keras, layers)
        model.compile("sgd", "mse")
    mine = [keras.callbacks.BackupAndRestore("back")] * (dist.rank() == 0)
    class ModelCheckpoint(keras.callbacks.Callback):
        pass  # ranks do not wait in it
    log = [keras.callbacks.CSVLogger("one.csv"), ModelCheckpoint()] * (dist.rank() == 0)
    try:
        model.fit(data(), verbose=0, callbacks=mine)
    except ValueError as error:
        return str(error), model.fit(data(), verbose=0, callbacks=log).epoch
"""
WROTE = """
for rank, ((said, fitted), (epochs, names, boards, weights)) in enumerate(run.results):
    assert f"same callbacks on every rank. This rank has {1 - rank} BackupAndRestore, and another" in said
    assert fitted == [0], fitted
    assert epochs == [0, 1, 0, 1], epochs
    assert names == ["1.weights.h5", "2.weights.h5", "a", "b", "board", "log.csv"], names
    assert boards == 2, boards
    assert (weights == run.results[0][1][-1]).all()
print(len(pathlib.Path("written/log.csv").read_text().splitlines()), "lines")
"""
WITHOUT_SCOPE = """
strategy = tf.distribute.MultiWorkerMirroredStrategy()
trained.fit(batches, epochs=2, verbose=0)
{"trained:object": flat(trained) + zero.numpy()}
"""


def test_multi_worker_mirrored(kernel: Kernel) -> None:
    """What was made before trains in the strategy without its scope, too: also where a tensor and a dataset
    of the notebook start TensorFlow, which has to wait for it."""
    notebook(kernel, IMPORTS, OBJECTS, ALONE, STRATEGY)
    are_as_one(compared(kernel, "-np 3 --gpus-per-worker 0"))
    ((apart, off),) = compared(kernel, "-np 2 --gpus-per-worker 0", WITHOUT_SCOPE).values()
    assert apart == 0
    assert off is not None
    assert off < 1e-6
    kernel.run(WRITTEN)
    kernel.run("%%distribute -np 2 --gpus-per-worker 0 --out run\nwrite_on_one(), write()")
    assert "5 lines" in kernel.run(WROTE).stdout


COORDINATED = """
def train():
    strategy = dist.strategy()
    data = tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(BATCH)
    with strategy.scope():
        model = built(of_tf, layers)
        mae, r2 = keras.metrics.MeanAbsoluteError(), keras.metrics.R2Score()
        model.compile(of_tf.optimizers.SGD(0.02, momentum=0.9), "mse", metrics=[mae, r2])
    found = {"new": [], "trained": []}
    for name, at in (("new", model), ("trained", trained)):
        steps = dict(steps_per_epoch=8, validation_steps=2)
        fitted = at.fit(data, epochs=4, validation_data=data, verbose=0, **steps)
        found[name] = fitted.history["loss"]
        found[f"steps of {name}"] = int(at.optimizer.iterations.numpy())
    model.evaluate(data, steps=40, verbose=0)
    found["samples"] = [int(v.numpy()) for v in (mae.count, r2.num_samples)]
    guesses = trained.predict(X, verbose=0)
    assert np.allclose(guesses, trained(X), atol=1e-6)
    found["where"] = {v.value.device for v in trained.trainable_variables}
    try:
        model.fit(data, verbose=0)
    except ValueError as error:
        found["endless"] = str(error)
    return found
"""


def test_parameter_server(kernel: Kernel) -> None:
    notebook(kernel, IMPORTS, OBJECTS, COORDINATED)
    kernel.run("%%distribute -np 4 --chief --ps 1 --gpus-per-worker 0 --out run\ntrain()")
    shown = kernel.run(
        "import json; found = dict(run.results[0], where=sorted(run.results[0]['where']))\n"
        "print('FOUND', json.dumps([found, list(run.results)[1:]]))"
    )
    found, served = json.loads(shown.stdout.partition("FOUND ")[2])
    assert served == [None, None, None]
    assert found["new"][-1] < found["new"][0]
    assert found["trained"][-1] < found["trained"][0]
    # Nothing that two workers have added at a time is lost.
    assert (found["steps of new"], found["steps of trained"]) == (4 * 8, 4 + 4 * 8)
    assert found["samples"] == [40 * 24, 40 * 24]
    assert all("/job:ps/" in place for place in found["where"])
    assert "ParameterServerStrategy needs steps_per_epoch=" in found["endless"]


DIVIDED = """
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
data = tf.data.Dataset.from_tensor_slices((np.ones((48, 4), "f"), np.ones((48, 1), "f"))).batch(12)

def fitted(strategy, data, **more):
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), layers.Dense(1, kernel_initializer="zeros")])
        model.compile("sgd", "mse")
    losses = model.fit(data, epochs=2, verbose=0, **more).history["loss"]
    return [type(strategy).__name__, strategy.num_replicas_in_sync, losses[-1] < losses[0]]
"""
OF_EARLIER_CELLS = {
    "-np 1": ("fitted(dist.strategy(), data)", ["MirroredStrategy", 2, True]),
    "-np 1 --timeout 60": (
        'fitted(dist.strategy("mirrored", devices=["CPU:0", "CPU:1", "CPU:2"]), data)',
        ["MirroredStrategy", 3, True],
    ),
    "-np 3 --chief --ps 1": (
        "fitted(dist.strategy(), data.repeat(), steps_per_epoch=4)",
        ["ParameterServerStrategyV2", 1, True],
    ),
}


def test_logical_devices_and_a_dataset_of_an_earlier_cell(kernel: Kernel) -> None:
    """The dataset starts TensorFlow on a rank, which divides its CPU before."""
    notebook(kernel, IMPORTS, DIVIDED)
    for line, (code, expected) in OF_EARLIER_CELLS.items():
        kernel.run(f"%%distribute {line} --gpus-per-worker 0 --out run\n{code}")
        shown = kernel.run("import json\nprint('FOUND', json.dumps(run.results[0]))").stdout
        assert json.loads(shown.partition("FOUND ")[2]) == expected
