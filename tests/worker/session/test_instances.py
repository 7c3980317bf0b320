"""The objects of a class, also beside classes whose own code fails."""

from __future__ import annotations

from abc import ABC

from jupyter_dist.worker.session.instances import instances


class _Kind(ABC):  # noqa: B024  as DistributedDataParallel, which has an abstract base
    pass


class _Below(_Kind):
    pass


class _Odd(type):
    def __hash__(cls) -> int:
        raise AssertionError("code of another class runs")


def test_objects_of_subclasses_are_found_and_no_code_of_classes_runs() -> None:
    class Other(metaclass=_Odd):
        pass

    one, below, other = _Kind(), _Below(), Other()
    assert {id(each) for each in instances(_Kind)} == {id(one), id(below)}
    assert [each is other for each in instances(Other)] == [True]
