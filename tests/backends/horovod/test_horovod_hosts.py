"""Horovod on hosts that have our agent, without horovodrun: fixed ranks, and ranks that go and come."""

from __future__ import annotations

import itertools
import os
import re
import signal
import sys
import threading
from typing import Any

import pytest

from jupyter_dist.backends.ssh.backend import Ssh
from jupyter_dist.errors import InputError
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import State
from jupyter_dist.record import reader
from jupyter_dist.showing.run import Run
from jupyter_dist.worker import payload as container
from jupyter_dist.worker.horovod.rendezvous_store import Store, put, wait_until_served
from tests.rigs.hosts import Hosts
from tests.rigs.launching import ended, launch_cell, results, story
from tests.rigs.plain_http import ask
from tests.rigs.stopwatch import Stopwatch, WaitFor

pytestmark = pytest.mark.usefixtures("warm")

needs_horovod = pytest.mark.needs("horovod", "torch")

STATIC = """
import os, time
import torch, horovod.torch as hvd

if os.environ["RANK"] == "0":
    time.sleep(3)  # the others come first, and wait longer than Horovod asks a store that is not there
found = []
for _ in range(2):
    hvd.init()
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for step in range(20):
        optimizer.zero_grad()
        model(torch.full((4, 8), 1.0 + hvd.rank())).sum().backward()
        optimizer.step()
    found.append(model.weight.detach().flatten().tolist())
    place = hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()
    hvd.shutdown()
place, found, os.uname().nodename, int(os.environ["RANK"])
"""


ELASTIC = """
import os, time, torch, horovod.torch as hvd

hvd.init()
torch.set_num_threads(1)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

@hvd.elastic.run
def train(state):
    while not done() and state.step < 3000:
        print(f"step {state.step} as {hvd.rank()} of {hvd.size()}, process {os.getpid()}", flush=True)
        optimizer.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
        state.step += 1
        time.sleep(0.05)
        state.commit()
    return state.step

# Whether to end has to be the same for all: what rank 0 sees counts.
def done():
    there = torch.tensor(float(os.path.exists("done")))
    return hvd.broadcast(there, root_rank=0, name="done").item() > 0

state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0)
steps = train(state)
weights = [w.tolist() for w in model.parameters()]
{"steps": steps, "size": hvd.size(), "weights": weights, "environment": os.environ["WORLD_SIZE"]}
"""


@needs_horovod
@pytest.mark.parametrize("hosts", [2], indirect=True)
def test_ranks_meet_without_horovodrun(hosts: Hosts) -> None:
    """Over two hosts that take different numbers of them, twice in a cell, and whoever comes first."""
    options = {
        "hosts": [{"name": "h1", "slots": 2}, {"name": "h2", "slots": 1}],
        "ssh_config": str(hosts.ssh_config),
        "python": sys.executable,
    }
    folder = launch_cell("ssh", STATIC, 3, options)
    assert ended(folder).state is State.SUCCEEDED, story(folder)
    found = results(folder, 3)
    assert [(place, host, rank) for place, _, host, rank in found] == [
        ((0, 3, 0, 2, 0, 2), "h1", 0),
        ((1, 3, 1, 2, 0, 1), "h1", 1),
        ((2, 3, 0, 1, 1, 2), "h2", 2),
    ]
    weights = [trained for _, trained, _, _ in found]
    assert weights[0] == weights[1] == weights[2]


def test_the_store_forgets_what_all_have_read() -> None:
    """A rank that is done early leaves its address to the others; the next time it has another one."""
    store = Store("127.0.0.1", 0)
    wait_until_served("127.0.0.1", store.port, 10)
    for key in ("rank_0", "0", "rank_1", "1"):
        put("127.0.0.1", store.port, "global", key, key.encode())
    store.leave("global", "0")
    assert store.get("global", "0") == b"0"
    store.leave("global", "1")
    assert [store.get("global", key) for key in ("rank_0", "0", "1")] == [None] * 3
    put("127.0.0.1", store.port, "global", "0", b"new")
    store.leave("global", "1")
    assert store.get("global", "0") == b"new"
    for path in ("/global", "/a/b/c", "/"):
        assert ask(store.port, "GET", path)[0] == 400
    port = store.port
    store.shutdown()
    store.server_close()
    with pytest.raises(TimeoutError, match=r"could not reach rank 0 at 127\.0\.0\.1"):
        wait_until_served("127.0.0.1", port, 0.1)


