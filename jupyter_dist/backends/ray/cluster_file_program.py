"""A program that checks a cluster-launcher file and writes a line of JSON.

It is started as `python cluster_file_program.py FILE`. The module is a separate program because it imports
Ray. It starts nothing, and asks no provider anything.

    {"name": "ours", "provider": "aws", "client_port": 10001}
    {"missing": "what has to be installed"}  {"wrong": "what is the matter with the file"}
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["checked", "main"]

_CLIENT_PORT = 10001
"""Default port for `ray://` of `ray start --head`."""


def checked(path: str) -> dict[str, Any]:
    """Return the file's content after the first checks of `ray up`, or the reason why they fail."""
    try:
        yaml = importlib.import_module("yaml")
        util = importlib.import_module("ray.autoscaler._private.util")
        providers = importlib.import_module("ray.autoscaler._private.providers")
    except ImportError as error:
        return {"missing": f"Ray's launcher is not installed ({error}): pip install 'jupyter-dist[ray]'"}
    try:
        config = yaml.safe_load(Path(path).read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        return {"wrong": f"it is not YAML: {_line(error)}"}
    provider = config.get("provider") if isinstance(config, dict) else None
    if not isinstance(provider, dict) or not isinstance(provider.get("type"), str):
        return {"wrong": "it has no `provider` with a `type`, which every cluster-launcher file has"}
    kind = provider["type"]
    # Private names of Ray's. If a Ray version lacks them, `ray up` itself reports the error.
    known = getattr(providers, "_NODE_PROVIDERS", {kind: None})
    if kind not in known:
        return {"wrong": f"its provider is of type {kind!r}, and Ray has: {', '.join(sorted(known))}"}
    try:
        # Check this first: the defaults of some providers are in the package that is missing.
        getattr(providers, "_get_node_provider_cls", bool)(provider)
    except ImportError as error:
        return {"missing": f"its provider {kind!r} needs a package that is not installed: {_line(error)}"}
    try:
        whole = util.prepare_config(config)
        util.validate_config(whole)
    except Exception as error:  # from jsonschema, from Ray's own checks, or for a missing key
        where = "".join(f"[{part!r}]" for part in getattr(error, "absolute_path", ()))
        said = getattr(error, "message", None) or _line(error)
        return {"wrong": f"{where + ': ' if where else ''}{said}"}
    return {
        "name": str(whole.get("cluster_name", "default")),
        "provider": kind,
        "client_port": _client_port(whole),
    }


def _line(error: BaseException) -> str:
    said = " ".join(str(error).split())
    return said if isinstance(error, ImportError) else f"{type(error).__name__}: {said}"


def _client_port(config: Mapping[str, Any]) -> int:
    """Return the head's port for `ray://`, as the file's commands that start Ray set it."""
    commands = config.get("head_start_ray_commands") or ()
    found = re.findall(r"--ray-client-server-port[= ]+(\d+)", "\n".join(map(str, commands)))
    return int(found[-1]) if found else _CLIENT_PORT


def main(path: str) -> None:
    """Write the result of the check to stdout."""
    print(json.dumps(checked(path)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
