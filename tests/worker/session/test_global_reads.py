"""The global names that a rank's values may read."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from jupyter_dist.worker.session.global_reads import global_reads

CODE = """
import functools
def f(): return lr
def outer():
    def inner(): return lr
    return inner
closure = outer()
part = functools.partial(len, f)
cached = functools.lru_cache(f)
class Base:
    def one(self): return lr
class Trainer(Base):
    @property
    def two(self): return rate
    @staticmethod
    def three(): return word
tr = Trainer()
method = tr.one
listed = [1, {"a": (f,)}]
class Holds: pass
holds = Holds()
holds.of = f
plain, none, library = [1, 2], None, functools
circle = []; circle.append(circle)
"""


def reads_of(code: str) -> dict[str, list[str] | None]:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(code, names)
    return global_reads(names)


def test_functions_objects_and_what_they_refer_to_are_searched() -> None:
    found = reads_of(CODE)
    for name in ("f", "outer", "closure", "part", "cached", "listed", "holds", "Base"):
        assert found.pop(name) == ["lr"], name
    for name in ("Trainer", "tr", "method"):
        assert found.pop(name) == ["lr", "rate", "word"], name
    assert found == {}


@pytest.mark.parametrize("value", ["[f] * 0 + list(range(10_000))", "{k: str(k) for k in range(10_000)}"])
def test_a_large_value_is_not_searched(value: str) -> None:
    assert reads_of(f"def f(): return lr\nlarge = {value}")["large"] is None


def test_code_of_a_module_reads_nothing_of_the_notebook() -> None:
    assert global_reads({"wraps": functools.wraps, "cached": functools.cached_property(len)}) == {}
