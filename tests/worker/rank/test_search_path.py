"""Which entries of the notebook's search path a rank with another Python uses."""

from __future__ import annotations

import sys

import pytest

from jupyter_dist.worker.rank import search_path

OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"
PATHS = ["/home/ada/work", "/opt/lib/python3.11/site-packages", "/usr/lib/python3/dist-packages", "/x/src"]
PATHS += ["/opt/lib/python311.zip", "/opt/lib/python3.11", "/opt/lib/python3.11/lib-dynload", "/p/python3.x"]


def test_the_same_python_uses_all() -> None:
    assert search_path.own(PATHS, OWN) == PATHS


@pytest.mark.parametrize("python", ["3.9", "3.99"])
def test_another_python_uses_no_libraries_of_the_notebook_s(python: str) -> None:
    assert search_path.own(PATHS, python) == ["/home/ada/work", "/x/src", "/p/python3.x"]
