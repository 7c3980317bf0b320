"""The Pythons of this machine besides the one that runs the tests."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from jupyter_dist.agent.stage_program import OLDEST_PYTHON

__all__ = ["OTHERS", "bare_library", "other_python"]

OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"


def _tool() -> Any:
    path = Path(__file__).parents[2] / "tools" / "pythons.py"
    spec = importlib.util.spec_from_file_location("pythons", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["pythons"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _named() -> dict[str, list[Path]]:
    """Where interpreters may be, by the version in their paths: none is run to find out."""
    places: dict[str, list[Path]] = {}
    for path in _tool().candidates():
        version = re.search(r"3\.(9|1\d)\b", str(path))
        if version is not None and version[0] != OWN:
            places.setdefault(version[0], []).append(path)
    return places


_PLACES = _named()
OTHERS = sorted(_PLACES) or ["another"]


@functools.cache
def _found(minor: str) -> Path | None:
    found = _tool().found(_PLACES.get(minor, []), OLDEST_PYTHON)
    return next((python.path for python in found if python.minor == minor), None)


def other_python(minor: str) -> Path:
    """The interpreter of a version; skips the test where there is none."""
    found = _found(minor)
    if found is None:
        pytest.skip(f"needs Python {minor}")
    return found


def bare_library(folder: Path) -> Path:
    """A folder for PYTHONPATH with what jupyter-dist copies to a host besides itself."""
    folder.mkdir()
    (folder / "cloudpickle").symlink_to(Path(cloudpickle.__file__).parent)
    return folder
