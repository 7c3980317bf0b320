"""The hint `cpu-threads`, from the events of all ranks."""

from __future__ import annotations

from typing import Any

from jupyter_dist.record.hints import Hint, Hints


def hints(events: list[dict[str, Any]]) -> list[Hint]:
    found = Hints()
    for rank, event in enumerate(events):
        found.take(rank, {"hint": "cpu-threads", "world": 4, **event})
    return found.found()


def seen(host: str, mask: str, *, threads: int = 2, ranks: int = 4, cores: int = 4) -> dict[str, Any]:
    return {"host": host, "mask": mask, "threads": threads, "ranks": ranks, "cores": cores}


def test_ranks_that_share_the_cores_of_a_machine() -> None:
    (hint,) = hints([seen("a", "f")] * 4)
    assert hint.ranks == (0, 1, 2, 3)
    assert "4 ranks with 2 CPU threads each share 4 cores" in hint.text
    assert "set them to 1." in hint.text


def test_a_hint_waits_for_all_ranks_of_a_machine() -> None:
    assert hints([seen("a", "f")] * 3) == []


def test_ranks_that_are_bound_to_cores_of_their_own_share_none() -> None:
    assert hints([seen("a", mask, cores=2) for mask in ("3", "c", "30", "c0")]) == []
    two = [seen("a", "f", threads=4, ranks=2), seen("a", "f0", threads=4, ranks=2)]
    assert hints([*two, *({**event, "host": "b"} for event in two)]) == []


def test_ranks_that_share_the_cores_of_a_socket() -> None:
    (hint,) = hints([seen("a", mask, threads=4) for mask in ("f", "f0", "f", "f0")])
    assert hint.ranks == (0, 1, 2, 3)
    assert "2 ranks with 4 CPU threads each share 4 cores" in hint.text
    assert "set them to 2." in hint.text
