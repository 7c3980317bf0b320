"""Where ranks have parted, from their records of collectives."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_dist.record.failures.collectives import Parting, Record, first_parting, parse

REDUCE, SMALL, OTHER = (
    ("all_reduce", [4], "Float"),
    ("all_reduce", [3], "Float"),
    ("all_reduce", [4], "Double"),
)
BROADCAST, BARRIER, GATHER = ("broadcast", [4], "Float"), ("barrier", None, ""), ("all_gather", [9], "Long")


def record(
    *calls: tuple[str, Any, str],
    first: int = 1,
    waits: float | None = None,
    group: str = "0",
    **groups: Sequence[int],
) -> Record:
    """A rank's record: its calls are numbered from `first`. It `waits` so many seconds in the last."""
    told: list[list[Any]] = [
        [group, number, name, [] if size is None else [size], [kind] if kind else [], None]
        for number, (name, size, kind) in enumerate(calls, first)
    ]
    if waits is not None:
        told[-1][-1] = waits
    found = parse({"groups": {group: [0, 1, 2], **groups}, "calls": told})
    assert found is not None
    return found


def parting(records: Mapping[int, Record], ended: Sequence[int] = (), world_size: int = 3) -> Parting:
    found = first_parting(records, ended, world_size)
    assert found is not None
    return found


@pytest.mark.parametrize("other", [SMALL, OTHER, BROADCAST, BARRIER, GATHER])
def test_the_first_different_call_is_found_although_later_ones_differ_too(other: Any) -> None:
    alike = (REDUCE, BROADCAST)
    found = parting(
        {
            0: record(*alike, REDUCE, REDUCE, SMALL, waits=9.5),
            1: record(*alike, other, BARRIER, waits=9.5),
            2: record(*alike, REDUCE),
        }
    )
    assert (found.kind, found.call.number, sorted(found.calls)) == ("differ", 3, [0, 1, 2])
    assert found.calls[1].operation == other[0]


def test_ranks_that_gather_inputs_of_different_sizes_do_not_differ() -> None:
    records = {
        rank: record(("gather", [rank], "Float"), ("all_gather", [rank + 1], "Long")) for rank in range(3)
    }
    assert first_parting(records, (), 3) is None


@pytest.mark.parametrize("missing", [[1], [0, 2], [0]])
def test_ranks_that_did_not_come_are_found(missing: list[int]) -> None:
    records = {
        rank: record(REDUCE, REDUCE) if rank in missing else record(REDUCE, REDUCE, BARRIER, waits=9.5)
        for rank in range(3)
    }
    found = parting(records)
    assert (found.kind, list(found.missing), found.finished) == ("missing", missing, 2)
    assert str(found.call) == "barrier #3"


def test_a_rank_that_has_called_none_is_found() -> None:
    found = parting({0: record(REDUCE, waits=9.5), 1: Record({}, {}), 2: record(REDUCE, waits=9.5)})
    assert (found.missing, found.finished) == ((1,), 0)


def test_a_running_rank_without_a_record_did_not_come_and_a_dead_one_is_unknown() -> None:
    records = {0: record(REDUCE, waits=9.5), 2: record(REDUCE, waits=9.5)}
    assert (parting(records).missing, parting(records).finished) == ((1,), None)
    assert first_parting(records, [1], 3, killed=[1]) is None


def test_a_rank_that_left_without_a_record_did_not_call_what_the_others_wait_in() -> None:
    """It has called all that is done, because the others could not have finished that without it."""
    records = {rank: record(REDUCE, BARRIER, waits=9.5) for rank in (0, 2)}
    found = parting(records, ended=[1])
    assert (found.kind, found.missing, str(found.call)) == ("missing", (1,), "barrier #2")
    done = {rank: record(REDUCE, BARRIER) for rank in (0, 2)}
    assert first_parting(done, [1], 3) is None


def test_a_rank_that_failed_at_once_has_waited_for_one_that_ended_early() -> None:
    records = {0: record(REDUCE, BARRIER, waits=0.2), 1: record(REDUCE)}
    found = parting(records, ended=[0, 1], world_size=2)
    assert (found.kind, found.missing, str(found.call)) == ("missing", (1,), "barrier #2")


