"""What a failure shows of a launcher's log: not the traceback that our own signal made it print."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_dist.record.failures.launcher_excerpt import excerpt

AGENT = """W1126 11:48:39.1 12 torch/agent/api.py:1] Received {number} death signal, shutting down workers
W1126 11:48:39.124000 12 torch/api.py:2] Sending process 14 closing signal SIGTERM
Traceback (most recent call last):
  File "/lib/torch/run.py", line 1, in main
    run(args)
torch.distributed.elastic.multiprocessing.api.SignalException: Process 12 got signal: {number}
"""
REAL = """Traceback (most recent call last):
  File "/lib/torch/run.py", line 1, in main
    run(args)
RuntimeError: no rendezvous
"""


@pytest.mark.parametrize("number", [15, 2])
def test_the_end_that_we_asked_for_is_left_out(tmp_path: Path, number: int) -> None:
    log = tmp_path / "launcher.log"
    log.write_text(AGENT.format(number=number))
    assert excerpt(log) == []
    log.write_text(f"joining the rendezvous\n{REAL}{AGENT.format(number=number)}")
    assert excerpt(log) == ["joining the rendezvous", *REAL.splitlines()]


def test_another_signal_and_another_error_stay(tmp_path: Path) -> None:
    log = tmp_path / "launcher.log"
    log.write_text(REAL + AGENT.format(number=11))
    lines = excerpt(log)
    assert lines[: len(REAL.splitlines())] == REAL.splitlines()
    assert lines[-1].endswith("got signal: 11")
    log.write_text("Traceback (most recent call last):\nfree text\nKeyboardInterrupt\n")
    assert len(excerpt(log)) == 3
