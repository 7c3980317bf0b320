"""The request for SageMaker's automatic model tuning: a search in its format, and its values in ours. Pure.

https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateHyperParameterTuningJob.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ....errors import InputError
from ....search.dimensions import Choice, Dimension, Real, Value, Whole
from ....search.spec import Search
from ..options import SageMakerOptions
from ..request import Asked, training_request

__all__ = ["check_search", "objective_regex", "parameters_of", "tuning_names", "tuning_request"]

_STRATEGIES = {"random": "Random", "bayesian": "Bayesian", "hyperband": "Hyperband", "grid": "Grid"}
_MOST_VALUES, _MOST_PARAMETERS = 30, 30
_LONGEST_NAME = 32
_NAME = re.compile(r"[^\s]{1,256}")
_OF_TRAINING = (
    *("RoleArn", "OutputDataConfig", "StoppingCondition", "InputDataConfig", "VpcConfig"),
    *("EnableInterContainerTrafficEncryption", "EnableManagedSpotTraining", "CheckpointConfig"),
    *("RetryStrategy", "Environment"),
)
"""Keys that a training job's request and a tuning job's definition share."""


def tuning_names(asked: SageMakerOptions, run: str) -> list[str]:
    """Return the names that a run's tuning job may have, the wanted one first.

    Another job of the account may have the exact name of --job-name.
    """
    exact = [] if asked.job_name is None else [asked.job_name]
    return [*exact, f"dist-{run}"]


def objective_regex(metric: str) -> str:
    """Return the pattern with which the service finds the objective in the hosts' console output.

    agent/console_output.py writes it. If several ranks log the objective, rank 0's value counts, as
    everywhere in jupyter-dist.
    """
    return rf"\[0\] (?:.* )?{re.escape(metric)}=([-+0-9.eE]+)"


def check_search(search: Search, asked: SageMakerOptions) -> None:
    """Raise InputError if the service cannot do this search."""
    if len(search.space) > _MOST_PARAMETERS:
        raise InputError(f"a tuning job has at most {_MOST_PARAMETERS} parameters, got {len(search.space)}")
    for name, one in search.space.items():
        size = one.size if _is_categorical(one, search) else 0
        if size > _MOST_VALUES:
            raise InputError(
                f"--tune {name}={one} has {size:,.0f} values, but a tuning job allows at most "
                f"{_MOST_VALUES}. Remove the step, or name fewer"
            )
        if size and len(_texts(one)) < size:
            raise InputError(
                f"--tune {name}={one}: two of these values are the same text in a tuning job. Remove one"
            )
        if name in asked.hyperparameters:
            raise InputError(f"{name!r} is set by both --hyperparameters and --tune. Remove one of them")
        if name.startswith("sagemaker_"):
            raise InputError(f"--tune {name}=… uses a name of SageMaker. Choose another name")
    if search.strategy == "grid" and search.max_jobs < search.grid_size():
        raise InputError(
            f"a tuning job tries the whole grid, which has {search.grid_size():g} points. "
            "Remove --max-jobs, or name fewer values"
        )
    if search.strategy == "hyperband" and search.early_stopping:
        raise InputError("--strategy hyperband already ends trials early. Remove --early-stopping")
    if len(asked.job_name or "") > _LONGEST_NAME:
        raise InputError(
            f"--job-name: a tuning job's name has at most {_LONGEST_NAME} characters. Shorten it"
        )
    if asked.base_job_name != SageMakerOptions.model_fields["base_job_name"].default:
        raise InputError(
            "--base-job-name works only with training jobs, because the names of a tuning job's training "
            "jobs begin with its own name. Use --job-name"
        )
    if asked.keep_alive:
        raise InputError(
            "--keep-alive works only with training jobs, because a tuning job keeps its own "
            "instances. Remove it"
        )


def tuning_request(search: Search, asked: SageMakerOptions, sent: Asked) -> dict[str, Any]:
    """Return the arguments of boto3's `create_hyper_parameter_tuning_job` for a run's tuning."""
    given = training_request(asked, sent)
    algorithm = {
        key: value
        for key, value in given["AlgorithmSpecification"].items()
        if key != "EnableSageMakerMetricsTimeSeries"
    }
    fixed = {} if search.warm is None else search.warm.fixed
    definitions = list(algorithm.get("MetricDefinitions", ()))
    if not any(each["Name"] == search.metric for each in definitions):
        definitions.append({"Name": search.metric, "Regex": objective_regex(search.metric)})
    request: dict[str, Any] = {
        "HyperParameterTuningJobName": sent.name,
        "HyperParameterTuningJobConfig": {
            "Strategy": _STRATEGIES[search.strategy],
            "HyperParameterTuningJobObjective": {
                "Type": "Maximize" if search.goal == "max" else "Minimize",
                "MetricName": search.metric,
            },
            "ResourceLimits": {
                "MaxNumberOfTrainingJobs": search.max_jobs,
                "MaxParallelTrainingJobs": search.parallel,
            },
            "ParameterRanges": _ranges(search),
            "TrainingJobEarlyStoppingType": "Auto" if search.early_stopping else "Off",
            **({} if search.seed is None else {"RandomSeed": search.seed}),
        },
        "TrainingJobDefinition": {
            "StaticHyperParameters": {
                **given["HyperParameters"],
                **fixed,
            },
            "AlgorithmSpecification": {**algorithm, "MetricDefinitions": definitions},
            "HyperParameterTuningResourceConfig": given["ResourceConfig"],
            **{key: given[key] for key in _OF_TRAINING if key in given},
        },
    }
    if search.warm is not None:
        request["WarmStartConfig"] = {
            "ParentHyperParameterTuningJobs": [
                {"HyperParameterTuningJobName": name} for name in search.warm.jobs
            ],
            "WarmStartType": "TransferLearning" if search.transfer else "IdenticalDataAndAlgorithm",
        }
    if "Tags" in given:
        request["Tags"] = given["Tags"]
    return request


def parameters_of(search: Search, tuned: Mapping[str, str]) -> dict[str, Value]:
    """Convert the service's choice for a training job (`TunedHyperParameters`) to values of the search."""
    return {name: _value(one, tuned[name], search) for name, one in search.space.items()}


