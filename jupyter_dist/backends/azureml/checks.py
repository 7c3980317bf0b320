"""Checks of a command job before any request, and before anything costs money."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from ...errors import InputError, MissingEngine
from ..ranks.tensorflow_roles import roles
from .environments import environment_of
from .options import SERVERLESS, AzureMlOptions
from .request import instances
from .workspace import WorkspaceId, workspace_here

__all__ = ["check_command", "check_packages", "whereabouts"]


def whereabouts(asked: AzureMlOptions, folder: Path) -> WorkspaceId:
    """Return the workspace of the options, or the one configured in the notebook's folder.

    Raises InputError.
    """
    given = {
        "subscription": asked.subscription,
        "resource_group": asked.resource_group,
        "workspace": asked.workspace,
    }
    found = {**workspace_here(os.environ, folder), **{k: v for k, v in given.items() if v is not None}}
    missing = [f"--{name.replace('_', '-')}" for name in given if name not in found]
    if missing:
        raise InputError(
            f"the backend 'azureml' needs a workspace: {' '.join(missing)}. Or download "
            "config.json from the studio to a folder above the notebook"
        )
    return WorkspaceId(**found)


def check_packages() -> None:
    """Raise MissingEngine if a package is missing."""
    for package in ("azure.identity", "azure.storage.blob"):
        if not _has(package):
            raise MissingEngine(
                f"the backend 'azureml' needs {package}: pip install \"jupyter-dist[azureml]\""
            )


def check_command(world_size: int, asked: AzureMlOptions) -> list[str]:
    """Return warnings. Raises InputError and MissingEngine."""
    check_packages()
    whereabouts(asked, Path.cwd())
    if asked.compute is None:
        raise InputError(
            "the backend 'azureml' needs --compute: the name of a cluster, or serverless with "
            "--instance-type Standard_NC24ads_A100_v4"
        )
    if asked.environment is None and not asked.makes_environment:
        raise InputError(
            "the backend 'azureml' needs --environment, such as "
            "azureml://registries/azureml/environments/acpt-pytorch-2.8-cuda12.6/versions/1. Or --pip "
            "torch==2.8.0 makes one from packages"
        )
    environment_of(asked, "")
    for flag, given in (("--instance-type", asked.instance_type), ("--spot", asked.spot)):
        if given and asked.compute != SERVERLESS:
            raise InputError(
                f"{flag} works only with serverless compute, but --compute is {asked.compute!r}. Remove "
                "it, or write --compute serverless"
            )
    roles(world_size, ps=asked.ps, chief=asked.chief)
    return _check_ranks(world_size, asked)


def _check_ranks(world_size: int, asked: AzureMlOptions) -> list[str]:
    count = instances(asked, world_size)
    each = -(-world_size // count)
    if world_size % count and asked.by_mpi:
        raise InputError(
            "--distribution mpi needs the same number of ranks on each instance, but "
            f"{world_size} is not a multiple of {count}. Use -np {count * each}"
        )
    if asked.processes_per_host is not None and each != asked.processes_per_host:
        raise InputError(
            f"-np {world_size} on {count} instances is {each} ranks on each, but "
            f"--processes-per-host is {asked.processes_per_host}. Remove one of these flags"
        )
    told = []
    if count < asked.instance_count:
        told.append(
            f"{world_size} ranks need only {count} of {asked.instance_count} instances, so only "
            f"{count} are requested"
        )
    return told


def _has(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False
