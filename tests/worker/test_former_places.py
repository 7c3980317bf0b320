"""Runs of a version whose modules stood elsewhere: they open, and their results are what they were."""

from __future__ import annotations

import importlib
import pickletools
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import jupyter_dist
from jupyter_dist import queries
from jupyter_dist.showing.run import Run
from jupyter_dist.worker import former_places
from jupyter_dist.worker.former_places import present

OLD = Path(__file__).parents[1] / "golden" / "runs_of_0_1"


@pytest.fixture
def old(own_folders: Path) -> dict[str, Run]:
    """The runs by their names."""
    shutil.copytree(OLD, own_folders)
    for path in own_folders.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return {shown["name"]: jupyter_dist.attach(shown["id"]) for shown in queries.runs()["runs"]}


def test_they_are_listed_and_say_what_they_said(old: dict[str, Run]) -> None:
    assert {name: str(run.state) for name, run in old.items()} == {
        "values": "succeeded",
        "functions": "succeeded",
        "failing": "failed",
    }
    assert "rank 1" in old["values"].log()
    assert old["values"].metrics["value"].tolist() == [1.0, 0.5, 0.5, 0.25]
    (error,) = old["failing"].errors
    assert (error.type, error.message) == ("ValueError", "no such digit")


def test_their_values(old: dict[str, Run]) -> None:
    for rank, value in enumerate(old["values"].results):
        colour, pair, array, view, parameters, keys, lock, weak, share = value
        assert (colour.name, pair.b, bytes(view), parameters.__name__) == ("RED", "b", b"abc", "P")
        assert (array == np.arange(100) + rank).all()
        assert (list(keys), lock.locked(), list(weak)) == ([1], False, [])
        assert share == [0, 2, 4] if rank == 0 else [1, 3]


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="a function's code is of the Python it is from")
def test_their_functions_and_classes(old: dict[str, Run]) -> None:
    (made,) = old["functions"].results
    assert (made["lambda"](2), made["scaled"](2), made["partial"]()) == (7, 6, 6)
    assert (made["point"].far(), made["class"](3).far()) == (5, 13)
    assert (made["kind"](1), made["kind"]("")) == ("int", "object")
    with made["counter"].lock:
        assert made["counter"].twice == 0


def _modules_named(data: bytes) -> set[str]:
    words = {str(word) for _, word, _ in pickletools.genops(data)}
    return {word for word in words if re.fullmatch(r"jupyter_dist(\.\w+)+", word)}


def test_names_of_ours_in_these_results_have_moved() -> None:
    """Otherwise the tests above say nothing."""
    named: set[str] = set()
    for path in OLD.rglob("result.pkl"):
        data, at = path.read_bytes(), 0
        while at < len(data):
            piece = data[at:]
            named |= _modules_named(piece)
            at += max(position or 0 for _, _, position in pickletools.genops(piece)) + 1
    assert {name for name in named if present(name) != name} >= {
        "jupyter_dist.worker.pickling.spaces",
        "jupyter_dist.worker.pickling.dispatch",
        "jupyter_dist.worker.pickling.remade.weak",
    }


@pytest.mark.parametrize(
    ("module", "now"),
    [
        ("jupyter_dist.worker.pickling.spaces", "jupyter_dist.worker.pickling.namespaces"),
        ("jupyter_dist.worker.pickling.classes", "jupyter_dist.worker.pickling.classes"),
        ("jupyter_dist.worker.payload", "jupyter_dist.worker.payload"),
        ("my.jupyter_dist.worker.pickling.spaces", "my.jupyter_dist.worker.pickling.spaces"),
        ("spaces", "spaces"),
    ],
)
def test_where_a_module_is_now(module: str, now: str) -> None:
    assert present(module) == now


def test_every_module_is_where_it_is_said_to_be() -> None:
    for place in former_places._MOVED.values():
        importlib.import_module(f"jupyter_dist.worker.{place}")
