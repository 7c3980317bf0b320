"""A template prepares its ranks: its forks install the same hooks, and say the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.conformance.deadlines import run_process

PREPARED = """
import json, os, sys
import torch.distributed as td, torch.optim.optimizer, torch.utils.data.dataloader as data
from jupyter_dist.worker import autolog
from jupyter_dist.worker.output import events

def hooked():
    functions = [td.all_reduce, td.distributed_c10d.all_reduce, data.DataLoader.__iter__]
    return [sorted(getattr(function, "_jupyter_dist", ())) for function in functions]

{before}
autolog.prepare()
prepared = hooked()
pid = os.fork()
if pid == 0:
    events.open_writer("events.jsonl")
    autolog.install()
    same = hooked()
    autolog.install()
    print(json.dumps([prepared, same, hooked()]), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""


def run(folder: Path, before: str) -> tuple[list[Any], list[dict[str, Any]]]:
    """Prepare a process whose fork is a rank. Returns the hooks of both, and the rank's events."""
    done = run_process([sys.executable, "-c", PREPARED.format(before=before)], cwd=folder, check=True)
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return json.loads(done.stdout), events


@pytest.mark.needs("torch")
def test_a_rank_keeps_what_was_prepared(tmp_path: Path) -> None:
    (prepared, same, again), events = run(tmp_path, "")
    assert prepared == [["jupyter_dist.worker.steps.torch.patch_collectives.<locals>.<lambda>"]] * 2 + [
        ["jupyter_dist.worker.steps.torch.patch_loader.<locals>.<lambda>"]
    ]
    # The hints depend on the cell, so the rank adds theirs.
    assert same[:2] == again[:2] == prepared[:2]
    assert same[2] == again[2]
    assert {*same[2]} > {*prepared[2]}
    assert events == []


def test_hooks_of_imported_modules_run_from_the_inside() -> None:
    """The hooks of `keras` wrap what that of its trainer has made. A set would have any order."""
    code = "from jupyter_dist.worker import autolog; print(*autolog._finder._names)"
    for seed in ("1", "2", "3"):
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        names = subprocess.check_output([sys.executable, "-c", code], text=True, env=environ).split()
        assert names.index("keras.src.backend.tensorflow.trainer") < names.index("keras")


@pytest.mark.needs("torch")
def test_a_rank_itself_says_what_a_version_lacks(tmp_path: Path) -> None:
    (prepared, same, _), events = run(tmp_path, "del data._BaseDataLoaderIter")
    assert prepared[2] == []
    assert same[2]
    own = "Measuring how long steps wait for a DataLoader is off here."
    assert any(event["text"].startswith(own) for event in events)


AGAIN = """
import importlib, torch.utils.data.dataloader as module
from jupyter_dist.worker import autolog

for _ in range(2):
    autolog.install()
    print("_jupyter_dist" in vars(module.DataLoader.__iter__))
    importlib.reload(module)
    print("_jupyter_dist" in vars(module.DataLoader.__iter__))
"""


@pytest.mark.needs("torch")
def test_a_module_that_a_cell_reloads_is_patched_again(tmp_path: Path) -> None:
    """A later cell calls no hook for a module that an earlier cell has patched."""
    done = run_process([sys.executable, "-c", AGAIN], cwd=tmp_path, check=True)
    assert done.stdout.split() == ["True"] * 4
