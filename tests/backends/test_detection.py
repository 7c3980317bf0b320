"""What a backend finds to run on: listed with it, and told beside the saved clusters that lead there."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_dist import clusters, queries
from jupyter_dist.backends import Capabilities, detection
from jupyter_dist.backends.detection import Found
from jupyter_dist.backends.local.backend import Local
from jupyter_dist.backends.local.options import LocalOptions
from jupyter_dist.backends.notebook_folder import notebook_folder
from jupyter_dist.clusters import Cluster
from jupyter_dist.commands import dispatch
from jupyter_dist.commands.run_commands import Context

HAS: dict[str, Any] = {
    "name": "10.0.0.2:6379",
    "options": {"gpus_per_worker": 2},
    "problem": None,
    "told": "2 nodes, 3 of 4 CPUs free, no GPU",
    "nodes": 2,
    "cpus": {"free": 3.0, "total": 4.0},
    "gpus": {"free": 0.0, "total": 0.0},
    "gpu_types": [],
}
GONE = {"name": "10.0.0.3:6379", "options": {"gpus_per_worker": 3}, "problem": "nobody answers"}


def finds(monkeypatch: pytest.MonkeyPatch, **detail: Any) -> None:
    """Have the backend `local` find this, and be one that looks for it."""

    def ask(names: Any, **_: Any) -> dict[str, Found]:
        return {name: Found(True, detail if name == "local" else {}, schema={}) for name in names}

    monkeypatch.setattr(detection, "ask", ask)
    monkeypatch.setattr(Local, "capabilities", Capabilities(warm=True, sites=True))


def row(name: str) -> Any:
    found = queries.backends()
    json.dumps(found, allow_nan=False)
    return next(one for one in found if one["name"] == name)


def test_each_site_is_a_row_below_its_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    finds(monkeypatch, Ray="2.60.0", sites=[HAS, GONE])
    table = dispatch("backends", Context())
    at = [name for name, *_ in table.rows].index("local")
    assert table.rows[at : at + 3] == [
        ("local", "ready", "Ray 2.60.0"),
        ("", "", "10.0.0.2:6379: 2 nodes, 3 of 4 CPUs free, no GPU"),
        ("", "", "10.0.0.3:6379: nobody answers"),
    ]
    assert row("local")["detail"] == {"Ray": "2.60.0"}
    assert row("local")["sites"] == [HAS, GONE]
    assert row("local")["no_site"] is None


def test_why_there_is_no_site_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    finds(monkeypatch, Ray="2.60.0", no_site="none runs here")
    assert ("local", "ready", "Ray 2.60.0: none runs here") in dispatch("backends", Context()).rows
    assert (row("local")["sites"], row("local")["no_site"]) == ([], "none runs here")


def test_a_saved_cluster_is_told_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for number, name in enumerate(["one", "two", "three"], 1):
        clusters.add(Cluster(name, "local", {"np": 1, "gpus_per_worker": number}))
    clusters.use("two")
    finds(monkeypatch, sites=[HAS, GONE])
    try:
        said = {name: said for name, *_, said in dispatch("clusters", Context()).rows}
    finally:
        clusters.use(None)
    assert said == {
        "one": "",
        "two": "in use; 2 nodes, 3 of 4 CPUs free, no GPU",
        "three": "nobody answers",
    }


def test_a_backend_that_looks_for_none_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    clusters.add(Cluster("one", "local", {"np": 1}))
    asked: list[str] = []

    def ask(names: Any, **_: Any) -> dict[str, Found]:
        asked.extend(names)
        return {}

    monkeypatch.setattr(detection, "ask", ask)
    assert len(dispatch("clusters", Context())) == 1
    assert asked == []


def test_what_a_stranger_tells_of_its_sites_is_taken_as_far_as_it_can_be_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    odd = {"name": "odd", "options": 3, "nodes": "two", "cpus": {"free": 1}, "gpus": [], "secret": object()}
    finds(monkeypatch, sites=[odd, {"options": {}}, "text", 3])
    assert row("local")["sites"] == [{"name": "odd", "options": {}, "problem": None}]
    assert ("", "", "odd: there") in dispatch("backends", Context()).rows
    finds(monkeypatch, sites="text", no_site=3)
    assert (row("local")["sites"], row("local")["no_site"]) == ([], None)


def test_a_pending_answer_is_only_for_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, fast = tmp_path / "slow", tmp_path / "fast"
    asked, go_on = threading.Event(), threading.Event()

    def detect() -> dict[str, str]:
        if notebook_folder() == slow:
            asked.set()
            go_on.wait(30)
        return {"folder": str(notebook_folder())}

    backend = SimpleNamespace(options=LocalOptions, check=lambda *_: [], detect=detect)
    monkeypatch.setattr(detection, "load", lambda name: backend)
    found: dict[str, Found] = {}
    thread = threading.Thread(target=lambda: found.update(detection.ask(["two folders"], folder=slow)))
    thread.start()
    try:
        assert asked.wait(30)
        assert detection.ask(["two folders"], folder=fast)["two folders"].detail == {"folder": str(fast)}
    finally:
        go_on.set()
        thread.join()
    assert found["two folders"].detail == {"folder": str(slow)}
