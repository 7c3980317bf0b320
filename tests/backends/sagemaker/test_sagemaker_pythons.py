"""TensorFlow containers of SageMaker whose Python is not the notebook's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import Kernel
from tests.rigs.other_pythons import other_python
from tests.rigs.sagemaker import SageMakerPlane
from tests.rigs.sagemaker.fixtures import GIVEN, kept_plane, plane, signed_in  # noqa: F401
from tests.rigs.sagemaker.toolkits import toolkits_of

pytestmark = [pytest.mark.needs("boto3", "moto"), pytest.mark.xdist_group("sagemaker")]

DEFINED = """
import numpy as np
from dataclasses import dataclass

x = np.linspace(-1, 1, 64, dtype="float32").reshape(16, 4)

@dataclass
class Fit:
    units: int
    losses: np.ndarray

    def fell(self):
        return bool(self.losses[-1] < self.losses[0])

def model(units):
    import tensorflow as tf
    layers = tf.keras.layers
    built = tf.keras.Sequential([tf.keras.Input((4,)), layers.Dense(units), layers.Dense(1)])
    built.compile("sgd", loss=lambda y, p: tf.reduce_mean((y - p) ** 2))
    return built
"""
CELL = """
import sys
import jupyter_dist as dist
import tensorflow as tf

strategy = dist.strategy()
with strategy.scope():
    built = model(8)
data = tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1))).batch(8).repeat()
callbacks = [
    tf.keras.callbacks.BackupAndRestore(str(dist.checkpoint_dir() / "backup")),
    tf.keras.callbacks.ModelCheckpoint(str(dist.checkpoint_dir() / "m.weights.h5"), save_weights_only=True),
]
history = built.fit(data, epochs=5, steps_per_epoch=2, verbose=0, callbacks=callbacks).history
"{}.{}".format(*sys.version_info), Fit(8, np.array(history["loss"]))
"""


LIBRARIES = {
    "3.9": ("numpy<2", "tensorflow-cpu==2.11.*"),  # the last one that has AWS's smddp
    "3.10": ("numpy", "tensorflow-cpu"),
}


@pytest.fixture(params=LIBRARIES)
def minor(request: pytest.FixtureRequest, plane: SageMakerPlane) -> Iterator[str]:
    before = plane.python, plane.toolkits
    plane.python = other_python(request.param)
    plane.toolkits = toolkits_of(plane.python, *LIBRARIES[request.param])
    yield request.param
    plane.python, plane.toolkits = before


@pytest.mark.timeout(600)  # pip installs TensorFlow for the other Python, once on a machine
def test_tensorflow_containers_with_another_python_train_one_model(kernel: Kernel, minor: str) -> None:
    flags = f"--role {GIVEN['role']} --instance-type {GIVEN['instance_type']}"
    image = str(GIVEN["image"]).replace("pytorch", "tensorflow")
    kernel.run("%load_ext jupyter_dist")
    kernel.run(DEFINED)
    flags += f" --image {image} --distribution mwms --instance-count 2 -np 2 --other-python"
    kernel.run(f"%%distribute --backend sagemaker {flags} --out run\n{CELL}")
    seen = kernel.run(
        "for version, fit in run.results: print(version, type(fit) is Fit, fit.fell(), end=' ')\n"
        "print((run.results[0][1].losses == run.results[1][1].losses).all())"
    )
    assert seen.stdout.split() == [*(2 * [minor, "True", "True"]), "True"]
