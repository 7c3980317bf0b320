"""A cluster-launcher file of Ray's: https://docs.ray.io/en/latest/cluster/vms/references/ray-cluster-configuration.html"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ...errors import DistError, InputError, MissingEngine

__all__ = ["LauncherFile", "read"]

_LIMIT_S = 120.0
"""Longest time of the check in seconds.

The launcher's imports take two seconds, or a minute on a busy machine.
"""
_AT_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class LauncherFile:
    """A file for `ray up`: the cluster's name, its provider, and the head's port for `ray://`."""

    path: Path
    name: str
    provider: str
    client_port: int


def read(given: str) -> LauncherFile:
    """Read the file, and check it as `ray up` checks it before it starts anything. Blocks for some seconds.

    Raises InputError if the file is invalid, and MissingEngine if Ray or its provider's package is missing.
    """
    path = Path(os.path.abspath(Path(given).expanduser()))
    try:
        length = path.stat().st_size
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise InputError(f"cannot read the cluster-launcher file {str(path)!r}: {error.strerror}") from None
    if length > _AT_MOST_BYTES:
        raise InputError(
            f"{str(path)!r} is not a cluster-launcher file of Ray, because it has {length:,} bytes"
        )
    program = Path(__file__).with_name("cluster_file_program.py")
    try:
        done = subprocess.run(
            [sys.executable, str(program), str(path)],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_LIMIT_S,
            check=False,
        )
        found = json.loads(done.stdout.decode(errors="replace").strip().split("\n")[-1])
    except subprocess.TimeoutExpired:
        raise DistError(f"Ray's launcher could not be loaded within {_LIMIT_S:g} s. Try again") from None
    except ValueError:
        said = done.stderr.decode(errors="replace").strip()[-500:]
        raise DistError(f"Ray's launcher cannot be loaded: {said}") from None
    if "missing" in found:
        raise MissingEngine(f"{path.name} cannot be launched: {found['missing']}")
    if "wrong" in found:
        raise InputError(f"{str(path)!r} is not a cluster-launcher file that Ray accepts: {found['wrong']}")
    return LauncherFile(path, found["name"], found["provider"], found["client_port"])
