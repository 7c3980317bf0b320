"""What a notebook has of Keras and TensorFlow arrives as it is: dumped in one process, used in another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rigs.rank_maker import alone

OBJECTS = """
import numpy as np, keras, tensorflow as tf
from tensorflow import keras as of_tf
from tensorflow.keras import layers
rng = np.random.default_rng(0)
x, y = rng.random((16, 3)).astype("f"), rng.random((16, 1)).astype("f")

class Net(keras.Model):
    def __init__(self, first):
        super().__init__()
        self.first, self.last, self.notes = first, layers.Dense(1), {"n": [1, 2]}
    def call(self, x):
        return self.last(self.first(x))

class Scaled(layers.Layer):  # neither get_config nor anything registered
    def __init__(self, units):
        super().__init__()
        self.units, self.parts = units, [layers.Dense(units)]
    def build(self, shape):
        self.scale = self.add_weight(shape=(self.units,), initializer="ones", name="scale")
    def call(self, x):
        return self.parts[0](x) * self.scale

class Sub(keras.Model):
    def __init__(self, n):
        entry = keras.Input((n,))
        super().__init__(entry, layers.Dense(1)(entry))
        self.n = n

class Squared(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return keras.ops.mean((y_true - y_pred) ** 2, axis=-1)

def squared(y_true, y_pred):
    return keras.ops.mean((y_true - y_pred) ** 2, axis=-1)

class Seen(keras.callbacks.Callback):
    epochs = 0
    def on_epoch_end(self, epoch, logs=None):
        self.epochs += 1

entry = keras.Input((3,))
hidden = Scaled(4)(entry)
twice = layers.Lambda(lambda t: t * 2)(hidden)
branched = keras.Model(entry, layers.Dense(1)(twice) + layers.Dense(1)(hidden))
branched.note = "set later"
normal = layers.BatchNormalization()
drop = layers.Dropout(0.2)
sequential = keras.Sequential([keras.Input((3,)), layers.Dense(4), normal, drop, layers.Dense(1)])
models = {"subclass": Net(layers.Dense(4)), "sub": Sub(3)}
models["of models"] = Net(keras.Sequential([Scaled(3)]))
models |= {"branched": branched, "sequential": sequential}
losses = {"subclass": "mse", "of models": Squared(), "sub": squared, "branched": Squared()}
losses["sequential"] = squared
for name, model in models.items():
    metrics = ["mae", keras.metrics.MeanSquaredError()]
    model.compile(keras.optimizers.Adam(0.02), losses[name], metrics=metrics)
    model.fit(x, y, verbose=0)

words, numbers = layers.StringLookup(vocabulary=["a", "b"]), layers.Normalization()
numbers.adapt(x)
dash = "-"
def lowered(text):
    return tf.strings.lower(text)
texts = layers.TextVectorization(standardize=lowered, split=lambda text: tf.strings.split(text, dash))
texts.adapt(["a-a", "b"])
deep = keras.Sequential([keras.Input((3,)), *(layers.Dense(3) for _ in range(200))])
mean = keras.metrics.Mean()
mean.update_state([1.0, 2.0, 6.0])
@tf.function(jit_compile=False)
def doubled(t):
    return 2 * t
assert doubled(tf.constant(2.0)) == 4
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
data = tf.data.Dataset.from_tensor_slices((x, y)).map(lambda a, b: (2 * a, b)).batch(4)
data = data.with_options(options)
optimizer, unbuilt = models["subclass"].optimizer, Net(layers.Dense(2))
values = dict(models=models, unbuilt=unbuilt, optimizer=optimizer, mean=mean)
values |= dict(entry=entry, hidden=hidden, seen=Seen(), words=words, numbers=numbers, deep=deep)
values |= dict(texts=texts)
values |= dict(variable=tf.Variable([1.0, 2.0]), tensor=tf.constant([3.0]), kind=Net, data=data)
values |= dict(loss=Squared(), x=x, y=y)
board = keras.callbacks.TensorBoard("logs")
models["sequential"].fit(x, y, verbose=0, callbacks=[board])
kept = tf.train.Checkpoint(model=sequential, optimizer=sequential.optimizer)
values |= dict(board=board, manager=tf.train.CheckpointManager(kept, "kept", 1))
rate = keras.optimizers.schedules.CosineDecay(0.1, 9)
values |= dict(of_tf=of_tf, layers=layers, doubled=doubled, rate=rate)
values |= dict(plain=layers.Dense(3), spec=data.element_spec, bare=keras.optimizers.SGD(0.3))
"""

DUMP = """
import pathlib
from jupyter_dist.errors import CaptureError
from jupyter_dist.worker import payload, pickling
from jupyter_dist.worker.pickling import reducers

def flat(model):
    return [np.array(value) for value in model.get_weights()]

def slots(model):
    return [(v.path, v.numpy()) for v in model.optimizer.variables]

def names(model):
    return [layer.name for layer in model.layers]

told = {name: (flat(model), slots(model), names(model)) for name, model in models.items()}
dumped = pickling.dump({**values, "told": told}, mains=[globals()])
payload.write(pathlib.Path("all.pkl"), {"kind": "x"}, dumped.body, dumped.buffers)
after = {}
for name, model in models.items():
    keras.utils.set_random_seed(3)
    after[name] = (model.fit(x, y, epochs=2, shuffle=False, verbose=0).history, flat(model))
dumped = pickling.dump({"after": after, "deep": deep(x).numpy()}, mains=[globals()])
payload.write(pathlib.Path("after.pkl"), {"kind": "x"}, dumped.body, dumped.buffers)

refused = dict(
    iterator=iter(data),
    strategy=tf.distribute.MirroredStrategy(["CPU:0"]),
    writer=tf.summary.create_file_writer("logs"),
    generated=tf.data.Dataset.from_generator(lambda: iter([1.0]), output_signature=tf.TensorSpec(())),
)
for name, value in refused.items():
    try:
        pickling.dump(value, mains=[globals()])
    except reducers.Refused as error:
        print(name, "|", error, "|", error.cure)
"""

LOAD = """
import pathlib, types
from jupyter_dist.worker import payload
main = types.ModuleType("__main__")
sys.modules["__main__"] = main
found = payload.load(pathlib.Path("all.pkl"), main=main.__dict__)
import numpy as np, tensorflow as tf, keras
from tensorflow.python.eager import context
main.__dict__.update(np=np, tf=tf, keras=keras)
after = payload.load(pathlib.Path("after.pkl"), main={})
x, y = found["x"], found["y"]
for name, model in found["models"].items():
    weights, slots, layers = found["told"][name]
    assert all((a == b).all() for a, b in zip(model.get_weights(), weights, strict=True)) and len(weights) > 1
    for variable, (path, value) in zip(model.optimizer.variables, slots, strict=True):
        assert variable.path == path and np.array_equal(variable.numpy(), value), path
    assert [layer.name for layer in model.layers] == layers
    keras.utils.set_random_seed(3)
    history = model.fit(x, y, epochs=2, shuffle=False, verbose=0, callbacks=[found["seen"]]).history
    assert history == after["after"][name][0], name
    assert all((a == b).all() for a, b in zip(model.get_weights(), after["after"][name][1], strict=True))
    tf.train.Checkpoint(model=model).save("checkpoints/" + name)
models = found["models"]
assert found["seen"].epochs == 2 * len(models)
assert found["optimizer"] is models["subclass"].optimizer and models["subclass"].notes == {"n": [1, 2]}
assert isinstance(found["unbuilt"], found["kind"]) and not found["unbuilt"].built
assert found["unbuilt"](x).shape == (16, 1)
assert type(models["sub"]).__name__ == "Sub" and models["sub"].n == 3
assert models["branched"].note == "set later"
more = keras.layers.Dense(2)(found["hidden"])  # the graph goes on, and a new layer has a name of its own
assert keras.Model(found["entry"], more)(x).shape == (16, 2)
assert more._keras_history.operation.name not in {layer.name for m in models.values() for layer in m.layers}
assert np.array_equal(found["deep"](x).numpy(), after["deep"])
assert found["words"](["b", "?"]).numpy().tolist() == [2, 0]
assert found["texts"](["A-B-c"]).numpy().tolist() == [[2, 3, 1]]
assert abs(found["numbers"](x).numpy().mean()) < 1e-5 and float(found["mean"].result()) == 3
assert found["variable"].numpy().tolist() == [1, 2] and found["tensor"].numpy().tolist() == [3]
assert isinstance(found["variable"], tf.Variable) and float(found["doubled"](tf.constant(4.0))) == 8
assert len(list(found["data"])) == 4 and found["data"].element_spec == found["spec"]
shards = found["data"].options().experimental_distribute.auto_shard_policy
assert shards == tf.data.experimental.AutoShardPolicy.OFF
assert np.allclose(np.concatenate([a for a, _ in found["data"]]), 2 * x)
assert found["of_tf"].__name__ == "keras._tf_keras.keras" and found["layers"].Dense is keras.layers.Dense
assert float(found["bare"].learning_rate) == np.float32(0.3) and float(found["loss"](y, y + 1)) == 1
assert found["plain"](x).shape == (16, 3) and float(found["rate"](0)) == np.float32(0.1)
model = models["sequential"]
model.save("model.keras")
kernel = model.layers[0].kernel
trained = kernel.numpy()
found["manager"].save()
kernel.assign(kernel * 0)
found["manager"].restore_or_initialize()
assert np.array_equal(kernel.numpy(), trained) and trained.any()
model.fit(x, y, verbose=0, callbacks=[found["board"]])
assert len(list(pathlib.Path("logs/train").iterdir())) == 2
print("all")
"""


@pytest.mark.needs("tensorflow", "keras")
def test_all_kinds_arrive(tmp_path: Path) -> None:
    told = alone(OBJECTS + DUMP, tmp_path).splitlines()
    assert told[0].startswith(
        "iterator | OwnedIterator belongs to the process that made it | Send the dataset"
    )
    assert told[1].startswith(
        "strategy | a strategy (MirroredStrategy) belongs to the process that made it | "
    )
    assert told[2].startswith(
        "writer | a file writer of tf.summary belongs to the process that opened it | Call"
    )
    assert told[3].startswith("generated | this dataset cannot be sent: Failed to serialize")
    assert "Write a function that makes it" in told[3]
    assert "[Op:" not in told[3]
    assert alone(LOAD, tmp_path) == "all\n"


@pytest.mark.needs("tensorflow", "keras")
def test_models_do_not_start_tensorflow_before_the_cell(tmp_path: Path) -> None:
    """Else a cell could choose no devices any more, nor make a MultiWorkerMirroredStrategy."""
    code = """
import pathlib, keras
from jupyter_dist.worker import payload, pickling
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.BatchNormalization()])
model.compile(keras.optimizers.Adam(), "mse")
model.optimizer.build(model.trainable_variables)
dumped = pickling.dump(model)
payload.write(pathlib.Path("model.pkl"), {"kind": "x"}, dumped.body, dumped.buffers)
"""
    alone(code, tmp_path)
    code = """
import pathlib, tensorflow as tf
from jupyter_dist.worker import payload
model = payload.load(pathlib.Path("model.pkl"), main={})
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
print(len(model.variables), len(model.optimizer.variables), sum(v.numpy().size for v in model.variables))
model.optimizer.apply([tf.zeros(v.shape) for v in model.trainable_variables])
"""
    assert alone(code, tmp_path) == "6 10 16\n"
