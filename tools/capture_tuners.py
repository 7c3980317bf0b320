"""Write down what the SageMaker SDK's HyperparameterTuner sends: tests/golden/sagemaker_tuners.json.

As capture_estimators.py, with the same virtual environment. Nothing is sent to AWS.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

_ROLE = "arn:aws:iam::123456789012:role/Train"
_TARGET = Path(__file__).parents[1] / "tests" / "golden" / "sagemaker_tuners.json"
_CODE = "s3://sagemaker-us-east-1-123456789012/jupyter-dist/code/HASH/sourcedir.tar.gz"
_PYTORCH = {"framework_version": "2.6.0", "py_version": "py312", "instance_type": "ml.c5.xlarge"}


def cases() -> Iterator[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Name, arguments of the estimator, of the tuner, our options beside those of the same name, and our
    search."""
    from sagemaker.tuner import (
        CategoricalParameter,
        ContinuousParameter,
        IntegerParameter,
        WarmStartConfig,
        WarmStartTypes,
    )

    several = {
        "lr": ContinuousParameter(1e-05, 0.1, scaling_type="Logarithmic"),
        "momentum": ContinuousParameter(0.0, 0.9, scaling_type="Linear"),
        "layers": IntegerParameter(1, 8, scaling_type="Linear"),
        "batch": CategoricalParameter([32, 64]),
        "name": CategoricalParameter(["sgd", "adam"]),
    }
    tune = {
        "lr": "loguniform(1e-05,0.1)",
        "momentum": "uniform(0.0,0.9)",
        "layers": "int(1,8)",
        "batch": "choice(32,64)",
        "name": "choice(sgd,adam)",
    }
    budget = {"max_jobs": 20, "parallel": 4}
    for strategy in ("Random", "Bayesian", "Hyperband"):
        ours = {**budget, "strategy": strategy.lower(), "tune": tune}
        yield strategy.lower(), {}, {"hyperparameter_ranges": several, "strategy": strategy}, {}, ours
    grid = {"batch": several["batch"], "name": several["name"]}
    ours = {"max_jobs": 4, "parallel": 4, "strategy": "grid", "tune": {n: tune[n] for n in grid}}
    yield "grid", {}, {"hyperparameter_ranges": grid, "strategy": "Grid", "max_jobs": 4}, {}, ours
    gpus = {"instance_count": 2, "instance_type": "ml.g5.12xlarge"}
    yield (
        "early stopping",
        {**gpus, "distribution": {"torch_distributed": {"enabled": True}}},
        {
            "hyperparameter_ranges": several,
            "strategy": "Bayesian",
            "early_stopping_type": "Auto",
            "random_seed": 7,
        },
        {**gpus, "distribution": "torchrun"},
        {**budget, "strategy": "bayesian", "early_stopping": True, "seed": 7, "tune": tune},
    )
    for kind, transfer in (("IDENTICAL_DATA_AND_ALGORITHM", False), ("TRANSFER_LEARNING", True)):
        warm = WarmStartConfig(WarmStartTypes[kind], parents={"dist-20261122-171643-fbc982fd"})
        yield (
            f"warm start, {kind.lower()}",
            {"tags": [{"Key": "team", "Value": "vision"}], "hyperparameters": {"epochs": 3}},
            {"hyperparameter_ranges": several, "strategy": "Bayesian", "warm_start_config": warm},
            {"tags": {"team": "vision"}, "hyperparameters": {"epochs": "3"}},
            {
                **budget,
                "strategy": "bayesian",
                "tune": tune,
                "parents": ["20261122-171643-fbc982fd"],
                "warm": {"jobs": ["dist-20261122-171643-fbc982fd"], "fixed": {}},
                "transfer": transfer,
            },
        )
    parents = ["dist-20261122-171643-fbc982fd", "theirs"]
    yield (
        "warm start, several parents",
        {},
        {
            "hyperparameter_ranges": several,
            "strategy": "Bayesian",
            "warm_start_config": WarmStartConfig(
                WarmStartTypes.IDENTICAL_DATA_AND_ALGORITHM, parents=set(parents)
            ),
        },
        {},
        {
            **budget,
            "strategy": "bayesian",
            "tune": tune,
            "parents": ["20261122-171643-fbc982fd", "sagemaker:theirs"],
            "warm": {"jobs": parents, "fixed": {}},
        },
    )
    scaled = {
        "lr": ContinuousParameter(1e-05, 0.1),
        "momentum": ContinuousParameter(0.0, 0.9, scaling_type="ReverseLogarithmic"),
        "layers": IntegerParameter(1, 8),
        "width": IntegerParameter(8, 512, scaling_type="Logarithmic"),
    }
    yield (
        "scalings",
        {},
        {"hyperparameter_ranges": scaled, "strategy": "Random"},
        {},
        {
            **budget,
            "strategy": "random",
            "tune": {
                "lr": "ContinuousParameter(1e-05, 0.1)",
                "momentum": "ContinuousParameter(0.0, 0.9, scaling_type=ReverseLogarithmic)",
                "layers": "IntegerParameter(1, 8, scaling_type='Auto')",
                "width": 'IntegerParameter(8, 512, scaling_type="Logarithmic")',
            },
        },
    )
    spot = {"use_spot_instances": True, "max_wait": 7200, "max_run": 3600, "volume_size": 200}
    yield (
        "what training jobs have",
        {
            **spot,
            "checkpoint_s3_uri": "s3://data/checkpoints",
            "output_path": "s3://data/out",
            "max_retry_attempts": 3,
            "encrypt_inter_container_traffic": True,
            "subnets": ["subnet-1"],
            "security_group_ids": ["sg-1"],
        },
        {"hyperparameter_ranges": several, "strategy": "Random"},
        {
            "spot": True,
            "max_wait": 7200,
            "max_run": 3600,
            "volume_size": 200,
            "checkpoint_s3": "s3://data/checkpoints",
            "output_path": "s3://data/out",
            "max_retry_attempts": 3,
            "encrypt_inter_container_traffic": True,
            "subnets": "subnet-1",
            "security_group_ids": "sg-1",
        },
        {**budget, "strategy": "random", "tune": tune},
    )


