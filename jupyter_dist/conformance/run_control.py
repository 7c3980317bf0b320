"""Control of the suite's runs: start, wait with a deadline, and clean-up."""

from __future__ import annotations

import contextlib
import json
import linecache
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from .. import start
from ..folder import find
from ..job import State
from ..options import RunOptions
from ..plan import run_plan
from ..record import reader
from ..showing.run import Run
from . import deadlines
from .deadlines import Deadline, run_process
from .target import Target

__all__ = ["Runs", "assert_state", "notebook", "processes_of", "story", "wait_for_end", "wait_until"]

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T], what: str, run: Run, patience_s: float = deadlines.PATIENCE_S
) -> T:
    """Call `condition` until it is true, and return its value. A failure shows the story of the run."""
    return deadlines.wait_until(condition, what, lambda: story(run), patience_s)


def wait_for_end(run: Run, patience_s: float = deadlines.PATIENCE_S) -> Run:
    """Wait for the end of a run, and return it. Fails the test after the deadline, with the run's story."""
    deadline = Deadline(patience_s)
    while True:
        try:
            return run.wait(deadline.left_s())
        except TimeoutError as error:
            if deadline.passed():
                pytest.fail(f"{error}\n{story(run)}")


def notebook(source: str) -> dict[str, Any]:
    """Return the namespace of a notebook in which this cell has run."""
    filename = f"/conformance/{abs(hash(source))}.py"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, filename, "exec"), names)
    return names


class Runs:
    """Runs of one target, in a folder of their own."""

    def __init__(self, target: Target, folder: Path) -> None:
        self.target = target
        self.folder = folder
        self.cwd = folder / "cwd"
        self.cwd.mkdir(parents=True)
        self._started: list[Run] = []

    def given(self, **flags: Any) -> dict[str, Any]:
        """Return the flags of a run by field name."""
        target = self.target
        return {"backend": target.backend, "np": target.np, "cold": target.cold, **target.flags, **flags}

    def plan(self, **flags: Any) -> tuple[run_plan.Plan, start.Origin]:
        plan = run_plan.make_plan(self.given(**flags), spelled_as_flags=False, cluster=False)
        return plan, start.Origin("In[1]", self.cwd)

    @contextlib.contextmanager
    def here(self) -> Any:
        """Enter this folder, like a notebook in it."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JUPYTER_DIST_RUNS", str(self.folder / "runs"))
            patch.delenv("PYTHONUNBUFFERED", raising=False)  # it would also disable the buffers of C
            patch.chdir(self.cwd)
            patch.setattr(sys, "path", [str(self.cwd), *sys.path])
            yield

    def start(self, source: str, names: Mapping[str, Any] | None = None, **flags: Any) -> Run:
        """Start a run of a cell. Does not wait for the run."""
        plan, origin = self.plan(**flags)
        with self.here():
            run = start.start_cell(source, dict(names or {}), plan, origin)
        self._started.append(run)
        return run

    def finish(self, source: str, names: Mapping[str, Any] | None = None, **flags: Any) -> Run:
        """Start a run and wait for its end, in whatever state."""
        return self.wait(self.start(source, names, **flags))

    def wait(self, run: Run) -> Run:
        """Wait for the end of a run, in whatever state."""
        return wait_for_end(run, self.target.patience_s)

    def until_up(self, run: Run) -> Run:
        """Wait until every rank has printed "up" and the state is running."""

        def up() -> bool:
            status = run.status
            if status.state.ended:
                pytest.fail(f"the run has ended before its ranks were up\n{story(run)}")
            ranks = [rank.rank for rank in status.ranks if rank.state is State.RUNNING]
            said = [rank for rank in ranks if "up" in reader.output(run.folder, rank).decode().split()]
            return said == list(range(run.job.world_size))

        wait_until(up, "every rank to run and to print its first line", run, self.target.patience_s)
        return run

    def elsewhere(self, script: str, *arguments: str, **given: Any) -> str:
        """Run a script in a process of its own until it ends, and return what it printed.

        The script gets `given`, the keywords of `jupyter_dist.run`, as JSON on stdin, because they may be
        secret.
        """
        path = self.cwd / "script.py"
        path.write_text(script)
        own = {name: given.pop(name) for name in list(given) if name not in RunOptions.model_fields}
        with self.here():
            done = run_process(
                [sys.executable, str(path), *arguments],
                input=json.dumps({**given, "options": own}),
                patience_s=self.target.patience_s,
            )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def adopt(self, run_id: str) -> Run:
        """Return a run that another process has started here."""
        run = Run(find(run_id, self.folder / "runs"))
        self._started.append(run)
        return run

    def gone(self, *processes: tuple[str, int]) -> None:
        """Fail the test unless these processes (host, pid) end soon."""

        def left() -> list[tuple[str, int]]:
            return [process for process in processes if self.target.runs_on(*process)]

        def told() -> str:
            return f"still there: {left()}"

        deadlines.wait_until(lambda: not left(), "the end of these", told, self.target.patience_s)

    def close(self) -> None:
        """End what still runs. Fails the test if a run that has ended left a process on this machine."""
        for run in self._started:
            run.stop(kill=True)
        deadlines.wait_until(
            lambda: not self._leftovers(),
            "the end of the processes of runs that have ended",
            self._kill_leftovers,
            self.target.patience_s,
        )

    def _kill_leftovers(self) -> str:
        left = self._leftovers()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return "\n".join(f"  {pid}: {command}" for pid, command in left.items())

    def _leftovers(self) -> dict[int, str]:
        return processes_of([run.id for run in self._started])


def processes_of(run_ids: list[str]) -> dict[int, str]:
    """Return processes on this machine that belong to these runs, by environment, arguments or open files."""
    markers = [run_id.encode() for run_id in run_ids]
    found: dict[int, str] = {}
    if not os.path.isdir("/proc") or not markers:
        return found
    for entry in os.listdir("/proc"):
        # Processes start and end during the loop, and those of other users cannot be read.
        with contextlib.suppress(OSError):
            if not entry.isdigit() or int(entry) == os.getpid() or reader.start_ticks(int(entry)) is None:
                continue
            place = Path("/proc", entry)
            command = (place / "cmdline").read_bytes()
            said = [command, (place / "environ").read_bytes()]
            for fd in (place / "fd").iterdir():
                with contextlib.suppress(OSError):
                    said.append(os.fsencode(os.readlink(fd)))
            if any(marker in text for marker in markers for text in said):
                found[int(entry)] = command.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


def story(run: Run) -> str:
    """Return what a failed test shows of a run."""
    status = run.status
    parts = [f"run {run.id} is {status.state}, attempt {status.attempt}: {status.reason}"]
    parts += [
        f"  rank {r.rank} {r.state} pid={r.pid} host={r.host} exit={r.exit_code} signal={r.signal}"
        for r in status.ranks
    ]
    for path in sorted(run.folder.path.rglob("*.log")):
        with contextlib.suppress(OSError):
            tail = path.read_bytes()[-1500:].decode(errors="replace").strip()
            if tail:
                parts.append(f"--- {path.relative_to(run.folder.path)}\n{tail}")
    return "\n".join(parts)


def assert_state(run: Run, state: State) -> None:
    """Check that the run has ended in this state. Otherwise the test fails with the run's story."""
    if run.state is not state:
        pytest.fail(f"expected {state}\n{story(run)}")