def test_ranks_that_are_on_their_way_have_not_parted() -> None:
    assert first_parting({0: record(REDUCE, REDUCE), 1: record(REDUCE), 2: record(REDUCE)}, (), 3) is None
    assert first_parting({}, (), 3) is None
    records = {0: record(REDUCE, REDUCE, waits=0.2), 1: record(REDUCE), 2: record(REDUCE, REDUCE, waits=0.3)}
    assert first_parting(records, (), 3) is None
    assert parting({**records, 0: record(REDUCE, REDUCE, waits=4)}).missing == (1,)


def test_a_rank_has_forgotten_its_oldest_calls() -> None:
    records = {0: record(*[REDUCE] * 9), 1: record(*[REDUCE] * 4, first=7), 2: record(*[REDUCE] * 5, first=5)}
    assert first_parting(records, (), 3) is None
    records[0] = record(*[REDUCE] * 10, waits=9.5)
    records[1] = record(*[REDUCE] * 4, first=7, waits=9.5)
    assert (parting(records).missing, parting(records).finished) == ((2,), 9)


def test_in_two_groups_the_rank_that_waits_for_nobody_is_the_cause() -> None:
    """Rank 2 waits for rank 0, which waits for rank 1, which waits for nobody."""
    records = {
        0: record(REDUCE, waits=9.5, group="rows", rows=[0, 1]),
        1: record(REDUCE, group="columns", columns=[1]),
        2: record(REDUCE, waits=9.5, group="columns", columns=[0, 2]),
    }
    found = parting(records)
    assert (found.group, found.missing) == ("rows", (1,))


def test_a_circle_of_groups_is_named() -> None:
    records = {
        0: record(REDUCE, waits=9.5, group="a", a=[0, 1]),
        1: record(BARRIER, waits=9.5, group="b", b=[0, 1]),
    }
    found = parting(records, world_size=2)
    assert found.kind == "circle"
    assert {rank: call.operation for rank, call in found.calls.items()} == {0: "all_reduce", 1: "barrier"}


def test_a_rank_with_one_call_more_or_less_than_the_others_is_named() -> None:
    usual = (REDUCE, GATHER, BROADCAST)
    found = parting({0: record(SMALL, *usual), 1: record(*usual), 2: record(*usual)})
    assert (found.kind, found.missing, str(found.call)) == ("extra", (0,), "all_reduce #1 of float32[3]")
    found = parting({0: record(*usual), 1: record(GATHER, BROADCAST), 2: record(*usual)})
    assert (found.kind, found.missing, str(found.call)) == ("skipped", (1,), "all_reduce #1 of float32[4]")
    # Of two ranks, nobody knows which is wrong.
    both = parting({0: record(SMALL, *usual), 1: record(*usual)}, world_size=2)
    assert (both.kind, sorted(both.calls)) == ("differ", [0, 1])
    # What repeats itself could be both.
    turns = (REDUCE, GATHER, REDUCE, GATHER)
    assert parting({0: record(*turns[1:]), 1: record(*turns), 2: record(*turns)}).kind == "differ"


def test_all_ranks_that_wait_in_the_same_call_are_told_apart_from_ranks_on_their_way() -> None:
    records = {rank: record(REDUCE, BARRIER, waits=9.5) for rank in range(3)}
    assert (parting(records).kind, str(parting(records).call)) == ("together", "barrier #2")
    assert first_parting({**records, 1: record(REDUCE, BARRIER, waits=0.1)}, (), 3) is None


def told(*calls: tuple[Any, ...]) -> Record:
    found = parse({"groups": {"0": [0, 1, 2]}, "calls": [list(call) for call in calls]})
    assert found is not None
    return found


def test_messages_between_two_ranks() -> None:
    """Rank 0 waits for a message, and rank 1 waits for all: nobody else is to blame."""
    waits = (":p2p 1>0", 2, "recv from rank 1", [[3]], ["float32"], 9.0)
    sent = (":p2p 1>0", 1, "send to rank 0", [[5]], ["float32"], None)
    barrier: tuple[Any, ...] = ("0", 1, "barrier", [], [], 9.0)
    found = parting({0: told(waits), 1: told(sent, barrier), 2: told(barrier)})
    assert (found.kind, found.calls[0].is_message) == ("circle", True)
    assert str(found.calls[0]) == "recv from rank 1 of float32[3]"
    found = parting({0: told(waits), 1: told(sent), 2: told()})
    assert (found.kind, found.missing) == ("missing", (1,))
    # A tensor of another size is torch's business, and a message that was sent waits for nobody.
    assert first_parting({0: told(), 1: told(sent), 2: told()}, (), 3) is None
    assert first_parting({0: told((*waits[:1], 1, *waits[2:])), 1: told(sent), 2: told()}, (), 3) is None


