"""A session of a run's own on two machines that share no disk."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from jupyter_dist.folder import RunFolder
from jupyter_dist.job import State
from jupyter_dist.record import reader
from tests.rigs import spark_rig
from tests.rigs.hosts import Hosts
from tests.rigs.launching import ended, launch_cell, logs, story
from tests.rigs.stopwatch import WaitFor

pytestmark = [
    pytest.mark.skipif(spark_rig.missing() is not None, reason=str(spark_rig.missing())),
]

TELLS = """
import json, os, socket, time
names = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "X_SECRET")
print(json.dumps([socket.gethostname(), *(os.environ[name] for name in names)]))
for number in range(20_000):
    print(number)
print("up", flush=True)
time.sleep(600)
"""


def _up(run: RunFolder, wait_for: WaitFor) -> list[int]:
    """Wait until both ranks have printed; their pids on their machines."""

    def up() -> list[int] | None:
        status = reader.status(run)
        assert not status.state.ended, story(run)
        pids = [rank.pid for rank in status.ranks if rank.pid is not None]
        all_up = all("up" in logs(run, rank.rank) for rank in status.ranks)
        return pids if all_up and len(pids) == len(status.ranks) else None

    found: list[int] = wait_for(up)
    return found


@pytest.mark.parametrize("hosts", [["h1", "h2"]], indirect=True)
def test_two_machines_and_the_loss_of_one(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_for: WaitFor
) -> None:
    """In a session of the run's own."""
    monkeypatch.setenv("SPARK_LOCAL_IP", hosts.driver_address)
    with spark_rig.standalone(tmp_path, hosts.driver_address, {"h1": 2, "h2": 1}, hosts) as master:
        run = launch_cell(
            "spark",
            TELLS,
            np=3,
            options={"master": master, "python": sys.executable, "conf": spark_rig.SMALL},
            env={"X_SECRET": "from the notebook"},
        )
        _up(run, wait_for)
        told = [json.loads(logs(run, rank)[0]) for rank in range(3)]
        assert [line for rank in range(3) for line in logs(run, rank)[1:20_001]] == [
            str(number) for _ in range(3) for number in range(20_000)
        ]
        # Which of the two machines is the first is Spark's choice.
        first = told[0][0]
        sizes = {"h1": 2, "h2": 1}
        address = hosts.address(first)
        expected: list[list[str]] = []
        for node, name in enumerate((first, "h2" if first == "h1" else "h1")):
            for local in range(sizes[name]):
                rank = len(expected)
                numbers = map(str, (rank, local, sizes[name], 3, node))
                expected.append([name, *numbers, address, "from the notebook"])
        assert told == expected
        assert [rank.host for rank in reader.status(run).ranks] == [line[0] for line in told]
        for process in hosts.pids("h2"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        status = ended(run)
        assert status.state is State.FAILED
        assert "host h2 was lost: Spark says: ExecutorLostFailure" in str(status.reason), story(run)
        wait_for(lambda: not [p for p in hosts.pids("h1") if "jupyter_dist" in " ".join(p.argv)])
