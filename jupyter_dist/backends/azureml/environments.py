"""The environment of a job: one of the workspace, or one that Azure builds from packages. Pure.

The second kind equals the anonymous environment of Azure's own SDK, so Azure builds the image once for both.

https://learn.microsoft.com/rest/api/azureml/environment-versions/create-or-update
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

from ...errors import InputError
from .options import AzureMlOptions

__all__ = ["anonymous", "environment_id", "environment_of"]

_ANONYMOUS = "CliV2AnonymousEnvironment"
"""Name of the SDK's environments without a name. Equal ones have the same version and one image."""
_BASE = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04"
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=<>!~\[\]-]*")
"""Texts that YAML reads as they are."""


def environment_of(asked: AzureMlOptions, workspace: str, version: str | None = None) -> str:
    """Return the id of the options' environment. `version`: for a name without a version.

    Raises InputError for an unknown form, and for a file that cannot be read.
    """
    made = anonymous(asked)
    if made is None:
        return environment_id(asked.environment or "", workspace, version)
    return f"{workspace}/environments/{_ANONYMOUS}/versions/{made[0]}"


def environment_id(name: str, workspace: str, version: str | None = None) -> str:
    """Return the id of an environment. `version`: for a name without a version."""
    name = name.removeprefix("azureml:")
    if name.startswith(("//", "/subscriptions/")):
        return f"azureml:{name}" if name.startswith("//") else name
    name, _, own = name.partition(":")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise InputError(
            f"--environment needs NAME, NAME:VERSION or azureml://registries/…, got {name!r:.100}"
        )
    return f"{workspace}/environments/{name}/versions/{own or version or 'LATEST'}"


def anonymous(asked: AzureMlOptions) -> tuple[str, dict[str, Any]] | None:
    """Return the version and the body of the environment that --pip, --conda-file and --image describe.

    None if they are not used. Raises InputError if the file cannot be read.
    """
    if not asked.makes_environment:
        return None
    image, conda = asked.image or _BASE, _conda(asked)
    properties = {"image": image, "isAnonymous": True, "isArchived": False}
    version = _hash(image)
    if conda is not None:
        properties["condaFile"] = conda
        version = version.join(_hash(conda))
    return _hash(version), {"properties": properties}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _conda(asked: AzureMlOptions) -> str | None:
    """Return the conda file with the packages. Its Python is the notebook's."""
    if asked.conda_file is not None:
        try:
            text = Path(asked.conda_file).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--conda-file: {asked.conda_file!r} cannot be read: {error}") from None
        if not re.search(r"^dependencies\s*:", text, re.MULTILINE):
            raise InputError(
                f"--conda-file: {asked.conda_file!r} has no dependencies. `conda env export` writes such a "
                "file"
            )
        return text
    if not asked.pip:
        return None
    python = f"python={sys.version_info[0]}.{sys.version_info[1]}"
    packages = "".join(f"  - {_quoted(one)}\n" for one in asked.pip)
    return (
        f"channels:\n- conda-forge\ndependencies:\n- {python}\n- pip\n- pip:\n{packages}"
        "name: project_environment\n"
    )


def _quoted(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