def capture(given: dict[str, Any], tuner: dict[str, Any]) -> dict[str, Any]:
    """The request of one tuner."""
    import boto3
    import sagemaker
    from sagemaker.fw_utils import UploadedCode
    from sagemaker.pytorch import PyTorch
    from sagemaker.tuner import HyperparameterTuner

    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    session = sagemaker.Session(
        boto3.Session(**keys), mock.Mock(), default_bucket="sagemaker-us-east-1-123456789012"
    )
    sent: list[dict[str, Any]] = []
    session.sagemaker_client.create_hyper_parameter_tuning_job = lambda **request: sent.append(request)
    session._default_bucket = "sagemaker-us-east-1-123456789012"
    made = PyTorch(
        entry_point="train.py",
        role=_ROLE,
        sagemaker_session=session,
        **{"instance_count": 1, **_PYTORCH, **given},
    )
    metrics = [{"Name": "loss", "Regex": "loss: ([0-9.]+)"}]
    tuning = {"max_jobs": 20, "max_parallel_jobs": 4, "objective_type": "Minimize", **tuner}
    tuner_made = HyperparameterTuner(made, "loss", metric_definitions=metrics, **tuning)
    with mock.patch.object(PyTorch, "_stage_user_code_in_s3", return_value=UploadedCode(_CODE, "train.py")):
        tuner_made.fit(wait=False, job_name="dist-NAME")
    # The SDK has the parents in a set.
    sent[0].get("WarmStartConfig", {}).get("ParentHyperParameterTuningJobs", []).sort(key=str)
    return sent[0]


def main() -> None:
    """Write the file."""
    logging.disable()
    found: dict[str, Any] = {}
    for name, given, tuner, options, search in cases():
        found[name] = {
            "options": {"instance_count": 1, **_PYTORCH, **options},
            "search": search,
            "request": capture(given, tuner),
        }
    about = {"sdk": f"sagemaker {metadata.version('sagemaker')}", "role": _ROLE, "region": "us-east-1"}
    _TARGET.write_text(json.dumps({**about, "cases": found}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
