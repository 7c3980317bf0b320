"""Start a cell on a backend without a kernel, wait for its end, and read what the ranks left."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jupyter_dist import backends
from jupyter_dist.capture.payload_builder import capture_cell
from jupyter_dist.conformance.deadlines import wait_until
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import State, Status
from jupyter_dist.launch import submission, template
from jupyter_dist.options import RunOptions
from jupyter_dist.record import reader
from jupyter_dist.worker import payload as container

__all__ = [
    "carrier_of",
    "ended",
    "launch_cell",
    "launcher_log",
    "logs",
    "only_child",
    "open_files",
    "parent_of",
    "rank_pids",
    "results",
    "story",
    "until",
    "until_up",
]


def launch_cell(
    backend: str,
    source: str,
    np: int = 2,
    options: Mapping[str, Any] | None = None,
    names: dict[str, Any] | None = None,
    **wanted: Any,
) -> RunFolder:
    """Start a run with these `RunOptions`; returns while it runs. It is cold without the fixture `warm`."""
    payload = capture_cell(source, names or {}, label="In[1]", directory=Path.cwd())
    model = backends.load(backend).options.model_validate(dict(options or {}))
    run = RunOptions(**{"cold": not template.wanted(), **wanted})
    request = submission.Request(backend, np, source, "In[1]", model.model_dump(mode="json"), run)
    return submission.launch(request, payload)


def ended(folder: RunFolder) -> Status:
    """Wait for the run's end."""
    return until(folder, lambda status: status.state.ended, "the run's end")


def until(folder: RunFolder, holds: Callable[[Status], Any], what: str) -> Status:
    """Wait until `holds` is true of the run's state, and return that state.

    Lines of a rank and the state of a run come by different ways, and the lines often come first. A test that
    waited for lines must not read the state at once: it waits here for what it needs of both. Fails at once,
    with the story, if the run has ended and the condition does not hold.
    """

    def seen() -> Status | None:
        status = reader.status(folder)
        if holds(status):
            return status
        assert not status.state.ended, f"the run has ended before {what}\n{story(folder)}"
        return None

    status = wait_until(seen, what, lambda: story(folder))
    assert status is not None
    return status


def until_up(folder: RunFolder, np: int = 2, line: str = "up") -> Status:
    """Wait until every rank has printed the line, and the state says that all run, in which processes."""

    def up(status: Status) -> bool:
        running = [rank.rank for rank in status.ranks if rank.state is State.RUNNING and rank.pid is not None]
        here = status.state is State.RUNNING and running == list(range(np))
        return here and all(line in logs(folder, rank) for rank in running)

    return until(folder, up, "every rank to be up")


def rank_pids(folder: RunFolder, np: int = 2) -> list[int]:
    """Wait until every rank has printed "up", and return their pids."""
    return [rank.pid for rank in until_up(folder, np).ranks if rank.pid is not None]


def only_child(parent: int, word: str) -> int:
    """Wait until exactly one child of a process has the word in its command line, and return its pid."""

    def children() -> list[int]:
        found = []
        for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            # A child that is started looks like its parent until it is another program, and may be gone.
            with contextlib.suppress(OSError):
                if word.encode() in Path("/proc", pid, "cmdline").read_bytes():
                    found.append(int(pid))
        return found

    def only() -> list[int]:
        found = children()
        return found if len(found) == 1 else []

    (pid,) = wait_until(only, f"one child with {word!r}")
    return pid


def carrier_of(folder: RunFolder) -> int:
    """The pid of the process in which the backend of a run lives."""
    wanted = ["-m", "jupyter_dist.supervise.backend_process.server", str(folder.path)]
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (path / "cmdline").read_text().split("\0")[1:4] == wanted:
                found[int(path.name)] = parent_of(int(path.name))
    # A child that it starts looks like itself until it is another program.
    (pid,) = [pid for pid, parent in found.items() if parent not in found]
    return pid


def open_files(pid: int) -> set[str]:
    """What a process has open: paths of files, and names such as "pipe:[7]".

    It opens and closes others while this looks. Raises OSError if the process is gone.
    """
    found = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(path))
    return found


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
