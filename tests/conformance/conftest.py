"""Keep a backend's tests in one process: they share runs, and hosts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_dist.conformance.ended import Ended

_ENDED_ELSEWHERE = ("test_azureml", "test_databricks")
"""Their runs end as those of test_sagemaker.py do, by the same code (backends/platform_job.py), and what each
platform has of its own at an end is tried in tests/test_azureml.py and tests/test_databricks.py. With
JUPYTER_DIST_CONFORMANCE=whole they are asked as well."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if item.path.parent == Path(__file__).parent]
    for item in ours:
        if not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    if os.environ.get("JUPYTER_DIST_CONFORMANCE") == "whole":
        return
    left_out = [item for item in ours if item.path.stem in _ENDED_ELSEWHERE and _is_of_ended(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _is_of_ended(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and item.originalname in vars(Ended)
