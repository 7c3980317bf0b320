"""Runs of the backend `local`, and the processes that they consist of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Status
from jupyter_dist.record import reader
from tests.rigs.launching import ended, launch_cell


def start(source: str, np: int = 2, names: dict[str, Any] | None = None, **request: Any) -> RunFolder:
    """Start a run of the local backend; returns while it runs."""
    return launch_cell("local", source, np, names=names, **request)


def run(source: str, **options: Any) -> tuple[RunFolder, Status]:
    folder = start(source, **options)
    return folder, ended(folder)


def gone(*pids: int) -> bool:
    return all(reader.start_ticks(pid) is None for pid in pids)


def supervisor_pid(folder: RunFolder) -> int:
    supervisor = reader.status(folder).supervisor
    assert supervisor is not None
    return supervisor.pid


def children_of(pid: int) -> list[int]:
    """Its living children, zombies left out."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in listed if reader.start_ticks(int(child)) is not None]


UP = "import time\nprint('up')\ntime.sleep(600)"
