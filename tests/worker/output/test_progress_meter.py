"""What a rank reports of its progress bars, and when."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.conformance.deadlines import wait_until
from jupyter_dist.worker.output import events
from jupyter_dist.worker.output.progress_meter import Meter


@pytest.fixture
def reported(tmp_path: Path) -> Iterator[Any]:
    path = tmp_path / "events.jsonl"
    events.open_writer(str(path))
    yield lambda: [json.loads(line) for line in path.read_text().splitlines()]
    events.close()


def test_a_text_delays_no_count_and_what_is_held_back_is_reported(reported: Any) -> None:
    meter = Meter(3, "epochs")
    meter.note = "loss=1"
    meter.update(0)
    meter.update(1)
    meter.update(2)
    # Nobody calls again, as in an epoch that takes minutes.
    wait_until(lambda: reported()[-1]["n"] == 2)
    assert (0, "loss=1") in [(one["n"], one.get("note")) for one in reported()]
    wait_until(lambda: time.monotonic() >= meter._next)
    meter.note = "loss=2"
    meter.update(2)
    meter.update(3)
    assert [(one["n"], one.get("note")) for one in reported()][-2:] == [(2, "loss=2"), (3, "loss=2")]
    meter.update(2)
    meter.close()
    assert (reported()[-1]["n"], reported()[-1]["closed"]) == (2, True)
    # The thread that reports ends with its work.
    wait_until(lambda: not any(one.name == "jupyter-dist-progress" for one in threading.enumerate()))


def test_a_forked_process_reports_what_it_holds_back(reported: Any) -> None:
    meter = Meter(9, "of the rank")
    meter.update(1)
    child = os.fork()
    if not child:
        try:
            Meter(9, "of the fork").update(4)
            wait_until(lambda: any((one["desc"], one["n"]) == ("of the fork", 4) for one in reported()))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    wait_until(lambda: any((one["desc"], one["n"]) == ("of the rank", 1) for one in reported()))
    ids = {one["desc"]: one["id"] for one in reported()}
    assert ids["of the fork"] == child << 16 != ids["of the rank"]
    meter.close()
