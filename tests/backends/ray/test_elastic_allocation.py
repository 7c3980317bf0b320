"""Room for elastic ranks, where a Ray does what no test can have a real one do at the right moment."""

from __future__ import annotations

import pytest

from jupyter_dist.backends.ray import elastic_allocation
from jupyter_dist.errors import LaunchError

asked: list[str] = []


class RemovedAtOnce:
    """A placement group that somebody removes whenever it was asked for."""

    def __init__(self, name: str, bundles: int) -> None:
        self.name = name

    def ask(self, bundle: object, strategy: str) -> None:
        asked.append(self.name)

    def is_there(self) -> bool:
        raise LaunchError("somebody has removed it")

    def lacks(self, *_: object) -> str:
        return "Ray is placing it"


def test_a_room_that_is_removed_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastic_allocation, "PlacementGroup", RemovedAtOnce)
    monkeypatch.setattr(elastic_allocation, "_LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(elastic_allocation, "check_listening", lambda address: None)
    allocations = elastic_allocation.PerRankAllocations(
        "run-0", 1, {"CPU": 1.0}, 0.0, {}, "10.0.0.1:6379", lambda: None
    )
    for _ in range(3):
        allocations.turn()
    assert set(asked) == {"run-0-0"}
    assert len(asked) == 3
    assert (allocations.hosts(), allocations.gone()) == ([], {})
    assert allocations.trouble() == "Ray is placing it"
