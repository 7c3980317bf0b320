"""Each version of a state is read as it is, and ranks that have not changed are not parsed again."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.folder import write_json
from jupyter_dist.job import RankState, State, Status
from jupyter_dist.record import stored_status
from tests.rigs.run_maker import RunMaker

RANKS = 200


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ranks that were parsed."""
    found: list[int] = []
    parse = RankState.from_json

    def noted(data: Any) -> RankState:
        found.append(data["rank"])
        return parse(data)

    monkeypatch.setattr(RankState, "from_json", noted)
    return found


def test_only_ranks_that_have_changed_are_parsed(tmp_path: Path, parsed: list[int]) -> None:
    run = RunMaker(tmp_path, RANKS)
    first = stored_status.read(run.folder)
    assert first is not None
    assert len(parsed) == RANKS
    run.write(heartbeat=3.5, reason="late")
    second = stored_status.read(run.folder)
    assert second == run.status
    assert second.ranks is first.ranks
    run.set_rank(70, state=State.FAILED, exit_code=3)
    assert stored_status.read(run.folder) == run.status
    assert parsed[RANKS:] == [70]


def test_each_version_is_read_as_it_is(tmp_path: Path, dice: random.Random) -> None:
    run = RunMaker(tmp_path, RANKS)
    for _ in range(60):
        ranks = list(run.status.ranks)
        what = dice.randrange(6)
        if what == 0 and ranks:
            number = dice.randrange(len(ranks))
            ranks[number] = dataclasses.replace(
                ranks[number], state=dice.choice(list(State)), host='"ranks": ['
            )
        elif what == 1:
            ranks = ranks[: dice.choice([0, 1, 150])] + [
                RankState(n) for n in range(dice.choice([0, 3, 200]))
            ]
        changes: dict[str, Any] = {"heartbeat": dice.random(), "ranks": tuple(ranks)}
        if what == 2:
            changes["cursor"] = dice.choice([None, {"ranks": [1, 2]}, '"ranks": []}'])
        run.write(**changes)
        data = run.status.to_json()
        if what == 3:  # as an earlier release wrote it
            data = {"ranks": data.pop("ranks"), **data}
        elif what == 4:
            data = {**data, "of a later release": {"ranks": []}}
        elif what == 5:
            data["ranks"] = [{**rank, "new": 1} for rank in data["ranks"]]
        write_json(run.folder.state, data)
        assert stored_status.read(run.folder) == run.status == Status.from_json(json.loads(json.dumps(data)))


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"null", b'{"id": "a", "state": "running", "ranks": null}', b"{"]
)
def test_a_damaged_file_is_an_error_after_a_good_one(tmp_path: Path, data: bytes) -> None:
    run = RunMaker(tmp_path, RANKS)
    assert stored_status.read(run.folder) == run.status
    good = run.folder.state.read_bytes()
    for damaged in (data, good[: len(good) // 2], good[:-1]):
        run.folder.state.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"."):
            stored_status.read(run.folder)
    run.folder.state.unlink()
    assert stored_status.read(run.folder) is None
