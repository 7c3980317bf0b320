"""The parents of a tuning job: what the service requires of them, checked before anything is started.

https://docs.aws.amazon.com/sagemaker/latest/dg/automatic-model-tuning-warm-start.html
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .... import folder as folders
from ....errors import InputError
from ....folder import RunFolder
from ....record import reader
from ....search.spec import KnownBest, Search, WarmStart
from ...job_watch import NotThere
from ..account import AwsAccount
from ..checks import region_for
from ..jobs import parameter
from ..options import SageMakerOptions
from ..request import Asked
from .jobs import describe_tuning, find_tuning
from .request import tuning_request

__all__ = ["check_parents", "with_parents"]

_MOST_PARENTS = 5
_MOST_CHANGED = 5
"""The service counts two changes for each changed value of a fixed parameter, and allows ten."""
_ENDED = ("Completed", "Stopped", "Failed")
_OF_SDK = ("sagemaker_estimator_class_name", "sagemaker_estimator_module")
"""Fixed parameters with which the SDK's `attach` finds its classes. No container reads them."""


def with_parents(search: Search, options: Mapping[str, Any], world_size: int) -> Search:
    """Return the search with what its request needs of its parents. Blocks.

    `options`, `world_size`: those of each trial. Raises InputError for a parent that the service would
    refuse, and other DistErrors.
    """
    asked = SageMakerOptions(**options)
    account = AwsAccount(asked.profile, region_for(asked))
    described = [_describe(account, name) for name in search.parents]
    request = tuning_request(search, asked, Asked("NAME", world_size, account.region, "PROGRAM", "CODE", {}))
    return dataclasses.replace(search, warm=check_parents(search, request, described))


def _describe(account: AwsAccount, parent: str) -> Mapping[str, Any]:
    _, colon, job = parent.partition(":")
    if colon:
        with contextlib.suppress(NotThere):
            return describe_tuning(account, job)
    else:
        place = RunFolder(folders.runs_root() / parent)
        found = find_tuning(account, SageMakerOptions(**_options_of_trials(place)), place)
        if found is not None:
            return found
    raise InputError(
        f"--warm-start {parent}: there is no such tuning job in {account.region}. Correct the name, or add "
        "the --region and --profile of its account"
    )


def _options_of_trials(place: RunFolder) -> Mapping[str, Any]:
    tuning = reader.job(place).tuning
    assert tuning is not None
    options: Mapping[str, Any] = tuning["trial"]["options"]
    return options


def check_parents(
    search: Search, request: Mapping[str, Any], described: Sequence[Mapping[str, Any]]
) -> WarmStart:
    """Return what the request needs of the parents. Pure. Raises InputError.

    `request`: that of the search. `described`: DescribeHyperParameterTuningJob of each parent.
    """
    if len(described) > _MOST_PARENTS:
        raise InputError(
            f"--warm-start: a tuning job has at most {_MOST_PARENTS} parents, got {len(described)}. "
            "Name fewer"
        )
    fixed: dict[str, str] = {}
    for told in described:
        theirs = _fixed(told)
        fixed |= {name: theirs[name] for name in _OF_SDK if name in theirs}
    for told in described:
        _check_parent(request, fixed, told)
    names = tuple(str(told["HyperParameterTuningJobName"]) for told in described)
    return WarmStart(names, fixed, _best_elsewhere(search, described))


def _check_parent(request: Mapping[str, Any], added: Mapping[str, str], told: Mapping[str, Any]) -> None:
    called = f"the tuning job {told['HyperParameterTuningJobName']}"
    status = told["HyperParameterTuningJobStatus"]
    if status not in _ENDED:
        raise InputError(
            f"--warm-start: {called} has not ended ({status}). Wait until it has ended, or stop it"
        )
    ours, theirs = (_objective(each) for each in (request, told))
    if ours != theirs:
        raise InputError(
            f"--warm-start: the objective of {called} was {theirs}, but here it is {ours}. SageMaker can "
            "only compare values of one objective. Use the same --objective"
        )
    fixed, fixed_there = {**_fixed(request), **added}, _fixed(told)
    tuned, tuned_there = dict(_kinds(request)), dict(_kinds(told))
    same = f"{called} and this run must have the same parameters, each fixed or tuned"
    for name in sorted({*fixed_there, *tuned_there} - {*fixed, *tuned}):
        if name.startswith("sagemaker_"):
            cure = "Use the same --distribution and --framework"
        elif name in tuned_there:
            cure = f"Add --hyperparameters {name}=VALUE to fix it, or tune it"
        else:
            cure = f"Add --hyperparameters {name}={parameter(fixed_there[name])}"
        raise InputError(f"--warm-start: {name!r} is missing in this run. But {same}. {cure}")
    for name in sorted({*fixed, *tuned} - {*fixed_there, *tuned_there}):
        if name.startswith("sagemaker_"):
            cure = "Use the same --distribution and --framework, or remove --warm-start"
        else:
            cure = f"Remove {name} from {'--tune' if name in tuned else '--hyperparameters'}"
        raise InputError(f"--warm-start: {name!r} is new in this run. But {same}. {cure}")
    for name in sorted(tuned.keys() & tuned_there.keys()):
        if tuned[name] != tuned_there[name]:
            raise InputError(
                f"--warm-start: {name!r} was {tuned_there[name]} in {called}, and is {tuned[name]} now. "
                "SageMaker cannot change the type of a parameter. Use a range of the same type"
            )
    changed = [
        name
        for name, value in sorted(fixed.items())
        if not name.startswith(("sagemaker_", "model_dir"))
        and parameter(value) != parameter(fixed_there.get(name))
    ]
    if len(changed) > _MOST_CHANGED:
        raise InputError(
            f"--warm-start: {len(changed)} fixed parameters differ from those of {called}: "
            f"{', '.join(changed)}. SageMaker allows {_MOST_CHANGED}. Change fewer"
        )


def _objective(about: Mapping[str, Any]) -> str:
    told = about["HyperParameterTuningJobConfig"].get("HyperParameterTuningJobObjective") or {}
    word = {"Maximize": "max", "Minimize": "min"}.get(str(told.get("Type")), "none")
    return f"{word}:{told.get('MetricName', '')}"


def _fixed(about: Mapping[str, Any]) -> dict[str, str]:
    definition = about.get("TrainingJobDefinition")
    if definition is None:
        raise InputError(
            f"--warm-start: the tuning job {about['HyperParameterTuningJobName']} has several algorithms, "
            "and a cell is one. Name another parent"
        )
    return dict(definition.get("StaticHyperParameters") or {})


def _kinds(about: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each tuned parameter with its type."""
    ranges = about["HyperParameterTuningJobConfig"].get("ParameterRanges") or {}
    for kind in ("Integer", "Continuous", "Categorical"):
        for each in ranges.get(f"{kind}ParameterRanges") or ():
            yield str(each["Name"]), kind.lower()


def _best_elsewhere(search: Search, described: Sequence[Mapping[str, Any]]) -> KnownBest | None:
    """Return the best training job of the parents that are no runs."""
    found: KnownBest | None = None
    for name, told in zip(search.parents, described, strict=True):
        best = told.get("BestTrainingJob") or {}
        value = (best.get("FinalHyperParameterTuningJobObjectiveMetric") or {}).get("Value")
        if ":" not in name or value is None or (found is not None and not search.better(value, found.value)):
            continue
        tuned = {key: str(parameter(text)) for key, text in best.get("TunedHyperParameters", {}).items()}
        found = KnownBest(f"sagemaker:{best['TrainingJobName']}", float(value), tuned)
    return found
