"""The AWS Deep Learning Containers for training: their names by region and framework (images.json). Pure.

https://aws.github.io/deep-learning-containers/ lists them.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

from ...agent.stage_program import OLDEST_PYTHON
from ...errors import InputError
from .instance_types import has_gpus

__all__ = [
    "OWN_PYTHON",
    "full_version",
    "image_of",
    "listed",
    "newest_version",
    "python_of",
    "runs_ranks",
    "smddp_instances",
    "smddp_versions",
]

OWN_PYTHON = f"py{sys.version_info[0]}{sys.version_info[1]}"


@cache
def _known() -> dict[str, Any]:
    known: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    return known


def newest_version(
    framework: str, python: str | None = None, *, others: bool = False, smddp: bool = False
) -> str | None:
    """Return the newest version of the framework whose container has this Python.

    `python`: None is the notebook's Python. `others`: or else any other Python that can run ranks.
    `smddp`: only containers with AWS's data parallel library count.
    """
    versions = smddp_versions(framework) if smddp else _known()["frameworks"][framework]["versions"]
    fitting = [version for version, pythons in versions.items() if (python or OWN_PYTHON) in pythons]
    if others and python is None and not fitting:
        fitting = [version for version, pythons in versions.items() if any(map(runs_ranks, pythons))]
    return max(fitting, key=_order, default=None)


def smddp_instances() -> list[str]:
    """Return the instance types on which AWS's data parallel library runs."""
    return list(_known()["smddp"]["instance_types"])


def smddp_versions(framework: str) -> dict[str, list[str]]:
    """Return the versions whose containers have AWS's data parallel library, with their Pythons."""
    versions = _known()["frameworks"][framework]["versions"]
    return {version: versions[version] for version in _known()["smddp"][framework] if version in versions}


def runs_ranks(python: str) -> bool:
    """Return whether ranks run with a Python such as `py310`."""
    return _order(f"{python[2:3]}.{python[3:]}") >= OLDEST_PYTHON


def python_of(framework: str, version: str) -> str | None:
    """Return the Python of that version's container. None: unknown.

    Of several, this is the notebook's Python or else the last one.
    """
    found = _known()["frameworks"][framework]["versions"].get(full_version(framework, version))
    if found is None:
        return None
    return OWN_PYTHON if OWN_PYTHON in found else str(found[-1])


def listed(framework: str, *, smddp: bool = False) -> str:
    """Return the versions that have containers, with their Pythons, for the user."""
    versions = smddp_versions(framework) if smddp else _known()["frameworks"][framework]["versions"]
    return ", ".join(f"{version} ({'/'.join(pythons)})" for version, pythons in versions.items())


def image_of(framework: str, version: str, python: str, instance_type: str, region: str) -> str:
    """Return the image's name in the registry of that region. Raises InputError for an unknown image."""
    known = _known()
    account = known["registries"].get(region)
    if account is None:
        raise InputError(
            f"jupyter-dist has no registry of AWS Deep Learning Containers for {region!r} in its "
            f"list ({known['source']}). Name the image with --image"
        )
    about = known["frameworks"][framework]
    full = full_version(framework, version)
    if python not in about["versions"].get(full, []):
        raise InputError(
            f"jupyter-dist has no container of {framework} {version} with {python} in its list. "
            f"The list has {listed(framework)}. Name any other image with --image"
        )
    kind = "gpu" if has_gpus(instance_type) else "cpu"
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"{account}.dkr.ecr.{region}.{suffix}/{about['repository']}:{version}-{kind}-{python}"


def full_version(framework: str, version: str) -> str:
    """Return the full version: 2.6 means 2.6.0, or else the newest version that begins with 2.6."""
    versions = _known()["frameworks"][framework]["versions"]
    if version in versions:
        return version
    return max((v for v in versions if v.startswith(f"{version}.")), key=_order, default=version)


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