def test_roots_that_differ() -> None:
    calls = [("0", 1, "broadcast", [[3]], ["Float"], 9.0, root) for root in (0, 2, None)]
    found = parting({rank: told(call) for rank, call in enumerate(calls)})
    assert [call.kind for call in found.calls.values()][:2] == [
        "called broadcast with root 0 of float32[3]",
        "called broadcast with root 2 of float32[3]",
    ]
    assert first_parting({0: told(calls[0]), 1: told(calls[2]), 2: told(calls[2])}, (), 3).kind == "together"  # type: ignore[union-attr]


def test_a_rank_that_has_joined_takes_part_in_all_of_horovod() -> None:
    tensor = (":horovod allreduce.w", 7, 'allreduce "w"', [[3]], ["float32"], 9.0)
    joined: tuple[Any, ...] = (":horovod join", 1, "hvd.join()", [], [], 9.0)
    records = {0: told(tensor), 1: told(joined), 2: told(tensor)}
    assert first_parting(records, (), 3) is None or parting(records).group == ":horovod join"
    assert parting({**records, 1: told()}).missing == (1,)


def test_a_rank_that_has_left_join_takes_part_in_nothing_by_itself() -> None:
    """All ranks have joined and left. Then one of them does not come to the next operation."""
    joined: tuple[Any, ...] = (":horovod join", 1, "hvd.join()", [], [], None)
    tensor = (":horovod allreduce.w", 7, 'allreduce "w"', [[3]], ["float32"], 9.0)
    found = parting({0: told(joined, tensor), 1: told(joined), 2: told(joined, tensor)})
    assert (found.kind, found.group, found.missing) == ("missing", ":horovod allreduce.w", (1,))


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"groups": [], "calls": []},
        {"groups": {}, "calls": [[1]]},
        {"groups": {}, "calls": 3},
        {"groups": {}, "calls": [["0", "x", "all_reduce", [], [], True]]},
    ],
)
def test_what_is_no_record_is_left_out(data: dict[str, Any]) -> None:
    assert parse(data) is None


@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(3, 30))
def test_one_rank_that_skips_one_call_is_found_at_it(seed: int, ranks: int, length: int) -> None:
    """All others go on until they wait for it; what it calls instead is the next one."""
    chosen = random.Random(seed)
    program = [("all_reduce", [n + 1], "Float") for n in range(length)]
    culprit, place = chosen.randrange(ranks), chosen.randrange(length - 1)
    records = {}
    for rank in range(ranks):
        if rank == culprit:
            records[rank] = record(*program[:place], program[place + 1], waits=9.5)
        else:
            records[rank] = record(*program[: place + 1], waits=9.5)
    found = parting(records, world_size=ranks)
    assert (found.kind, found.call.number) == ("differ", place + 1)
    odd = [rank for rank, call in found.calls.items() if call.sizes != ((place + 1,),)]
    assert odd == [culprit]


def test_inputs_are_named_as_torch_names_them() -> None:
    (call,) = record(("all_reduce", [64, 10], "BFloat16")).calls["0"].values()
    assert str(call) == "all_reduce #1 of bfloat16[64, 10]"


def test_gloo_and_nccl_of_one_process_group_count_for_themselves() -> None:
    names = (("0 nccl", "all_reduce"), ("0", "broadcast"))
    told = [[group, 1, name, [[4]], ["Float"], 9.0] for group, name in names]
    first, late = (parse({"groups": {"0": [0, 1, 2]}, "calls": calls}) for calls in (told, told[1:]))
    assert first is not None
    assert late is not None
    found = parting({0: first, 1: first, 2: late})
    assert (found.kind, found.call.operation, found.missing) == ("missing", "all_reduce", (2,))
