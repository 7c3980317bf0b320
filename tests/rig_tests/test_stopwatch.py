"""The stopwatch counts waits, and not that others had the CPUs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jupyter_dist.conformance import deadlines
from tests.rigs import stopwatch
from tests.rigs.stopwatch import Stopwatch


@pytest.fixture
def pressure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the kernel tells of CPUs that were waited for; nothing at first."""
    told = tmp_path / "cpu"
    told.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\nfull total=7\n")
    monkeypatch.setattr(deadlines, "_PRESSURE", told)
    monkeypatch.setattr(stopwatch, "_ADDED_UP_EVERY_S", 0.0)
    return told


def test_a_wait_is_counted(pressure: Path) -> None:
    watch = Stopwatch()
    assert watch.under(60)
    time.sleep(0.05)
    assert not watch.under(0.05)


def test_a_wait_for_a_cpu_is_not(pressure: Path) -> None:
    watch = Stopwatch()
    time.sleep(0.05)
    pressure.write_text("some avg10=99.00 avg60=9.00 avg300=0.00 total=91000000\nfull total=7\n")
    assert watch.under(0.05)


def test_without_such_a_kernel_all_time_is_counted(pressure: Path) -> None:
    pressure.unlink()
    watch = Stopwatch()
    time.sleep(0.05)
    assert not watch.under(0.05)
