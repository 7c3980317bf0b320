"""An interrupt that arrives while the terminal's command is imported, or before a run's output is shown."""

from __future__ import annotations

import importlib.abc
import sys
import time
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import jupyter_dist
from jupyter_dist import start
from jupyter_dist.folder import runs
from jupyter_dist.job import State
from jupyter_dist.launch import provenance
from jupyter_dist.manage import stop
from jupyter_dist.showing import display
from jupyter_dist.showing.run import Run
from tests.rigs.launching import ended
from tests.rigs.run_maker import RunMaker


def interrupted(*_: object) -> Any:
    raise KeyboardInterrupt


class Interrupts(importlib.abc.MetaPathFinder):
    """The import of a module is interrupted."""

    def __init__(self, module: str, patch: pytest.MonkeyPatch) -> None:
        self._module = module
        package, _, name = module.rpartition(".")
        patch.delitem(sys.modules, module, raising=False)
        patch.delattr(sys.modules[package], name, raising=False)
        patch.setattr(sys, "meta_path", [self, *sys.meta_path])

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == self._module:
            raise KeyboardInterrupt


def test_it_ends_the_terminals_command_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    (script,) = metadata.entry_points(group="console_scripts", name="jupyter-dist")
    main = script.load()
    Interrupts("jupyter_dist.commands", monkeypatch)
    assert main() == 130


def sleep() -> None:
    time.sleep(600)


@pytest.mark.usefixtures("own_folders")
def test_it_stops_a_run_that_is_noted_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "note_down", interrupted)
    with pytest.raises(KeyboardInterrupt):
        jupyter_dist.run(sleep, np=1, detach=True)
    (folder,) = runs()
    assert ended(folder).state is State.STOPPED


@pytest.mark.parametrize("restarts", [False, True])
def test_it_stops_a_run_that_is_not_shown_yet(
    restarts: bool, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jupyter also interrupts a kernel that it restarts. The run outlives that."""
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(stop, "stop", lambda _, **how: asked.append(how))
    monkeypatch.setattr(display, "in_kernel", lambda: restarts)
    monkeypatch.setattr(display, "_shell", lambda: SimpleNamespace(exit_now=True))
    Interrupts("jupyter_dist.showing.live", monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        start.finish(Run(RunMaker(own_folders).folder))
    assert asked == ([] if restarts else [{"interrupt": True}])
