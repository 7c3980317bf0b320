"""Which names a cell of a session has assigned."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy
import pytest

from jupyter_dist.capture.source import parse
from jupyter_dist.worker.session.kept_names import KeptNames


@pytest.fixture
def kept() -> Iterator[KeptNames]:
    names = KeptNames()
    yield names
    names.main.__dict__.clear()


def assigned(kept: KeptNames, code: str, *, succeeds: bool = True) -> list[str]:
    cell = parse(code, "In[1]")
    header = {"source": code, "filename": cell.filename, "flags": cell.flags}
    header |= {"writes": [*cell.writes], "assigns": [*cell.assigns]}
    kept.begin({"kind": "cell", **header})
    try:
        exec(code, kept.main.__dict__)
    except ZeroDivisionError:
        assert not succeeds
    return kept.assigned(succeeded=succeeds)


@pytest.mark.parametrize(
    "code", ["x = 1", "x, *_ = [1]", "with open('/dev/null') as f: x: int = 1", "x += 0"]
)
def test_an_assignment_of_the_same_object_counts_if_the_cell_succeeds(kept: KeptNames, code: str) -> None:
    kept.main.__dict__["x"] = 1
    assert "x" in assigned(kept, code)
    assert "x" not in assigned(kept, f"1 / 0\n{code}", succeeds=False)


@pytest.mark.parametrize(
    "code", ["if 0: x = 2", "for x in (): pass", "def f():\n    global x\n    x = 2", "x"]
)
def test_an_assignment_that_may_not_run_counts_if_it_has_run(kept: KeptNames, code: str) -> None:
    kept.main.__dict__["x"] = 1
    assert "x" not in assigned(kept, code)
    assert "x" in assigned(kept, f"{code}\nif 1: x = 3")


def test_a_cell_that_ends_before_its_code_has_assigned_nothing(kept: KeptNames) -> None:
    kept.main.__dict__["x"] = 1
    assert kept.assigned(succeeded=False) == []
    assert assigned(kept, "y = 2") == ["y"]
    assert kept.assigned(succeeded=False) == []


@pytest.mark.parametrize("first", ["set(range(3))", "[1, 2]", "{1: 2}"])
def test_an_assignment_counts_also_if_the_second_value_is_where_the_first_was(
    kept: KeptNames, first: str
) -> None:
    exec(f"x = {first}; first = id(x)", kept.main.__dict__)
    loop = f"for _ in range(100):\n    x = {first}"
    assert "x" in assigned(kept, loop)
    exec(f"x = {first}", kept.main.__dict__)
    assert "x" in assigned(kept, f"{loop}\n1 / 0", succeeds=False)


def test_names_are_described_by_type_and_size(kept: KeptNames) -> None:
    class Unfinished:
        """A value as `torch.nn.UninitializedParameter`."""

        __module__ = "torch.nn.parameter"

        @property
        def shape(self) -> None:
            raise RuntimeError("no shape yet")

    kept.main.__dict__.update({"a": [1], "b": numpy.zeros((2, 3)), "c": 1, "d": Unfinished()})
    assert kept.kinds() == {
        "a": "list, 1 item",
        "b": "ndarray 2×3 float64",
        "c": "int",
        "d": "Unfinished",
    }


def test_an_error_that_takes_no_note_and_a_value_without_a_hash_do_no_harm(kept: KeptNames) -> None:
    @dataclasses.dataclass(frozen=True)
    class Frozen(Exception):
        code: int = 1

    class Odd:
        __module__ = "__main__"

        def __hash__(self) -> int:
            raise RuntimeError("no hash")

    kept.main.__dict__.update({"odd": Odd(), "Odd": type("Odd", (), {})})
    assigned(kept, "odd")
    kept.explain(Frozen())
    error = ValueError()
    kept.explain(error)
    assert "earlier definition" in str(getattr(error, "__notes__", "earlier definition"))
