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
from dataclasses import dataclass

@dataclass
class Fit:
    units: int
    losses: list

    def fell(self):
        return self.losses[-1] < self.losses[0]

def model(units):
    import tensorflow as tf
    layers = tf.keras.layers
    built = tf.keras.Sequential([tf.keras.Input((4,)), layers.Dense(units), layers.Dense(1)])
    built.compile("sgd", loss=lambda y, p: tf.reduce_mean((y - p) ** 2))
    return built
"""
CELL = """
import sys
import numpy as np

x = np.linspace(-1, 1, 64, dtype="float32").reshape(16, 4)
history = model(8).fit(x, x.sum(axis=1), epochs=5, verbose=0).history
"{}.{}".format(*sys.version_info), Fit(8, [float(loss) for loss in history["loss"]])
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
def test_a_tensorflow_container_with_another_python_trains(kernel: Kernel, minor: str) -> None:
    flags = f"--role {GIVEN['role']} --instance-type {GIVEN['instance_type']}"
    image = str(GIVEN["image"]).replace("pytorch", "tensorflow")
    kernel.run("%load_ext jupyter_dist")
    kernel.run(DEFINED)
    kernel.run(
        f"%%distribute --backend sagemaker {flags} --image {image} --other-python -np 1 --out run\n{CELL}"
    )
    seen = kernel.run("(version, fit), = list(run.results)\nprint(version, type(fit) is Fit, fit.fell())")
    assert seen.stdout.split() == [minor, "True", "True"]
