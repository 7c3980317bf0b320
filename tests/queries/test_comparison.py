"""Two runs beside each other: what differs is shown, and what is equal is one line."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import jupyter_dist
from jupyter_dist.commands import dispatch
from jupyter_dist.commands.run_commands import Context
from jupyter_dist.errors import InputError, RunNotFound
from jupyter_dist.folder import RunFolder, write_json
from jupyter_dist.showing.comparison import Compared
from tests.rigs.run_maker import BEGAN, RunMaker

CODE = "model = Net()\nfor x in data:\n    train(x, lr)\n"


def made(
    root: Path, *, pace_s: float = 0.1, slope: float = 1.0, torch: str = "2.0", code: str = CODE, **job: Any
) -> RunFolder:
    maker = RunMaker(root, 2, label="In[3]", **job)
    write_json(maker.folder.job, dataclasses.replace(maker.job, source=code).to_json())
    packages = {"numpy": "1.0", "torch": torch}
    write_json(maker.folder.environment, {"python": "3.11.7", "packages": packages, "git": None})
    for rank in range(2):
        for step in range(41):
            values = {"loss": 1 - slope * step / 100, "epoch": step, "odd": "NaN"}
            maker.event(rank, "metric", BEGAN + pace_s * step, step=step, values=values)
        window = {"steps": 40, "wall_s": 40 * pace_s, "data_s": 0.4, "wait_s": None, "samples": 320}
        maker.event(rank, "steps", BEGAN + 9, by="optimizer", gc=0, gc_s=0.0, **window)
    return maker.end()


def test_only_what_differs_is_shown(own_folders: Path) -> None:
    first = made(
        own_folders, parameters={"lr": 0.1, "batch": 32}, line="-np 2", options={"share_gpus": False}
    )
    second = made(
        own_folders,
        pace_s=0.2,
        slope=2.0,
        torch="2.1<b>",
        code=CODE.replace("train(x, lr)", "train(x, lr / 2)"),
        parameters={"lr": 0.1, "batch": 64, "drop": True},
        line="-np 2 --share-gpus",
        options={"share_gpus": True},
        timeout_s=60.0,
    )
    found = jupyter_dist.compare(jupyter_dist.Run(first), second.id[-6:])
    assert isinstance(found, Compared)
    data = found.data
    assert data.names == (f"In[3] {first.id[-4:]}", f"In[3] {second.id[-4:]}")
    facts = {one.name: (one.first, one.second) for one in data.facts}
    assert facts == {
        "flags": ("-np 2", "-np 2 --share-gpus"),
        "--timeout": ("", "60"),
        "--share-gpus": ("False", "True"),
    }
    assert [(one.name, one.first, one.second) for one in data.parameters] == [
        ("batch", "32", "64"),
        ("drop", "", "True"),
    ]
    assert [(one.name, one.second) for one in data.packages] == [("torch", "2.1<b>")]
    assert data.code[-2:] == ["-    train(x, lr)", "+    train(x, lr / 2)"]
    assert [(one.name, one.first, one.second, one.change) for one in data.final] == [
        ("loss", "0.6", "0.2", "-66.7 %")
    ]
    assert [(one.at, one.first, one.second) for one in data.at_steps] == [
        ("step 10", "0.9", "0.8"),
        ("step 20", "0.8", "0.6"),
        ("step 40", "0.6", "0.2"),
    ]
    # The second is half as fast, and descends twice as fast: after the same time both are at the same place.
    assert {one.name for one in data.at_times} == {"epoch"}
    assert (data.at_times[-1].at, data.at_times[-1].first, data.at_times[-1].second) == (
        "after 4.0 s",
        "40",
        "20",
    )
    assert [(one.name, one.first, one.second) for one in data.steps] == [
        ("step", "100 ms", "200 ms"),
        ("computing", "90 ms", "190 ms"),
        ("steps/s", "20", "10"),
        ("samples/s", "160", "80"),
    ]
    text = repr(found)
    (equal,) = [line for line in text.splitlines() if line.startswith("Equal: ")]
    for told in ("state", "ranks", "1 parameter", "1 package", "epoch at equal steps", "waiting for data"):
        assert told in equal
    assert "odd" not in text.replace("model", "")
    assert "\n-    train(x, lr)\n" in text
    page = found._repr_html_()
    assert "2.1&lt;b&gt;" in page
    assert "<b>" not in page.replace(f"<b>{data.names[0]}</b>", "").replace(f"<b>{data.names[1]}</b>", "")


def test_equal_runs_say_so_and_bad_input_is_refused(own_folders: Path) -> None:
    first, second = made(own_folders), made(own_folders)
    found = dispatch(f"compare {first.id} {second.id}", Context(), str)
    assert repr(found).splitlines()[-1].startswith("Equal: state, backend, ranks, hosts, attempts, ")
    assert len(repr(found).splitlines()) == 4, "the names, and what is equal"
    with pytest.raises(InputError, match=r"^compare needs two different runs, and both are "):
        jupyter_dist.compare(first.id, jupyter_dist.Run(first))
    with pytest.raises(InputError, match=r"^compare needs ID ID$"):
        dispatch(f"compare {first.id}", Context(), str)
    with pytest.raises(RunNotFound, match="no run 'nowhere'"):
        jupyter_dist.compare(first.id, "nowhere")
