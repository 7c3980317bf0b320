"""torchrun over hosts with real sshd: one launcher on each, and a run that goes on when a host is lost."""

from __future__ import annotations

import os
import re
import signal
import sys
from typing import Any

import pytest

from jupyter_dist.backends.torchrun.backend import Torchrun
from jupyter_dist.backends.torchrun.options import TorchrunOptions, layout
from jupyter_dist.errors import InputError
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Job, State
from jupyter_dist.record import reader
from jupyter_dist.worker import payload as container
from tests.rigs.hosts import Hosts
from tests.rigs.launching import launch_cell, story
from tests.rigs.stopwatch import WaitFor

pytestmark = pytest.mark.needs("torch")


def options(names: str = "h1:2,h2:2", **more: Any) -> TorchrunOptions:
    hosts = [name.partition(":") for name in names.split(",")]
    return TorchrunOptions(hosts=tuple({"name": n, "slots": int(s or 1)} for n, _, s in hosts), **more)


def start(hosts: Hosts, source: str, np: int, **more: Any) -> RunFolder:
    asked = options(",".join(hosts.names), python=sys.executable, ssh_config=str(hosts.ssh_config), **more)
    return launch_cell("torchrun", source, np, asked.model_dump(mode="json"))


@pytest.mark.parametrize(
    ("np", "more", "per_node", "nodes"),
    [
        (None, {}, (2, 2), "2"),
        (4, {}, (2, 2), "2"),
        (3, {}, (2, 1), "2"),
        (2, {}, (2,), "1"),
        (None, {"nproc_per_node": 3}, (3, 3), "2"),
        (3, {"nproc_per_node": 3}, (3,), "1"),
        (None, {"nnodes": "1:2"}, (2, 2), "1:2"),
        (None, {"nnodes": "1:4"}, (2, 2), "1:2"),
        (None, {"nnodes": "1"}, (2,), "1"),
        (2, {"nnodes": "2"}, (1, 1), "2"),
    ],
)
def test_where_the_ranks_are(
    np: int | None, more: dict[str, Any], per_node: tuple[int, ...], nodes: str
) -> None:
    found = layout(np, options(**more))
    assert (found.per_node, found.nodes) == (per_node, nodes)


@pytest.mark.parametrize(
    ("np", "more", "message"),
    [
        (None, {"nnodes": "3"}, "--nnodes 3 needs more hosts, but only 2 are named"),
        (3, {"nnodes": "2"}, "-np 3 cannot be divided evenly among --nnodes 2"),
        (5, {"nproc_per_node": 2}, "-np 5 is not --nnodes 2 times --nproc-per-node 2, which is 4"),
    ],
)
def test_numbers_that_contradict_each_other(np: int | None, more: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        layout(np, options(**more))


def test_the_request_shows_each_hosts_torchrun() -> None:
    asked = options("h1:2,h2:1", nnodes="1:2").model_dump(mode="json")
    request = Torchrun().request(Job("id", "torchrun", 2, 0.0, "/cwd", "/py", "1", options=asked))
    first, second = (host["argv"] for host in request["hosts"])
    for argv, is_host in ((first, 1), (second, 0)):
        assert argv[argv.index("--rdzv-conf") + 1] == f"last_call_timeout=2,is_host={is_host}"
        assert argv[argv.index("--nnodes") + 1] == "1:2"
        assert argv[argv.index("--max-restarts") + 1] == "1", "one for the host that may be lost"


def test_hosts_come_late_and_are_lost(hosts: Hosts, wait_for: WaitFor) -> None:
    """Two of three hosts begin without the third; it joins them, the others are lost one after the other,
    in the end the one where they meet: four attempts, of which two are restarts as torchrun counts them."""
    source = """
import socket, time
import torch
import jupyter_dist as dist

dist.init()
print("up", dist.world_size())
for step in range(600 if dist.attempt() < 3 else 3):
    total = torch.ones(())
    torch.distributed.all_reduce(total)
    time.sleep(0.1)
total.item(), dist.attempt(), socket.gethostname()
"""

    def up(attempt: int, ranks: int) -> bool:
        logs = [reader.output(folder, rank, attempt) for rank in range(ranks)]
        return logs == [b"up %d\n" % ranks] * ranks or _over(folder)

    folder = start(hosts, source, 3, nnodes="1:3")
    late = wait_for(
        lambda: _running(hosts, "h3", "jupyter_dist.worker.launchers.torchrun_host"), what="the launcher"
    )
    os.kill(late, signal.SIGSTOP)
    wait_for(lambda: up(0, 2), what="two ranks")
    os.kill(late, signal.SIGCONT)
    wait_for(lambda: up(1, 3), what="three ranks")
    assert not _over(folder), story(folder)
    # The one that came last knows nothing of the attempt before.
    os.kill(_running(hosts, "h2", "jupyter_dist.agent"), signal.SIGKILL)
    wait_for(lambda: up(2, 2), what="two ranks again")
    assert not _over(folder), story(folder)
    os.kill(_running(hosts, "h1", "jupyter_dist.agent"), signal.SIGKILL)
    wait_for(lambda: _over(folder), what="the end")
    status = reader.status(folder)
    assert (status.state, status.attempt) == (State.SUCCEEDED, 3), story(folder)
    assert [rank.state for rank in status.ranks] == [State.SUCCEEDED]
    assert container.load(folder.rank(3, 0).result) == (1.0, 3, "h3")
    for name in ("h1", "h2"):
        said = rf"rank \d on {name} was lost; the launcher has started"
        assert re.search(said, folder.supervisor_log.read_text()), story(folder)
    wait_for(lambda: not any(hosts.pids(name) for name in hosts.names), what="the end of all processes")


def _running(hosts: Hosts, name: str, module: str) -> int:
    """The pid here of the first such process on a host; 0 while there is none."""
    return next((process.pid for process in hosts.pids(name) if module in process.argv), 0)


def _over(folder: RunFolder) -> bool:
    return reader.status(folder).state.ended