def _is_categorical(one: Dimension, search: Search) -> bool:
    """Return whether the service gets a list of points: it has no steps, and its grid accepts only lists."""
    if isinstance(one, Choice) or search.strategy == "grid":
        return True
    return one.step not in (None, 1) if isinstance(one, Whole) else one.step is not None


def _ranges(search: Search) -> dict[str, Any]:
    found: dict[str, Any] = {
        f"{kind}ParameterRanges": [] for kind in ("Integer", "Continuous", "Categorical")
    }
    for name, one in search.space.items():
        if _is_categorical(one, search):
            values = list(_texts(one))
            found["CategoricalParameterRanges"].append({"Name": name, "Values": values})
            continue
        assert isinstance(one, Real | Whole)
        found["ContinuousParameterRanges" if isinstance(one, Real) else "IntegerParameterRanges"].append(
            {
                "Name": name,
                "MinValue": str(one.low),
                "MaxValue": str(one.high),
                "ScalingType": "Logarithmic" if one.log else one.scaling or "Linear",
            }
        )
    return found


def _texts(one: Dimension) -> dict[str, Value]:
    """Return the points by the service's text for each: the value as JSON, as the SDK writes it."""
    return {json.dumps(str(value)): value for value in one.points() or ()}


def _value(one: Dimension, text: str, search: Search) -> Value:
    if _is_categorical(one, search):
        values = _texts(one)
        return values[text] if text in values else values[json.dumps(text)]
    number = float(json.loads(text) if text.startswith('"') else text)
    return int(number) if isinstance(one, Whole) else number
