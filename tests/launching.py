"""Start a cell on a backend without a kernel, wait for its end, and read what the ranks left."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_dist import backends
from jupyter_dist.capture.capturing import capture_cell
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Status
from jupyter_dist.launch import submission
from jupyter_dist.options import RunOptions
from jupyter_dist.record import reader
from jupyter_dist.worker import payload as container

__all__ = ["carrier_of", "ended", "launch_cell", "launcher_log", "logs", "parent_of", "results", "story"]


def launch_cell(
    backend: str,
    source: str,
    np: int = 2,
    options: Mapping[str, Any] | None = None,
    names: dict[str, Any] | None = None,
    **wanted: Any,
) -> RunFolder:
    """Start a run with these `RunOptions`, cold unless they say otherwise; returns while it runs."""
    payload = capture_cell(source, names or {}, label="In[1]", directory=Path.cwd())
    model = backends.load(backend).options.model_validate(dict(options or {}))
    run = RunOptions(**{"cold": True, **wanted})
    request = submission.Request(backend, np, source, "In[1]", model.model_dump(mode="json"), run)
    return submission.launch(request, payload)


def ended(folder: RunFolder, timeout_s: float = 100.0) -> Status:
    """Wait for the run's end."""
    deadline = time.monotonic() + timeout_s
    while not (status := reader.status(folder)).state.ended:
        assert time.monotonic() < deadline, story(folder)
        time.sleep(0.02)
    return status


def carrier_of(folder: RunFolder) -> int:
    """The pid of the process in which the backend of a run lives."""
    wanted = ["-m", "jupyter_dist.supervise.carrier", str(folder.path)]
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (path / "cmdline").read_text().split("\0")[1:4] == wanted:
                found[int(path.name)] = parent_of(int(path.name))
    # A child that it starts looks like itself until it is another program.
    (pid,) = [pid for pid, parent in found.items() if parent not in found]
    return pid


def parent_of(pid: int) -> int:
    """Whose child a process is; 0 where it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def story(folder: RunFolder) -> str:
    """All there is to say of a run that did not end as it should."""
    status = reader.status(folder)
    found = [str(status), folder.supervisor_log.read_text()]
    found += [f"{path.name}: {path.read_text()[-1500:]}" for path in folder.path.glob("attempts/*/launcher*")]
    found += [f"rank {rank.rank}: {reader.output(folder, rank.rank).decode()}" for rank in status.ranks]
    return "\n".join(found)


def launcher_log(folder: RunFolder, attempt: int = 0) -> str:
    return (folder.path / "attempts" / str(attempt) / "launcher.log").read_text()


def logs(folder: RunFolder, rank: int, attempt: int | None = None) -> list[str]:
    return reader.output(folder, rank, attempt).decode().splitlines()


def results(folder: RunFolder, np: int = 2) -> list[Any]:
    return [container.load(folder.rank(0, rank).result) for rank in range(np)]