def _lines(folder: RunFolder, seat: int) -> list[tuple[int, int, int, int]]:
    """What the processes of a seat have printed: step, rank, size, process."""
    text = reader.output(folder, seat).decode()
    found = re.findall(r"step (\d+) as (\d+) of (\d+), process (\d+)", text)
    return [(int(step), int(rank), int(size), int(pid)) for step, rank, size, pid in found]


def _sizes(folder: RunFolder) -> list[int]:
    """The sizes that seat 0 has seen, in their order."""
    return [size for size, _ in itertools.groupby(line[2] for line in _lines(folder, 0))]


@needs_horovod
@pytest.mark.parametrize("hosts", [3], indirect=True)
def test_hosts_go_and_come(hosts: Hosts, wait_for: WaitFor) -> None:
    """A host is cut off: the others go on from the last commit, in seconds and not after Gloo's timeout. It
    comes back, the supervisor is killed, a rank dies, and the run goes on each time."""
    options = {
        "hosts": [{"name": name, "slots": 1} for name in hosts.names],
        "ssh_config": str(hosts.ssh_config),
        "python": sys.executable,
        "min_np": 1,
        "grace": 20,
    }
    source = ELASTIC.replace('"done"', repr(f"{hosts.home}/done"))
    folder = launch_cell("ssh", source, 3, options)

    def reached(*sizes: int) -> None:
        wait_for(lambda: _sizes(folder) == list(sizes) or _over(folder), what=f"sizes {sizes}")
        assert _sizes(folder) == list(sizes), story(folder)
        last = _lines(folder, 0)[-1][0]
        wait_for(lambda: _lines(folder, 0)[-1][0] > last + 5, what="more steps")

    reached(3)
    hosts.cut("h3")
    watch = Stopwatch()
    reached(3, 2)
    assert watch.under(60)
    hosts.mend("h3")
    reached(3, 2, 3)
    supervisor = reader.status(folder).supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    wait_for(lambda: reader.status(folder).state is State.UNWATCHED, what="the end of the supervisor")
    following = threading.Thread(target=Run(folder).wait, args=(100,), daemon=True)
    following.start()
    wait_for(lambda: reader.status(folder).state is State.RUNNING, what="another supervisor")
    reached(3, 2, 3)
    victim = _lines(folder, 1)[-1][3]
    os.kill(next(p.pid for p in hosts.pids("h2") if p.own_pid == victim), signal.SIGKILL)
    reached(3, 2, 3, 2, 3)
    hosts.exec("h1", ["touch", f"{hosts.home}/done"])
    assert ended(folder).state is State.SUCCEEDED, story(folder)
    states = [(rank.host, rank.state) for rank in reader.status(folder).ranks]
    assert states == [
        ("h1", State.SUCCEEDED),
        ("h2", State.SUCCEEDED),
        ("h3", State.LOST),
        ("h3", State.SUCCEEDED),
    ]
    steps = [line[0] for line in _lines(folder, 0)]
    assert sorted(set(steps)) == list(range(steps[-1] + 1)), "no step is missing"
    found = [container.load(folder.rank(0, seat).result) for seat in (0, 1, 3)]
    assert found[0] == found[1] == found[2]
    assert (found[0]["size"], found[0]["environment"]) == (3, "3")


def _over(folder: RunFolder) -> bool:
    return reader.status(folder).state.ended


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"min_np": 3}, "--min-np 3 is more than -np 2"),
        ({"max_np": 1}, "--max-np 1 is less than -np 2"),
        ({"min_np": 1, "ps": 1}, "--min-np cannot be combined with --ps. Ranks of an elastic run have no"),
        ({"min_np": 0}, "greater than or equal to 1"),
        ({"reset_limit": 3}, "--reset-limit works only with --min-np or --max-np"),
        ({"elastic_timeout": 3}, "--elastic-timeout works only with --min-np or --max-np"),
    ],
)
def test_what_no_elastic_run_can_be(options: dict[str, Any], told: str) -> None:
    hosts = [{"name": "localhost", "slots": 2}]
    with pytest.raises((InputError, ValueError), match=told):
        Ssh().check(2, {"hosts": hosts, **options})
