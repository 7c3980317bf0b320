"""When tf_keras takes the name keras, and Keras code that really trains on two workers because of it."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from jupyter_dist.capture import keras_checks
from jupyter_dist.conformance.ports import take_port
from jupyter_dist.errors import CaptureError
from jupyter_dist.worker import keras
from tests.rigs.rank_maker import alone, outputs, ranks

ARRANGE = "from jupyter_dist.worker.keras import tf_keras as legacy_keras\nlegacy_keras.arrange()\n"

TRAIN = """
import numpy as np, tensorflow as tf
{imports}
strategy = tf.distribute.MultiWorkerMirroredStrategy()
assert strategy.num_replicas_in_sync == 2
rng = np.random.default_rng(0)
x = rng.normal(size=(64, 8)).astype("float32")
y = rng.integers(0, 3, 64)
data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(16)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
keras.utils.set_random_seed(dist.rank())
with strategy.scope():
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(4, "relu"), layers.Dense(3)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
before = [w.copy() for w in model.get_weights()]
model.fit(data.with_options(options), epochs=2, steps_per_epoch=4, verbose=0)
assert any((a != b).any() for a, b in zip(before, model.get_weights()))
import hashlib
print("weights", hashlib.sha256(b"".join(w.tobytes() for w in model.get_weights())).hexdigest(), flush=True)
os._exit(0)
"""


@pytest.mark.needs("tensorflow", "tf_keras")
@pytest.mark.parametrize(
    "imports",
    [
        "import keras\nfrom keras import layers",
        "from tensorflow import keras\nfrom tensorflow.keras import layers",
        "keras = tf.keras\nimport keras.layers as layers",
    ],
)
def test_fit_on_two_workers_ends_with_equal_weights(tmp_path: Path, imports: str) -> None:
    workers = [f"127.0.0.1:{take_port()}" for _ in range(2)]
    code = f"""
import json
os.environ["TF_CONFIG"] = json.dumps(
    {{"cluster": {{"worker": {json.dumps(workers)}}}, "task": {{"type": "worker", "index": dist.rank()}}}}
)
from jupyter_dist.worker import autolog
from jupyter_dist.worker.output import events
events.open_writer(os.environ["JUPYTER_DIST_RUN"] + f"/attempts/0/ranks/{{dist.rank()}}/events.jsonl")
{ARRANGE}
autolog.install()
{TRAIN.format(imports=imports)}
"""
    first, second = outputs(ranks(tmp_path, code))
    assert first.startswith("weights ")
    assert first == second
    for rank in range(2):
        lines = (tmp_path / f"attempts/0/ranks/{rank}/events.jsonl").read_text().splitlines()
        metrics = [event for event in map(json.loads, lines) if event["kind"] == "metric"]
        ends = [event for event in metrics if "accuracy" in event["values"] and event["step"] in (4, 8)]
        assert [event["step"] for event in ends] == [4, 8]
        assert not [event for event in map(json.loads, lines) if event["kind"] == "note"]


@pytest.mark.needs("tensorflow", "tf_keras")
def test_every_way_to_keras_is_tf_keras(tmp_path: Path) -> None:
    code = f"""
{ARRANGE}
legacy_keras.arrange()
import keras, tf_keras, tensorflow as tf
import keras.layers
from keras import layers
from keras.callbacks import Callback
from tensorflow import keras as from_tf
from tensorflow.keras.layers import Dense
import tf_keras.src.engine.training
from keras.src.engine.training import Model
assert keras is tf_keras and keras.__spec__.name == "tf_keras"
assert keras.Model is from_tf.Model is tf.keras.Model is Model
assert Dense is layers.Dense is tf_keras.layers.Dense
del sys.modules["keras.src.engine.training"]
import keras.src.engine.training as again
assert again is tf_keras.src.engine.training and again.__spec__.name == "tf_keras.src.engine.training"
try:
    import keras.ops
except ModuleNotFoundError as error:
    print(error)
loaded = [module.__name__ for name, module in sys.modules.items() if name.startswith("keras")]
assert not [name for name in loaded if not name.startswith("tf_keras")], loaded
"""
    message = "No module named 'keras.ops': in this cell keras is tf_keras, which lacks it"
    assert alone(code, tmp_path).strip() == message


def test_without_tf_keras_it_says_what_to_install(tmp_path: Path) -> None:
    code = f"""
from importlib.machinery import PathFinder
class Without:
    def find_spec(name, path=None, target=None):
        return None if name.startswith("tf_keras") else PathFinder.find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Without
try:
    {ARRANGE.strip().replace(chr(10), chr(10) + "    ")}
except RuntimeError as error:
    print(error)
assert "TF_USE_LEGACY_KERAS" not in os.environ and "tensorflow" not in sys.modules
"""
    message = alone(code, tmp_path)
    assert "what it uses does not work with Keras 3" in message
    assert "`pip install tf_keras`" in message
    assert "`pip install --no-deps tf_keras`" in message


def test_after_keras_3_it_is_too_late(tmp_path: Path) -> None:
    (tmp_path / "keras.py").write_text("__version__ = '3.0'\n")
    code = f"""
