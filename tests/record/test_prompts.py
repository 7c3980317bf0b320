"""Prompts as ranks write them: what waits, what was printed, and the sentence of the views."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Wait
from jupyter_dist.record.prompts import RankPrompts, sentence


def written(folder: RunFolder, *events: dict[str, Any]) -> RankPrompts:
    path = folder.rank(0, 3).prompts
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps({"time": 5.0, **event}) + "\n" for event in events)
    return RankPrompts(folder, 0, 3)


STOP = {"kind": "stop", "why": "breakpoint", "place": "In[4], line 14", "error": ""}
PROMPT = {"kind": "prompt", "id": "a-1", "text": "(Pdb) "}
GO = {"kind": "go", "steps": True, "ends": False}


def test_a_rank_waits_from_its_stop_until_it_goes(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    found = written(folder, STOP, {"kind": "text", "text": "> here\n"}, PROMPT)
    assert found.read() == ["> here\n"]
    assert found.wait == Wait(3, "breakpoint", "In[4], line 14", "", 5.0)
    assert (found.prompt, found.prompt_text) == ("a-1", "(Pdb) ")
    written(folder, {"kind": "taken", "id": "a-1"})
    assert found.read() == []
    assert found.stopped, "it works on a line"
    assert found.prompt is None
    written(folder, GO)
    again = RankPrompts(folder, 0, 3)
    for one in (found, again):
        one.read()
        assert one.steps
        assert not one.stopped


def test_who_comes_later_sees_only_the_last_stop(tmp_path: Path) -> None:
    old, new = {"kind": "text", "text": "old\n"}, {"kind": "text", "text": "new\n"}
    folder = RunFolder(tmp_path)
    assert written(folder, STOP, old, PROMPT, GO, STOP, new).read() == ["new\n"]
    assert written(folder, GO).read() == []


def test_a_text_before_the_stop_belongs_to_the_stop(tmp_path: Path) -> None:
    """pdb prints `--Return--` before it stops."""
    folder, text = RunFolder(tmp_path), {"kind": "text", "text": "--Return--\n"}
    early = written(folder, STOP, GO, text)
    assert early.read() == ["--Return--\n"]
    late = written(folder, STOP)
    assert late.read() == ["--Return--\n"]
    assert early.read() == []


def test_an_inner_stop_hides_no_text_of_the_outer_one(tmp_path: Path) -> None:
    here, inner = {"kind": "text", "text": "> here\n"}, {**STOP, "why": "input"}
    assert written(RunFolder(tmp_path), STOP, here, inner, STOP, PROMPT).read() == ["> here\n"]


@given(st.binary(max_size=200))
def test_bytes_that_a_host_makes_up_are_skipped(tmp_path_factory: Any, junk: bytes) -> None:
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    found = written(folder)
    path = folder.rank(0, 3).prompts
    path.write_bytes(junk + b'\n[1]\n{"kind": "stop"}\n{"kind": "text", "text": "\\ud83d"}\n')
    found.read()
    with path.open("a") as file:
        file.write(json.dumps({"time": 1, **STOP}) + "\n" + json.dumps({**PROMPT, "text": "\ud83d"}) + "\n")
    found.read()
    assert found.wait is not None
    assert found.prompt_text == "?"


def test_ranks_at_one_place_are_one_part_of_the_sentence() -> None:
    def wait(rank: int, why: str, place: str, text: str = "") -> Wait:
        return Wait(rank, why, place, text, 0.0)

    assert sentence([]) == ""
    assert sentence([wait(1, "breakpoint", "train.py:14")]) == "rank 1 waits at train.py:14"
    several = [
        wait(0, "breakpoint", "In[4], line 14"),
        wait(1, "error", "In[4], line 9", "ValueError: bad"),
        wait(2, "breakpoint", "In[4], line 14"),
        wait(3, "input", "In[4], line 20", "Name:"),
        wait(4, "input", "In[4], line 21", "Name:"),
        wait(5, "input", "In[4], line 22"),
    ]
    assert sentence(several) == (
        "ranks 0,2 wait at In[4], line 14; rank 1 waits at an error in In[4], line 9 (ValueError: bad); "
        "ranks 3-4 wait for input: 'Name:'; rank 5 waits for input"
    )
