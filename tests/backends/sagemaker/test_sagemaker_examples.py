"""Scripts in the shape of AWS's own examples, unchanged in a cell: they read the digits as well as locally.

Each file of sagemaker_examples/ is one script, which asks SageMaker's variables who it is and where its data
lies, and whose last line is the cell's result.
"""

from __future__ import annotations

import io
import shlex
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.conformance.run_control import Runs, story
from jupyter_dist.job import State
from tests.rigs.sagemaker import SageMakerPlane
from tests.rigs.sagemaker.fixtures import job_of, kept_plane, plane, runs, signed_in  # noqa: F401

pytestmark = [
    pytest.mark.needs("boto3", "moto", "sklearn"),
    pytest.mark.xdist_group("sagemaker"),  # they share its hosts
]

FOLDER = Path(__file__).parent / "examples"
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/my-{}-training:1"


@pytest.fixture
def digits(plane: SageMakerPlane) -> str:
    """Where they lie. Repeatable."""
    plane.s3.create_bucket(Bucket="digits")
    plane.s3.put_object(Bucket="digits", Key="training/digits.npz", Body=_digits())
    return "s3://digits/training"


def _digits() -> bytes:
    import numpy as np
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images = (pixels[order] / 16).astype("float32").reshape(-1, 1, 8, 8)
    labels = labels[order]
    file = io.BytesIO()
    np.savez(
        file,
        train_images=images[:1400],
        train_labels=labels[:1400],
        test_images=images[1400:],
        test_labels=labels[1400:],
    )
    return file.getvalue()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("pytorch_mnist", marks=pytest.mark.needs("torch")),
        pytest.param("pytorch_horovod_mnist", marks=pytest.mark.needs("torch", "horovod with MPI", "mpi4py")),
        pytest.param("tensorflow_multi_worker", marks=pytest.mark.needs("tensorflow")),
    ],
)
def test_a_script_of_sagemakers_is_a_cell(name: str, plane: SageMakerPlane, runs: Runs, digits: str) -> None:
    text = (FOLDER / f"{name}.py").read_text()
    _, _, after = text.partition("\nflags: ")
    words = shlex.split(after.partition("\n")[0])
    given: dict[str, Any] = dict(zip(words[::2], words[1::2], strict=True))
    run = runs.finish(
        text,
        np=int(given["-np"]),
        instance_count=2,
        distribution=given["--distribution"],
        image=IMAGE.format("tensorflow" if "tensorflow" in name else "pytorch"),
        input={"training": digits},
        hyperparameters={"batch-size": "28"},
    )
    assert run.state is State.SUCCEEDED, story(run) + str(job_of(plane, run).lines)
    assert len(run.results) == int(given["-np"])
    assert min(run.results) >= 0.95, run.results
    assert {rank.host for rank in run.status.ranks} == {"algo-1", "algo-2"}
    assert "Test set: Accuracy: 9" in run.log(0)
    assert "in batches of 28" in run.log(0), "hyperparameters are arguments"
    assert next(each.name for each in run.model.iterdir()).startswith("model.")
