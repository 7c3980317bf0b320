"""Digests of values, with which a session sees what has changed."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

from jupyter_dist.worker.pickling import Trace
from jupyter_dist.worker.session.content import digest


def space(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(code, names)
    return names


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ([1, {"a": 2}], lambda value: value[1].update(a=3)),
        (numpy.zeros(100_000), lambda value: value.__setitem__(5, 1)),
        ({"a": numpy.zeros(3)}, lambda value: value["a"].__setitem__(0, 1)),
    ],
)
def test_a_digest_changes_with_the_content_only(value: Any, change: Any) -> None:
    before = digest(value, {})
    assert before is not None
    assert digest(value, {}) == before
    change(value)
    assert digest(value, {}) not in (before, None)


def test_a_look_at_a_partials_attributes_is_no_change() -> None:
    value: Any = functools.partial(print, end="")
    before = digest(value, {})
    assert vars(value) == {}
    assert digest(value, {}) == before
    value.note = 1
    assert digest(value, {}) not in (before, None)


def test_a_value_that_cannot_be_pickled_has_no_digest() -> None:
    assert digest((x for x in range(0)), {}) is None


@pytest.mark.skipif(sys.platform != "linux", reason="the contents of mapped files travel elsewhere")
def test_the_digest_of_an_array_in_a_mapped_file_is_that_of_its_place(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with open(path, "wb") as file:
        file.truncate(1 << 20)
    whole = numpy.memmap(path, numpy.uint8, "r+")
    before = digest({"a": whole}, {})
    assert before is not None
    whole[5] = 1  # the ranks see it in the file
    assert digest({"a": whole}, {}) == before
    assert digest({"a": whole[1:]}, {}) not in (before, None)
    path.rename(tmp_path / "old")
    with open(path, "wb") as file:
        file.truncate(1 << 20)
    assert digest({"a": numpy.memmap(path, numpy.uint8, "r+")}, {}) not in (before, None)


def test_a_functions_digest_is_that_of_its_code_and_names_what_it_uses() -> None:
    names = space("scale = 1\ndef f(x): return g(x) * scale\ndef g(x): return x")
    trace = Trace()
    before = digest(names["f"], names, trace)
    assert {"g", "scale"} <= trace.reads
    names["scale"] = 2
    assert digest(names["f"], names) == before
    other = space("scale = 1\ndef f(x): return g(x) + scale\ndef g(x): return x")
    assert digest(other["f"], other) != before


def test_objects_that_two_values_share_are_found() -> None:
    weights = [1.0]
    first: dict[int, Any] = {}
    second: dict[int, Any] = {}
    third: dict[int, Any] = {}
    digest({"w": weights}, {}, shared=first)
    digest({"of": weights, "lr": 1}, {}, shared=second)
    digest(numpy.zeros(3), {}, shared=third)
    assert first.keys() & second.keys() == {id(weights)}
    fourth: dict[int, Any] = {}
    digest(numpy.ones(3), {}, shared=fourth)
    assert third.keys() & fourth.keys() == set()
