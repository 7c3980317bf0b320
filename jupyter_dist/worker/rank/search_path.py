"""The notebook's module search path on a rank, whose Python may have another version."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

__all__ = ["own"]

_OF_LIBRARIES = {"site-packages", "dist-packages", "lib-dynload"}
_OF_PYTHON = re.compile(r"python3\.?\d+(\.zip)?")


def own(paths: Sequence[str], python: str) -> list[str]:
    """Return the entries that a rank can use. `python`: the minor version of the notebook's Python.

    Libraries of one version of Python are not for another version.
    """
    if python == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return list(paths)
    return [path for path in paths if not any(map(_of_one_version, path.split(os.sep)))]


def _of_one_version(folder: str) -> bool:
    return folder in _OF_LIBRARIES or _OF_PYTHON.fullmatch(folder) is not None
