"""The record of a rank's calls that no library records."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_dist.worker.rank import calls, collectives


@pytest.fixture(autouse=True)
def no_calls() -> Iterator[None]:
    calls.forget("")
    yield
    calls.forget("")


def told() -> dict[tuple[str, int], list[Any]]:
    return {(call[0], call[1]): call[2:] for call in calls.snapshot()}


def test_calls_of_a_group_are_numbered_and_a_failed_one_still_waits() -> None:
    with calls.waiting(":a", "first"):
        assert told()[":a", 1][3] is not None
    assert told()[":a", 1][3] is None
    with pytest.raises(ValueError, match="no"), calls.waiting(":a", "second"):
        raise ValueError("no")
    assert list(told()) == [(":a", 2)]
    assert told()[":a", 2][3] is not None
    calls.forget(":a")
    assert calls.begin(":a", "again").number == 1


def test_what_waits_is_told_however_old_it_is() -> None:
    calls.begin(":old", "old")
    for number in range(300):
        calls.begin(f":{number}", "new").done = True
    found = told()
    assert len(found) == 129
    assert (":old", 1) in found
    assert (":299", 1) in found


def test_groups_do_not_grow_without_a_limit() -> None:
    for number in range(5000):
        calls.begin(f":{number}", "new")
    assert len(calls.snapshot()) == 4096


def test_work_that_is_done_or_gone_does_not_wait() -> None:
    import weakref

    class Work:
        done = False

        def is_completed(self) -> bool:
            return self.done

    work = Work()
    calls.begin(calls.channel(1, 0), "recv from rank 1").work = weakref.ref(work)
    assert told()[":p2p 1>0", 1][3] is not None
    work.done = True
    assert told()[":p2p 1>0", 1][3] is None
    work.done = False
    del work
    assert told()[":p2p 1>0", 1][3] is None


@pytest.mark.needs("torch")
def test_the_recorder_of_nccl_is_read_beside_that_of_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build for GPUs has it. Its barrier is an all_reduce of a number."""
    import torch.distributed  # noqa: F401  the record is empty without it
    from torch._C import _distributed_c10d

    entry = {
        "process_group": ["0", "default_pg"],
        "collective_seq_id": 7,
        "profiling_name": "nccl:all_reduce_barrier",
        "input_sizes": [[1]],
        "input_dtypes": ["Float"],
        "is_p2p": False,
        "retired": False,
        "state": "scheduled",
        "time_created_ns": time.time_ns(),
    }
    text = json.dumps({"entries": [entry, {**entry, "is_p2p": True}]})
    monkeypatch.setattr(_distributed_c10d, "_dump_nccl_trace_json", lambda: text, raising=False)
    (call,) = [call for call in collectives._of_torch() if call[0].endswith(calls.NCCL)]
    assert call[:5] == ["0 nccl", 7, "barrier", [], []]
    assert 0 <= call[5] < 60
