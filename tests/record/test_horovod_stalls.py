"""Horovod's warnings about ranks that a collective waits for."""

from __future__ import annotations

import pytest

from jupyter_dist.record.failures.horovod_stalls import missing_ranks

WARNING = """epoch 3
[11:56:39.738329: W horovod/stall_inspector.cc:107] One or more tensors were submitted to be reduced,
gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 10 seconds.
Missing ranks:
"""


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("1: [allreduce.grad.3]", {"allreduce.grad.3": [1]}),
        ("1: [allreduce.grad.3, allreduce.grad.4]\n3: [allreduce.grad.3]", {"allreduce.grad.3": [1, 3]}),
        ("0: [a.4]\n1: [a.3]\n2: [a.4]", {"a.4": [0, 2], "a.3": [1]}),
        ("2: [!broadcast.step, b, c, d, e, f ...]", {"broadcast.step": [2]}),
        ("1: [a.3]\nepoch 4", {}),
        ("7: [a.3]", {}),
        ("", {}),
    ],
)
def test_the_warning_at_the_end_of_the_log(lines: str, expected: dict[str, list[int]]) -> None:
    assert missing_ranks((WARNING + lines).split("\n")[: None if lines else -1], 4) == expected


def test_the_last_of_several_warnings_counts() -> None:
    log = f"{WARNING}1: [a]\n{WARNING}2: [b]"
    assert missing_ranks(log.split("\n"), 4) == {"b": [2]}
    assert missing_ranks(["epoch 3"], 4) == {}
