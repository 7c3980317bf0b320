"""How a run ends: a stop, a kill, a time limit, and a clock that is set back meanwhile."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from jupyter_dist.job import State
from jupyter_dist.record.failures import failures
from tests.rigs.launching import ended, logs, rank_pids
from tests.rigs.local_runs import UP, gone, run, start
from tests.rigs.stopwatch import Stopwatch

pytestmark = pytest.mark.usefixtures("warm")


def test_stop_lets_finally_blocks_run() -> None:
    folder = start("import time\ntry:\n    print('up')\n    time.sleep(600)\nfinally:\n    print('saved')")
    rank_pids(folder)
    folder.request("stop")
    status = ended(folder)
    assert (status.state, status.reason) == (State.STOPPED, "stopped by the user")
    assert [logs(folder, rank)[-1] for rank in (0, 1)] == ["saved", "saved"]
    assert failures.failures(folder) == []


def test_stop_ends_ranks_that_ignore_sigterm() -> None:
    folder = start("import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + UP)
    pids = rank_pids(folder)
    folder.request("stop")
    status = ended(folder)
    assert status.state is State.STOPPED
    assert gone(*pids)


def test_kill_ends_at_once() -> None:
    folder = start("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + UP)
    pids = rank_pids(folder)
    folder.request("stop")
    folder.request("kill")
    watch = Stopwatch()
    assert ended(folder).state is State.STOPPED
    assert watch.under(3)
    assert gone(*pids)


def test_timeout_fails_the_run() -> None:
    _, status = run(UP, timeout=0.5)
    assert (status.state, status.reason) == (State.FAILED, "not done within --timeout 0.5 s")


def test_after_a_timeout_the_ranks_do_not_start_again() -> None:
    _, status = run(UP, timeout=0.5, max_restarts=2)
    assert (status.state, status.attempt, status.reason) == (
        State.FAILED,
        0,
        "not done within --timeout 0.5 s",
    )


SET_BACK = """
import time
real, begun = time.time, time.monotonic()
time.time = lambda: real() - (3600 if time.monotonic() - begun > 2 else 0)
"""


def test_a_clock_that_is_set_back_delays_no_end(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SET_BACK)
    _, status = run(UP, timeout=3, env={"PYTHONPATH": str(tmp_path)})
    assert (status.state, status.reason) == (State.FAILED, "not done within --timeout 3 s")
    assert status.ended is not None
    assert status.ended < time.time() - 3000, "the clock was set back"


def test_a_rank_that_somebody_ends_in_order() -> None:
    folder = start(UP)
    os.kill(rank_pids(folder)[1], signal.SIGTERM)
    assert ended(folder).reason == "rank 1 ended with exit code 143 (SIGTERM)"