import keras
try:
    {ARRANGE.strip().replace(chr(10), chr(10) + "    ")}
except RuntimeError as error:
    print(error)
assert "TF_USE_LEGACY_KERAS" not in os.environ and "tensorflow" not in sys.modules
"""
    assert "this process has already imported Keras 3 (keras)" in alone(code, tmp_path)


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    """A folder with the Keras that is installed, but for one private name."""
    spec = importlib.util.find_spec("keras")
    assert spec is not None
    assert spec.origin is not None
    installed = Path(spec.origin).parent
    (tmp_path / "keras").mkdir()
    for path in installed.iterdir():
        if path.name != "src":
            (tmp_path / "keras" / path.name).symlink_to(path)
    shutil.copytree(
        installed / "src", tmp_path / "keras/src", ignore=shutil.ignore_patterns("*_test.py", "*.pyc")
    )
    trainer = tmp_path / "keras/src/backend/tensorflow/trainer.py"
    trainer.write_text(trainer.read_text().replace("reduce_per_replica", "reduce_them"))
    return tmp_path


@pytest.mark.needs("keras")
def test_the_names_that_are_patched_are_there() -> None:
    assert keras.missing() == []
    assert keras.swaps(keras.HOROVOD, {}) == ""


@pytest.mark.needs("tensorflow", "keras", "tf_keras")
def test_tf_keras_takes_the_place_of_a_keras_whose_names_have_moved(moved: Path) -> None:
    code = """
sys.path.insert(0, "")
from jupyter_dist.worker import keras as keras3
print(keras3.missing())
sys.stderr = sys.stdout
keras3.arrange("MultiWorkerMirroredStrategy with Keras")
import keras
print(keras.__name__)
"""
    names, line, name = alone(code, moved).splitlines()
    assert names == "['trainer.reduce_per_replica']"
    assert line == (
        "jupyter_dist: `keras` is tf_keras here; this Keras has no trainer.reduce_per_replica, and "
        "MultiWorkerMirroredStrategy with Keras does not work without it"
    )
    assert name == "tf_keras"


@pytest.mark.needs("tensorflow", "keras")
def test_a_shim_that_does_not_fit_refuses_only_strategies_that_span_ranks(
    moved: Path,
) -> None:
    """Most cells with Keras make no such strategy: they train as without us, and hear nothing."""
    code = """
sys.path.insert(0, "")
sys.stderr = sys.stdout
from jupyter_dist.worker import autolog
autolog.install()
import keras
from keras.src.backend.tensorflow import trainer
assert trainer.__file__.startswith(os.getcwd())
assert "jupyter_dist" not in trainer.TensorFlowTrainer._maybe_symbolic_build.__code__.co_filename
print("and keras is there")
import json
import tensorflow as tf
workers = ["127.0.0.1:1", "127.0.0.1:2"]
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": 0}})
# Made whole, it would wait for the other worker.
strategy = object.__new__(tf.distribute.MultiWorkerMirroredStrategy)
try:
    strategy.scope()
except RuntimeError as error:
    print(error)
"""
    first, told = [line for line in alone(code, moved).splitlines() if "port.cc" not in line]
    assert first == "and keras is there"
    assert "reduce_per_replica, which jupyter-dist uses for that" in told
    assert 'pip install "keras==' in told
    assert 'put import os; os.environ["TF_USE_LEGACY_KERAS"] = "1" at the top of the notebook' in told


class TestRefused:
    SRC = ("keras.src.layers.core.dense", "numpy")

    def backend(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        keras = SimpleNamespace(config=SimpleNamespace(backend=lambda: name))
        monkeypatch.setitem(sys.modules, "keras", keras)

    def test_is_a_keras_that_computes_with_something_else(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.backend(monkeypatch, "jax")
        keras_checks.check("", self.SRC)
        line = re.escape('import os; os.environ["KERAS_BACKEND"] = "tensorflow"')
        with pytest.raises(CaptureError, match=f"Horovod's Keras API needs .* with jax(.|\n)*{line}"):
            keras_checks.check(keras.HOROVOD, ())

    def test_are_two_kinds_of_keras(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.backend(monkeypatch, "tensorflow")
        monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
        keras_checks.check(keras.HOROVOD, ["tf_keras.src.engine.training"])
        with pytest.raises(CaptureError, match=r"Keras 3 \(keras.src.layers(.|\n)*import tf_keras as keras"):
            keras_checks.check(keras.HOROVOD, self.SRC)

    def test_are_objects_of_a_keras_whose_names_have_moved(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.backend(monkeypatch, "tensorflow")
        keras_checks.check(keras.HOROVOD, self.SRC)
        monkeypatch.setattr(keras, "missing", lambda: ["trainer.reduce_per_replica"])
        keras_checks.check(keras.HOROVOD, ["keras", "numpy"])
        with pytest.raises(
            CaptureError, match=r"has no trainer.reduce_per_replica(.|\n)*TF_USE_LEGACY_KERAS"
        ):
            keras_checks.check(keras.HOROVOD, self.SRC)
