"""The inputs of a job, converted from a flag's text to Azure ML's format. Pure.

train=azureml://datastores/workspaceblobstore/paths/digits/,mode=ro_mount
labels=abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/labels.csv,mode=download,type=uri_file
mnist=azureml:mnist:1
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["arguments", "check_inputs", "job_input"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_ASSET = re.compile(r"azureml:([A-Za-z0-9._-]+):([A-Za-z0-9._-]+)")
_SCHEMES = ("azureml://", "abfss://", "wasbs://", "https://", "adl://")
_MODES = {
    "ro_mount": "ReadOnlyMount",
    "rw_mount": "ReadWriteMount",
    "download": "Download",
    "direct": "Direct",
    "eval_mount": "EvalMount",
    "eval_download": "EvalDownload",
}
"""The names of the SDK and the studio, and the service's names."""
_TYPES = ("uri_folder", "uri_file", "mltable")


def job_input(name: str, text: str, workspace: str) -> dict[str, Any]:
    """Return an entry of a job's inputs. `workspace`: the id of the workspace of data assets.

    Raises ValueError, whose text continues after the flag's name.
    https://learn.microsoft.com/azure/machine-learning/reference-yaml-job-command
    """
    url, *parts = text.split(",")
    if not _NAME.fullmatch(name):
        raise ValueError(f"needs NAME=URI with a name of letters, digits and '_', got {name!r:.80}")
    asset = _ASSET.fullmatch(url)
    if asset is None and not url.startswith(_SCHEMES):
        raise ValueError(
            f"{name!r} needs azureml:NAME:VERSION, azureml://datastores/NAME/paths/PATH or "
            f"abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH, got {url!r:.80}"
        )
    given = dict(_pair(name, part) for part in parts)
    found = {"jobInputType": given.get("type", "uri_folder"), "uri": url}
    if asset is not None:
        found["uri"] = f"{workspace}/data/{asset[1]}/versions/{asset[2]}"
    if "mode" in given:
        found["mode"] = _MODES[given["mode"]]
    return found


def check_inputs(given: Mapping[str, str]) -> dict[str, str]:
    """Return the value of --input unchanged. Raises ValueError."""
    for name, text in given.items():
        job_input(name, text, "")
    return dict(given)


def arguments(given: Mapping[str, str]) -> str:
    """Return the arguments for the inputs in a job's command. The service inserts the paths."""
    return "".join(f" '{name}=${{{{inputs.{name}}}}}'" for name in given)


def _pair(name: str, part: str) -> tuple[str, str]:
    key, _, value = part.partition("=")
    allowed: Mapping[str, Any] = {"mode": tuple(_MODES), "type": _TYPES}
    if key not in allowed:
        raise ValueError(f"{name!r}: {part!r:.80} is none of mode=…, type=…")
    if value not in allowed[key]:
        raise ValueError(f"{name!r}: {key} is one of {', '.join(allowed[key])}, got {value!r:.80}")
    return key, value
