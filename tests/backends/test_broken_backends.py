"""Backends of other packages whose code fails or hangs: they cost nothing but themselves."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist import backends, queries
from jupyter_dist.backends import detection
from jupyter_dist.commands import dispatch
from jupyter_dist.commands.run_commands import Context
from jupyter_dist.errors import BrokenBackend, InputError, MissingEngine
from jupyter_dist.launch import template
from jupyter_dist.plan.run_plan import make_plan, read_command_line
from jupyter_dist.queries.answers.forms import Backend
from jupyter_dist.record import reader
from tests.rigs.launching import launch_cell
from tests.rigs.stopwatch import Stopwatch

GOOD = """
from jupyter_dist.backends import Capabilities, Options

class Made:
    name = "made"
    options = Options
    capabilities = Capabilities()
    poll_interval_s = 0.1

    def default_np(self):
        return 2

    def check(self, world_size, options):
        return []

    def detect(self):
        return {"answer": 42}
"""
BROKEN = {
    "exits": ("import sys\nsys.exit(3)", "SystemExit: 3"),
    "garbled": ("def (", "SyntaxError"),
    "empty": ("", "has no attribute 'Made'"),
    "divides": ("1 / 0", "ZeroDivisionError: division by zero"),
    "deeper": ("class Odd(BaseException): pass\nraise Odd('deep down')", "Odd: deep down"),
    "function": ("def Made(): pass", "is not a class"),
    "bare": ("class Made: pass", "has no `options`"),
    "unmade": (GOOD + "\n    def __init__(self):\n        raise SystemExit('no!')\n", "SystemExit: no!"),
    "blind": (GOOD.replace("return {", "raise OSError('no GPU driver')  # {"), "OSError: no GPU driver"),
    "no_json": (GOOD.replace('{"answer": 42}', '{"answer": object()}'), "not JSON serializable"),
}
LIBRARY = "raise ImportError('libcudart.so.12: cannot open shared object file')"
HANGS = GOOD.replace('return {"answer": 42}', "import threading; threading.Event().wait()")
THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"


@pytest.fixture
def strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Install backends, each a module of its own: `strangers(name=source)`."""
    site = tmp_path / "site"
    info = site / "strangers-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strangers\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)  # for the processes we start
    monkeypatch.setattr(detection, "_asked", {})

    def install(**sources: str) -> None:
        for name, source in sources.items():
            (site / f"stranger_{name}.py").write_text(source)
        lines = [f"{name} = stranger_{name}:Made" for name in sources]
        (info / "entry_points.txt").write_text("\n".join(["[jupyter_dist.backends]", *lines, ""]))
        importlib.invalidate_caches()
        backends._table.cache_clear()

    yield install
    backends._table.cache_clear()


def rows() -> dict[str, tuple[str, str]]:
    return {name: (state, found) for name, state, found in dispatch("backends", Context()).rows}


def shown() -> dict[str, Backend]:
    found = queries.backends()
    json.dumps(found, allow_nan=False)
    return {row["name"]: row for row in found}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_with_a_backend_is_said_and_the_others_go_on(
    strangers: Callable[..., None], name: str
) -> None:
    source, said = BROKEN[name]
    strangers(**{name: source, "sound": GOOD})
    listed = rows()
    state, found = listed[name]
    assert state == "broken"
    assert said in found
    assert listed["sound"] == ("ready", "answer 42")
    assert listed["local"][0] == "ready"
    cards = shown()
    assert said in str(cards[name]["problem"])
    assert cards["sound"]["available"]
    assert cards["local"]["detail"]["cores"] >= 1


def test_a_library_that_is_missing_is_named_with_what_to_install(strangers: Callable[..., None]) -> None:
    strangers(clib=LIBRARY)
    assert rows()["clib"][0] == "not installed"
    card = shown()["clib"]
    assert not card["available"]
    assert card["install"] == "pip install --upgrade strangers"
    with pytest.raises(MissingEngine, match=r"libcudart\.so\.12.*: pip install --upgrade strangers"):
        backends.load("clib")


def test_a_run_on_it_says_so(strangers: Callable[..., None]) -> None:
    strangers(exits=BROKEN["exits"][0])
    with pytest.raises(BrokenBackend, match=r"^backend 'exits' is broken \(SystemExit: 3\): pip install"):
        make_plan({"backend": "exits"})


def test_messages_about_others_go_on(strangers: Callable[..., None]) -> None:
    strangers(**{name: source for name, (source, _) in BROKEN.items()})
    with pytest.raises(InputError, match="--nothing"):
        read_command_line("--nothing")
    with pytest.raises(InputError, match=r"Backends with hosts: .*ssh"):
        make_plan({"hosts": "a,b"})


def test_an_interrupt_is_the_users(strangers: Callable[..., None]) -> None:
    strangers(stopped="raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        backends.declared("stopped")


def test_one_that_hangs_is_waited_for_once(
    strangers: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every backend is imported and asked once. Then only the two that hang need their 5 s.
    monkeypatch.setattr(detection, "_LIMIT_S", 600.0)
    strangers(sound=GOOD)
    assert shown()["sound"]["available"]
    monkeypatch.setattr(detection, "_LIMIT_S", 5.0)
    strangers(hangs=HANGS, hung="import threading\nthreading.Event().wait()", sound=GOOD)
    watch = Stopwatch()
    cards = shown()
    assert watch.under(10), "they are asked side by side"
    assert cards["hangs"]["available"], "its flags and form are known"
    assert not cards["hung"]["available"]
    for name in ("hangs", "hung"):
        assert "has not reported its resources for 5 s" in str(cards[name]["problem"])
    assert cards["sound"]["detail"] == {"answer": 42}
    watch = Stopwatch()
    assert rows()["hangs"][0] == "broken"
    assert shown()["local"]["available"]
    assert watch.under(5), "it is not waited for again"


def test_a_run_still_starts_warm(
    strangers: Callable[..., None], wait_for: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = {name: source for name, (source, _) in BROKEN.items()}
    strangers(**broken, threads=THREAD + GOOD, clib=LIBRARY)
    template.close()
    monkeypatch.setattr(template, "wanted", lambda: True)
    try:
        folder = launch_cell("local", "1 + 1", 1, cold=False)
        wait_for(lambda: reader.status(folder).state.ended, "the run's end")
    finally:
        template.close()
    assert reader.status(folder).warm, folder.supervisor_log.read_text()


def test_each_run_has_an_object_of_its_own() -> None:
    assert backends.load("local") is not backends.load("local")
    assert backends.declared("local") is backends.declared("local")
