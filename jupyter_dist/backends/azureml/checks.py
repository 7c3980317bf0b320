"""Checks of a command job before any request, and before anything costs money."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from ...errors import InputError, MissingEngine
from ..ranks.tensorflow_roles import roles
from .environments import environment_of
from .options import SERVERLESS, AzureMlOptions
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
    return asked.check_instances(world_size)


def _has(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False
