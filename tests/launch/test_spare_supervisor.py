"""Supervisors and ranks that are forked before they are needed."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.job import State
from jupyter_dist.launch import template
from jupyter_dist.record import reader
from jupyter_dist.worker.stack_signals import ALL_STACKS_SIGNAL, STACK_SIGNAL
from tests.rigs.launching import launch_cell, open_files, results
from tests.rigs.nvidia import FakeGpus
from tests.rigs.stopwatch import WaitFor

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
    pytest.mark.usefixtures("own_template"),
]


def children(pid: int) -> list[int]:
    """The waiting forks of a process."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):  # others end at any moment, such as nvidia-smi
            if Path(f"/proc/{child}/comm").read_text() == "jdist spare\n":
                found.append(int(child))
    return found


def sockets(pid: int) -> set[str]:
    with contextlib.suppress(OSError):  # it has ended
        return {name for name in open_files(pid) if name.startswith("socket:")}
    return set()


def spare(wait_for: WaitFor, ranks: int) -> tuple[int, list[int]]:
    """Wait for the spare supervisor of this process's template, and so many ranks below it."""

    def ready() -> tuple[int, list[int]] | None:
        above = template._current().pid
        for supervisor in children(above):
            below = children(supervisor)
            own = sockets(supervisor) - sockets(above)
            # A fork first has its parent's descriptors. With them, the parent would seem to live.
            if len(below) == ranks and own and not any(own & sockets(pid) for pid in below):
                return supervisor, below
        return None

    found: tuple[int, list[int]] = wait_for(ready, f"a supervisor with {ranks} ranks")
    return found


def run(wait_for: WaitFor, ranks: int, source: str = "import os\nos.getpid()") -> tuple[int, list[Any]]:
    """Run a cell. Returns the supervisor's pid, and the results."""
    folder = launch_cell("local", source, ranks, cold=False)
    wait_for(lambda: reader.status(folder).state.ended, "the run's end")
    status = reader.status(folder)
    assert (status.state, status.warm) == (State.SUCCEEDED, True), status.reason
    assert status.supervisor is not None
    return status.supervisor.pid, results(folder, ranks)


def is_gone(pid: int) -> bool:
    return reader.start_ticks(pid) is None


def test_a_request_that_comes_before_a_rank_begins_does_not_end_it(wait_for: WaitFor) -> None:
    _, below = spare(wait_for, 2)
    for pid in below:
        for signum in (signal.SIGINT, signal.SIGHUP, STACK_SIGNAL, ALL_STACKS_SIGNAL):
            os.kill(pid, signum)
    assert sorted(run(wait_for, 2)[1]) == sorted(below)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_run_uses_what_is_there(ranks: int, wait_for: WaitFor) -> None:
    supervisor, below = spare(wait_for, 2)
    its_supervisor, pids = run(wait_for, ranks)
    assert its_supervisor == supervisor
    assert set(pids[:2]) <= set(below)
    assert len(set(pids)) == ranks
    wait_for(lambda: all(map(is_gone, [supervisor, *below])), "the end of all of them")
    # The next run probably has as many ranks.
    spare(wait_for, ranks)


def test_a_cold_run_leaves_no_rank_waiting(wait_for: WaitFor) -> None:
    supervisor, below = spare(wait_for, 2)
    folder = launch_cell("torchrun", "import time\nwhile True: time.sleep(1)", 2, cold=False)
    wait_for(lambda: reader.status(folder).state is State.RUNNING, "its ranks")
    status = reader.status(folder)
    assert status.supervisor is not None
    assert status.supervisor.pid == supervisor
    assert all(map(is_gone, below))
    os.kill(supervisor, signal.SIGKILL)
    wait_for(lambda: not any(rank.pid and not is_gone(rank.pid) for rank in status.ranks), "the ranks' end")


def test_an_import_replaces_them(wait_for: WaitFor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "late.py").write_text("import os\nimported_by = os.getpid()")
    monkeypatch.syspath_prepend(tmp_path)
    supervisor, below = spare(wait_for, 2)
    template._current().preload(["late"])
    wait_for(lambda: all(map(is_gone, [supervisor, *below])), "the end of those without the import")
    fresh, _ = spare(wait_for, 2)
    its_supervisor, found = run(wait_for, 2, "import late\nlate.imported_by")
    assert its_supervisor == fresh
    assert found == [template._current().pid] * 2


@pytest.mark.parametrize("killed", ["supervisor", "a rank", "all ranks"])
def test_a_start_survives_their_death(killed: str, wait_for: WaitFor) -> None:
    supervisor, below = spare(wait_for, 2)
    victims = {"supervisor": [supervisor], "a rank": below[:1], "all ranks": below}[killed]
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda pid=pid: is_gone(pid), "its death")
    _, pids = run(wait_for, 2)
    assert not set(pids) & set(victims)


def test_they_end_with_the_template(wait_for: WaitFor) -> None:
    supervisor, below = spare(wait_for, 2)
    os.kill(template._current().pid, signal.SIGKILL)
    wait_for(lambda: all(map(is_gone, [supervisor, *below])), "the end of all of them")


def test_numbers_differ_although_all_have_waited(wait_for: WaitFor) -> None:
    spare(wait_for, 2)
    _, first = run(wait_for, 2, "import random\nrandom.random()")
    spare(wait_for, 2)
    _, second = run(wait_for, 2, "import random\nrandom.random()")
    assert len({*first, *second}) == 4


def test_the_gpus_are_known_before_a_run(wait_for: WaitFor, fake_gpus: FakeGpus) -> None:
    fake_gpus.are(2)

    def calls() -> int:
        return fake_gpus.calls.read_text().count("\n") if fake_gpus.calls.exists() else 0

    supervisor, _ = spare(wait_for, 2)
    wait_for(lambda: calls() == 1, "the question of the supervisor that waits")
    its_supervisor, seen = run(wait_for, 2, "import os\nos.environ['CUDA_VISIBLE_DEVICES']")
    assert its_supervisor == supervisor
    assert seen == ["0", "1"]
    wait_for(lambda: calls() > 1, "the question of the next supervisor")
    assert calls() == 2
