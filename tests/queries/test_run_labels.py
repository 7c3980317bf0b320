"""Runs have names, tags, notes, parameters and surroundings, and a list finds, sorts and shows them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import jupyter_dist as dist
from jupyter_dist import queries
from jupyter_dist.errors import InputError
from jupyter_dist.launch import provenance
from jupyter_dist.manage import actions
from jupyter_dist.queries import run_info
from tests.rigs.run_maker import RunMaker
from tests.rigs.stopwatch import WaitFor

SCALE = 3


def scaled(x: float, name: str = "mine", token: str = "", where: str = "") -> float:
    return x * SCALE


def test_a_run_is_named_and_says_what_it_was_started_with(wait_for: WaitFor) -> None:
    told: dict[str, Any] = {"run_tags": "a,b", "note": "first", "env": {"OUT": "private-1"}}
    run = dist.run(scaled, 2.0, np=1, name="theirs", token="abcdef", where="at private-1", **told)
    # The function has a `name` itself, and gets it; what it does not take is ours.
    assert (run.name, run.tags, run.note) == ("scaled", ("a", "b"), "first")
    assert run.params == {"x": 2.0, "name": "theirs"}
    kept = run.folder.job.read_text()
    assert "private-1" not in kept
    assert "abcdef" not in kept
    run.name, run.tags = "told later", ["c"]
    info = queries.run(run.id)
    assert (info["name"], info["named"], info["tags"], info["line"]) == ("told later", True, ["c"], None)
    wait_for(run.folder.environment.exists, "the environment")
    environment = queries.environment(run.id)
    assert environment["python"] == ".".join(map(str, sys.version_info[:3]))
    assert environment["packages"]["pydantic"]


def test_the_commit_of_a_folder(tmp_path: Path) -> None:
    assert provenance.git_state(tmp_path) is None
    as_someone = ("-c", "user.name=x", "-c", "user.email=x@y")

    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), *as_someone, *words], check=True, capture_output=True)

    git("init", "-b", "main")
    (tmp_path / "a.py").write_text("1")
    git("add", "a.py")
    git("commit", "-m", "one")
    clean = provenance.git_state(tmp_path)
    assert clean is not None
    assert (clean["branch"], clean["dirty"], len(clean["commit"])) == ("main", False, 40)
    (tmp_path / "a.py").write_text("2")
    changed = provenance.git_state(tmp_path)
    assert changed is not None
    assert (changed["dirty"], changed["changed"]) == (True, ["a.py"])


def reads() -> tuple[int, int]:
    """How many bytes this process has read so far, and by how many calls."""
    told = Path("/proc/self/io").read_text().split()
    return int(told[1]), int(told[5])


def test_500_runs_are_listed_fast_named_searched_and_sorted(own_folders: Path) -> None:
    for number in range(500):
        made = RunMaker(
            own_folders, 2, label=f"In[{number}]", parameters={"lr": number / 1000, "model": "vit"}
        )
        for rank in range(2):
            made.metric(rank, 9, {"loss": 500 - number + rank, "system/cpu": 50})
        made.end()
    queries.runs(limit=1000)
    before = reads()
    page = queries.runs(limit=1000)
    # The ended ones are read once: 4,000 reads of 0.8 MB, which they no more are.
    assert [now - then for now, then in zip(reads(), before, strict=True)] < [5_000, 50]
    assert len(page["runs"]) == 500
    newest = page["runs"][0]
    assert (newest["final"], newest["extremes"]) == ({"loss": 1.5}, {"loss": [1, 2]})
    assert newest["parameters"] == {"lr": 0.499, "model": "vit"}

    answer = actions.about(newest["id"], "the best", ["good"], "seen by eye")
    assert answer["tags"] == ["good"]
    for text in ("best", "good", "eye", "lr=0.499", "best train()"):
        assert [run["id"] for run in queries.runs(text=text)["runs"]] == [newest["id"]]
    # Said anew it is seen anew, also where it is as long as before.
    actions.about(newest["id"], "the rest")
    assert queries.runs(text="rest")["runs"][0]["note"] == "seen by eye"
    actions.about(newest["id"], "")
    assert queries.runs()["runs"][0]["name"] == "In[499]"

    def names(text: str) -> set[str]:
        return {run["name"] for run in queries.runs(text=text, limit=1000)["runs"]}

    assert names("lr<=0.002 loss!=500.5") == {"In[1]", "In[2]"}
    assert names("lr=0.01") == {"In[10]"}
    assert names("loss>499 MODEL=vit state:succeeded ranks=2") == {"In[0]", "In[1]"}
    assert names("tag:good") == {"In[499]"}
    assert names("tag:goo") == names("state:failed") == names("model!=vit") == names("absent>1") == set()

    largest = queries.runs(sort="-metric:loss", limit=2)["runs"]
    assert [run["name"] for run in largest] == ["In[0]", "In[1]"]
    assert queries.runs(sort="-metric:loss", limit=1, before=largest[1]["id"])["runs"][0]["name"] == "In[2]"
    assert queries.runs(sort="param:lr", limit=1)["runs"][0]["name"] == "In[0]"
    with pytest.raises(InputError, match="sort must be"):
        queries.runs(sort="colour")
    with pytest.raises(InputError, match="120 characters"):
        actions.about(newest["id"], "x" * 121)


def test_a_torn_file_says_nothing(own_folders: Path) -> None:
    made = RunMaker(
        own_folders, 1, trial={"of": "20260101-000000-abcd", "number": 3, "parameters": {"lr": 0.5}}
    )
    made.folder.about.write_text('{"name": "x')
    made.folder.environment.write_text("[1]")
    made.event(0, "metric", step=1, values={"loss": "NaN", "accuracy": 0.5})
    made.end()
    info = run_info.short(made.folder)
    assert info is not None
    assert json.loads(json.dumps(info, allow_nan=False))["final"] == {"accuracy": 0.5}
    assert info["parameters"] == {"lr": 0.5}
    assert queries.environment(made.folder.id) == {}
