"""A wait has no number: its deadline is long, leaves out what others cost, and ends with a story."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from jupyter_dist.conformance import deadlines
from jupyter_dist.conformance.deadlines import Deadline, end_all_by, run_process, wait_for_exit, wait_until

SLEEPS = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


class Clocks:
    """The time that has passed, and for how much of it somebody waited for a CPU."""

    def __init__(self, pressure: Path, patch: pytest.MonkeyPatch) -> None:
        self.now, self._pressure = 1000.0, pressure
        self.waited(0)
        patch.setattr(deadlines, "_PRESSURE", pressure)
        patch.setattr(deadlines, "_end_all_by", float("inf"))
        # Of this module alone: threads that another test has left sleep by the real clock.
        patch.setattr(deadlines, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self.later))

    def later(self, seconds: float) -> None:
        self.now += seconds

    def waited(self, seconds: float) -> None:
        total = 77_000_000 + round(1e6 * seconds)
        self._pressure.write_text(f"some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\nfull total=7\n")


@pytest.fixture
def clocks(tmp_path: Path) -> Iterator[Clocks]:
    with pytest.MonkeyPatch.context() as patch:
        yield Clocks(tmp_path / "cpu", patch)


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every deadline of the test is over as soon as it begins."""
    monkeypatch.setattr(deadlines, "_end_all_by", 0.0)


def test_a_deadline_is_two_minutes_of_an_idle_machine(clocks: Clocks) -> None:
    deadline = Deadline()
    clocks.later(119)
    assert not deadline.passed()
    assert deadline.left_s() == pytest.approx(1)
    clocks.later(1)
    assert deadline.passed()
    assert deadline.left_s() == 0


def test_time_in_which_somebody_waited_for_a_cpu_is_not_counted(clocks: Clocks) -> None:
    deadline = Deadline()
    clocks.later(200)
    clocks.waited(100)
    assert deadline.left_s() == pytest.approx(20)
    clocks.later(21)
    assert deadline.passed()


def test_a_machine_that_is_always_busy_has_an_end_too(clocks: Clocks) -> None:
    deadline = Deadline(10)
    clocks.later(39)
    clocks.waited(39)
    assert not deadline.passed()
    clocks.later(1)
    clocks.waited(40)
    assert deadline.passed()


def test_no_deadline_outlasts_the_guard_of_the_test(clocks: Clocks) -> None:
    clocks.later(500)
    end_all_by(clocks.now + 70)
    deadline = Deadline()
    clocks.later(69)
    assert not deadline.passed()
    clocks.later(1)
    assert deadline.passed()


def test_each_test_has_a_guard() -> None:
    """Of ten minutes (pyproject.toml), of which the last half belongs to the story of what has failed."""
    assert 60 < deadlines._end_all_by - time.monotonic() < 600


def test_what_was_waited_for_is_told_with_the_last_value_and_the_story(clocks: Clocks) -> None:
    begin = clocks.now
    with pytest.raises(pytest.fail.Exception) as failed:
        wait_until(lambda: clocks.now < begin, "the past", lambda: "It is over.")
    assert str(failed.value) == "waited 120 s for the past; last value: False\nIt is over."
    assert clocks.now - begin == pytest.approx(120, abs=1)


def test_a_process_that_does_not_end_is_told(no_patience: None) -> None:
    with subprocess.Popen(SLEEPS, stdout=subprocess.DEVNULL) as process:
        with pytest.raises(pytest.fail.Exception, match="for the end of"):
            wait_for_exit(process)
        process.kill()


def test_a_process_that_ends_is_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.exit(3)"]) as process:
        assert wait_for_exit(process) == 3


def test_a_program_that_does_not_end_is_killed_and_its_output_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    up = tmp_path / "up"
    # The deadline is over once the program has written.
    monkeypatch.setattr(Deadline, "left_s", lambda _: 0.0 if up.exists() else 0.05)
    source = f"import time; print('up', flush=True); open({str(up)!r}, 'w'); time.sleep(600)"
    with pytest.raises(pytest.fail.Exception, match=r"for the end of .*\nup\n"):
        run_process([sys.executable, "-c", source])


def test_a_program_is_run_as_subprocess_does() -> None:
    done = run_process([sys.executable, "-c", "import sys; print(input() * 2); sys.exit('no')"], input="ab")
    assert (done.returncode, done.stdout, done.stderr) == (1, "abab\n", "no\n")
    with pytest.raises(subprocess.CalledProcessError, match="exit status 1"):
        run_process([sys.executable, "-c", "import sys; sys.exit(1)"], check=True)
