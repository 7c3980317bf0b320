"""Tests share a stand-in of a cloud while it is whole, and learn of its own faults."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rigs.kept_plane import Faults, KeptPlane


class Plane:
    def __init__(self) -> None:
        self.left: list[str] = []
        self.told_to_end: list[str] = []
        self.open = False

    def __enter__(self) -> Plane:
        self.open = True
        return self

    def __exit__(self, *_: object) -> None:
        self.open = False

    def stuck(self) -> list[str]:
        return self.left

    def ending(self) -> list[str]:
        """The first one ends after each look."""
        looked_at, self.told_to_end = self.told_to_end, self.told_to_end[1:]
        self.left = [*self.told_to_end, *(name for name in self.left if name not in looked_at)]
        return looked_at


def test_a_plane_with_a_job_left_is_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    kept: KeptPlane[Any] = KeptPlane(Plane)
    first = kept.whole()
    assert first.open
    assert kept.whole() is first
    first.left.append("job-1")
    second = kept.whole()
    assert (second is first, first.open, second.open) == (False, False, True)
    assert "job-1" in capsys.readouterr().out
    kept.close()
    kept.close()
    assert not second.open


def test_jobs_that_were_told_to_end_are_waited_for() -> None:
    kept: KeptPlane[Any] = KeptPlane(Plane)
    first = kept.whole()
    first.told_to_end = ["job-1", "job-2"]
    first.left = ["job-1", "job-2"]
    assert kept.whole() is first
    assert first.left == []
    kept.close()


def test_its_own_faults_fail_the_test_that_caused_them() -> None:
    faults = Faults()
    faults.tell()
    for error in (KeyError("computeId"), ConnectionResetError("whoever asked has ended")):
        try:
            raise error
        except Exception:
            faults.note("job 1")
    with pytest.raises(pytest.fail.Exception, match=r"job 1:(?s:.*)KeyError: 'computeId'") as caught:
        faults.tell()
    assert "ConnectionResetError" not in str(caught.value)
    faults.tell()
