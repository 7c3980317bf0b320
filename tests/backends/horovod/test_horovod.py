"""The backend `horovod` with a real Horovod: the loops its users know, elastic runs, and who dies when."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist import backends
from jupyter_dist.backends.horovod.backend import Horovod
from jupyter_dist.backends.horovod.options import HorovodOptions
from jupyter_dist.errors import InputError, MissingEngine
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Job, State, Status
from jupyter_dist.record import reader
from jupyter_dist.record.failures.failures import failures
from jupyter_dist.worker.launchers import fast_horovodrun
from tests.rigs.hosts import Hosts
from tests.rigs.launching import ended, launch_cell, parent_of, results, story, until, until_up
from tests.rigs.stopwatch import WaitFor

pytestmark = pytest.mark.usefixtures("warm")

needs_horovod = pytest.mark.needs("horovod", "torch", "tensorflow", "tf_keras")
mpi = pytest.param("mpi", marks=pytest.mark.needs("horovod with MPI"))

TORCH = """
import hashlib, torch, horovod.torch as hvd
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

hvd.init()
torch.manual_seed(hvd.rank())  # not the same weights, before they are broadcast
torch.set_num_threads(1)
data = TensorDataset(torch.tensor(pixels), torch.tensor(digits))
sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
loader = DataLoader(data, batch_size=64, sampler=sampler)
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size(), momentum=0.5)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
losses = []
for epoch in range(6):
    sampler.set_epoch(epoch)
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    losses.append(hvd.allreduce(loss.detach(), name="loss").item())
weights = b"".join(w.detach().numpy().tobytes() for w in model.parameters())
{"ranks": (hvd.rank(), hvd.size()), "losses": losses, "weights": hashlib.sha256(weights).hexdigest()}
"""

KERAS = """
import hashlib
import horovod.tensorflow.keras as hvd
from tensorflow import keras

hvd.init()
keras.utils.set_random_seed(hvd.rank())
rate = 0.1 * hvd.size()
model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(10)])
model.compile(
    optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(rate, momentum=0.5)),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
mine = slice(hvd.rank(), None, hvd.size())
fitted = model.fit(
    pixels[mine],
    digits[mine],
    batch_size=32,
    epochs=6,
    steps_per_epoch=len(pixels) // 32 // hvd.size(),
    verbose=0,
    callbacks=[
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=2),
    ],
)
weights = b"".join(w.tobytes() for w in model.get_weights())
losses = [float(loss) for loss in fitted.history["loss"]]
{"ranks": (hvd.rank(), hvd.size()), "losses": losses, "weights": hashlib.sha256(weights).hexdigest()}
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
    while state.step < 30 or (not done() and state.step < 3000):
        print(f"step {state.step} of {hvd.size()} ranks, process {os.getpid()}", flush=True)
        optimizer.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
        state.step += 1
        time.sleep(0.02)
        state.commit()
    return state.step

# Whether to end has to be the same for all: what rank 0 sees counts.
def done():
    there = torch.tensor(float(os.path.exists("done")))
    return hvd.broadcast(there, root_rank=0, name="done").item() > 0

state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0)
steps = train(state)
weights = [w.tolist() for w in model.parameters()]
{"steps": steps, "size": hvd.size(), "weights": weights, "token": os.environ.get("TOKEN")}
"""
KERAS_ELASTIC = """
import os, keras, numpy as np, tensorflow as tf, horovod.tensorflow.keras as hvd

hvd.init()
rng = np.random.default_rng(hvd.rank())
x, y = rng.normal(size=(32, 4)), rng.normal(size=(32, 1))
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "relu"), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse")

@hvd.elastic.run
def train(state):
    while state.step < 10 or (not done() and state.step < 3000):
        print(f"step {state.step} of {hvd.size()} ranks, process {os.getpid()}", flush=True)
        model.fit(x, y, batch_size=8, verbose=0)
        state.step += 1
        state.commit()
    return state.step

def done():
    return hvd.broadcast(float(os.path.exists("done")), root_rank=0, name="done") > 0

state = hvd.elastic.KerasState(model, step=0)
steps = train(state)
state = [value.numpy().tolist() for value in (*model.variables, *model.optimizer.variables)]
{"steps": steps, "size": hvd.size(), "updates": int(model.optimizer.iterations), "state": state}
"""
SECRET = f"{secrets.token_hex(8)}'\n$x"
"""Nobody else's, to be looked for in the command lines of all processes."""


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    datasets = pytest.importorskip("sklearn.datasets")
    pixels, digits = datasets.load_digits(return_X_y=True)
    return {"pixels": (pixels / 16).astype("float32"), "digits": digits}


def start(
    source: str, np: int = 2, names: dict[str, Any] | None = None, env: Any = None, **options: Any
) -> RunFolder:
    return launch_cell("horovod", source, np, options, names, env=env or {})


def trained(folder: RunFolder, np: int) -> None:
    assert ended(folder).state is State.SUCCEEDED, story(folder)
    found = results(folder, np)
    assert [result["ranks"] for result in found] == [(rank, np) for rank in range(np)]
    assert len({result["weights"] for result in found}) == 1, "all ranks end with the same weights"
    for result in found:
        assert result["losses"][-1] < result["losses"][0] / 2


@needs_horovod
@pytest.mark.parametrize(("np", "controller"), [pytest.param(2, *mpi.values, marks=mpi.marks), (4, "gloo")])
def test_horovods_torch_loop(np: int, controller: str, data: dict[str, Any]) -> None:
    trained(start(TORCH, np, data, **{controller: True}), np)


@needs_horovod
@pytest.mark.parametrize(("np", "controller"), [(2, "gloo"), pytest.param(2, *mpi.values, marks=mpi.marks)])
def test_horovods_keras_loop(np: int, controller: str, data: dict[str, Any]) -> None:
    folder = start(KERAS, np, data, **{controller: True})
    trained(folder, np)
    for rank in range(np):
        assert "tf_keras" not in reader.output(folder, rank).decode()


@needs_horovod
@pytest.mark.parametrize("hosts", [2], indirect=True)
@pytest.mark.parametrize("controller", ["gloo", mpi])
def test_several_hosts(
    hosts: Hosts, controller: str, data: dict[str, Any], tmp_path: Path, wait_for: WaitFor
) -> None:
    given: dict[str, Any] = {controller: True, "timeline": "timeline.json"}
    given |= {"ssh_config": str(hosts.ssh_config), "python": sys.executable}
    source = TORCH.replace('{"ranks"', 'import os\n{"token": os.environ["TOKEN"], "ranks"')
    places = [{"name": name, "slots": 2} for name in ("h1", "h2")]
    folder = start(source, 4, data, hosts=places, env={"TOKEN": SECRET}, **given)
    trained(folder, 4)
    assert [result["token"] for result in results(folder, 4)] == [SECRET] * 4
    assert [rank.host for rank in reader.status(folder).ranks] == ["h1", "h1", "h2", "h2"]
    assert "ALLREDUCE" in (folder.files / "timeline.json").read_text()
    for name in ("h1", "h2"):
        assert not hosts.exec(name, ["sh", "-c", "ls ~/.cache/jupyter-dist/hosts || true"]).stdout
    # An agent says that it has let go of all, its files and processes, and ends itself after that.
    wait_for(lambda: not [*hosts.pids("h1"), *hosts.pids("h2")], what="the end of the agents")


@needs_horovod
def test_the_rank_that_raises_is_the_root_cause() -> None:
    folder = start(
        """
        import torch, horovod.torch as hvd
        hvd.init()
        if hvd.rank() == 1:
            raise ValueError("only here")
        hvd.allreduce(torch.ones(1))
        """.replace("\n        ", "\n"),
        gloo=True,
    )
    status = ended(folder)
    assert status.state is State.FAILED
    root = failures(folder)[0]
    assert (root.rank, root.type, root.message, root.collateral) == (1, "ValueError", "only here", False)
    assert status.ranks[1].exit_code == 1


WAITING = """
import os, time, torch, horovod.torch as hvd
hvd.init()
print("here", flush=True)
while True:
    hvd.allreduce(torch.ones(1))
    time.sleep(0.02)
"""


@needs_horovod
@pytest.mark.parametrize("controller", ["gloo", mpi])
@pytest.mark.parametrize("victim", ["a rank", "horovodrun", "the supervisor"])
def test_what_is_killed_leaves_nothing_behind(controller: str, victim: str, wait_for: WaitFor) -> None:
    """That no process is left, the fixture `no_leftovers` sees."""
    options: dict[str, Any] = {controller: True}
    folder = start(WAITING, **options)
    status = until_up(folder, line="here")
    assert status.supervisor is not None
    if victim == "the supervisor":
        os.kill(status.supervisor.pid, signal.SIGKILL)
        wait_for(lambda: reader.status(folder).state.ended, what="the run's end")
        assert reader.status(folder).state is State.LOST
        return
    if victim == "a rank":
        assert status.ranks[1].pid is not None
        os.kill(status.ranks[1].pid, signal.SIGKILL)
    else:
        os.kill(_launcher_of(status.supervisor.pid), signal.SIGKILL)
    status = ended(folder)
    assert status.state is State.FAILED
    assert status.reason is not None
    if victim == "a rank":
        assert (status.ranks[1].state, status.ranks[1].signal) == (State.FAILED, signal.SIGKILL)
        assert (failures(folder)[0].rank, failures(folder)[0].signal) == (1, signal.SIGKILL)
    assert {rank.state.ended for rank in status.ranks} == {True}


def _launcher_of(supervisor: int) -> int:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if parent_of(int(entry.name)) == supervisor and (b"_horovodrun" in words or b"mpirun" in words):
                return int(entry.name)
    raise AssertionError("no horovodrun")


@needs_horovod
def test_a_killed_rank_is_replaced_and_goes_on_from_the_last_commit(
    wait_for: WaitFor, tmp_path: Path
) -> None:
    """Also where all ranks are needed, so that the others wait for the new one."""
    folder = start(ELASTIC.replace('"done"', repr(str(tmp_path / "done"))), min_np=2)
    first = _processes_at_step(folder, wait_for, 1, 5)
    victim = until(folder, lambda status: status.ranks[1].pid in first, "the pid of rank 1").ranks[1].pid
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: len(_steps(folder, 1)) > 1, what="a new process in the place of rank 1")
    old, new = _steps(folder, 1).values()
    assert old[0] == 0
    assert 0 < new[0] <= old[-1] + 1, "from the last commit, not from the start"
    _until_replaced(folder, 1)
    (tmp_path / "done").touch()
    status = ended(folder)
    assert status.state is State.SUCCEEDED, story(folder)
    assert [rank.state for rank in status.ranks] == [State.SUCCEEDED] * 2
    found = results(folder, 2)
    assert found[0]["steps"] == found[1]["steps"] > new[0]
    assert found[0]["weights"] == found[1]["weights"]
    said = "jupyter_dist: rank 1 has ended and was replaced: a new process continues here"
    assert said in reader.output(folder, 1).decode().splitlines()


def _steps(folder: RunFolder, rank: int) -> dict[int, list[int]]:
    """The steps that each process in a rank's place has printed."""
    found: dict[int, list[int]] = {}
    for line in reader.output(folder, rank).decode().splitlines():
        words = line.split()
        if words[:1] == ["step"] and len(words) == 7:
            found.setdefault(int(words[6]), []).append(int(words[1]))
    return found


def _until_replaced(folder: RunFolder, rank: int) -> None:
    """Wait until the state says that the rank runs in the second process that has printed a step."""
    new = list(_steps(folder, rank))[1]

    def told(status: Status) -> bool:
        return [(each.state, each.pid) for each in status.ranks[rank : rank + 1]] == [(State.RUNNING, new)]

    until(folder, told, f"process {new} to be the one of rank {rank}")


def _until_on(folder: RunFolder, hosts: list[str]) -> None:
    until(folder, lambda status: [rank.host for rank in status.ranks] == hosts, f"ranks on {hosts}")


def _processes_at_step(folder: RunFolder, wait_for: WaitFor, rank: int, step: int) -> list[int]:
    def reached() -> list[int]:
        return [pid for pid, steps in _steps(folder, rank).items() if steps[-1] >= step]

    found: list[int] = wait_for(reached, what=f"step {step} of rank {rank}")
    return found


@needs_horovod
def test_a_host_that_the_script_finds_joins(wait_for: WaitFor, tmp_path: Path) -> None:
    listed = tmp_path / "hosts"
    listed.write_text("localhost:1\n")
    script = tmp_path / "discover hosts.sh"
    script.write_text(f'#!/bin/sh\ncat "{listed}"\n')
    script.chmod(0o755)
    source = ELASTIC.replace('"done"', repr(str(tmp_path / "done")))
    folder = start(source, 1, host_discovery_script=f"'{script}'", max_np=2)
    _processes_at_step(folder, wait_for, 0, 5)
    assert len(reader.status(folder).ranks) == 1
    listed.write_text("localhost:1\n127.0.0.1\n")  # another name, and one rank on it
    _processes_at_step(folder, wait_for, 1, 1)
    wait_for(lambda: len(reader.status(folder).ranks) == 2, what="a second rank in the state")
    (tmp_path / "done").touch()
    assert ended(folder).state is State.SUCCEEDED, story(folder)
    found = results(folder, 2)
    assert [result["size"] for result in found] == [2, 2]
    assert found[0]["steps"] == found[1]["steps"]
    assert found[0]["weights"] == found[1]["weights"]


@needs_horovod
def test_a_rank_joins_what_keras_trains(wait_for: WaitFor, tmp_path: Path) -> None:
    """It gets the weights and the optimizer's slots, though it has not trained and has none yet."""
    listed = tmp_path / "hosts"
    listed.write_text("localhost:1\n")
    script = tmp_path / "discover.sh"
    script.write_text(f'#!/bin/sh\ncat "{listed}"\n')
    script.chmod(0o755)
    source = KERAS_ELASTIC.replace('"done"', repr(str(tmp_path / "done")), 1)
    folder = start(source, 1, host_discovery_script=str(script), max_np=2)
    _processes_at_step(folder, wait_for, 0, 3)
    listed.write_text("localhost:1\n127.0.0.1\n")
    _processes_at_step(folder, wait_for, 1, 1)
    assert next(iter(_steps(folder, 1).values()))[0] > 0, "it goes on where the others are"
    (tmp_path / "done").touch()
    assert ended(folder).state is State.SUCCEEDED, story(folder)
    first, second = results(folder, 2)
    assert first == second
    assert first["size"] == 2
    assert first["updates"] == 4 * first["steps"]


def _over_hosts(hosts: Hosts, first: str, tmp_path: Path, **options: Any) -> tuple[RunFolder, Path]:
    """An elastic run whose hosts are those in a file, which is returned as well; `_finish` has it end."""
    listed = tmp_path / "hosts.txt"
    listed.write_text("".join(f"{name}:1\n" for name in first.split()))
    script = tmp_path / "discover.sh"
    script.write_text(f'#!/bin/sh\ncat "{listed}"\n')
    script.chmod(0o755)
    given: dict[str, Any] = {"ssh_config": str(hosts.ssh_config), "python": sys.executable}
    source = ELASTIC.replace('"done"', repr(str(tmp_path / "done")))
    return start(source, len(first.split()), host_discovery_script=str(script), **given, **options), listed


def _finish(hosts: Hosts, folder: RunFolder, tmp_path: Path) -> Status:
    (tmp_path / "done").touch()
    for name in hosts.names:
        hosts.exec(name, ["install", "-D", "/dev/null", str(tmp_path / "done")])
    status = ended(folder)
    assert status.state is State.SUCCEEDED, story(folder)
    return status


def _left_on(hosts: Hosts, name: str) -> list[Any]:
    listed = hosts.exec(name, ["sh", "-c", "ls ~/.cache/jupyter-dist/hosts 2>/dev/null || true"])
    return [*listed.stdout.split(), *(process.argv for process in hosts.pids(name))]


@needs_horovod
@pytest.mark.parametrize("hosts", [2], indirect=True)
def test_a_rank_killed_on_another_host_is_replaced(hosts: Hosts, wait_for: WaitFor, tmp_path: Path) -> None:
    """And the new one has what --env gives, which is neither in a command line nor in a file."""
    env = {"TOKEN": SECRET, "HOROVOD_TOKEN": SECRET}
    folder, _ = _over_hosts(hosts, "h1 h2", tmp_path, min_np=2, env=env, timeline="trace of mine.json")
    _processes_at_step(folder, wait_for, 1, 5)
    _until_on(folder, ["h1", "h2"])
    secret = SECRET.partition("'")[0]
    seen = _command_lines()
    assert any(b"_horovodrun" in words and str(folder.path).encode() in words for words in seen)
    assert not [words for words in seen if secret.encode() in words], "of this machine or of a host"
    written = hosts.exec("h2", ["grep", "-rlF", secret, f"{hosts.home}/.cache/jupyter-dist"], check=False)
    assert (written.stdout, written.returncode) == ("", 1)
    victim = next(iter(_steps(folder, 1)))
    os.kill(next(p.pid for p in hosts.pids("h2") if p.own_pid == victim), signal.SIGKILL)
    wait_for(lambda: len(_steps(folder, 1)) > 1, what="a new process in the place of rank 1")
    old, new = _steps(folder, 1).values()
    assert 0 < new[0] <= old[-1] + 1, "from the last commit, not from the start"
    _until_replaced(folder, 1)
    status = _finish(hosts, folder, tmp_path)
    assert [(rank.state, rank.host) for rank in status.ranks] == [
        (State.SUCCEEDED, "h1"),
        (State.SUCCEEDED, "h2"),
    ]
    found = results(folder, 2)
    assert found[0] == found[1]
    assert found[0]["steps"] > new[0]
    assert found[0]["token"] == SECRET
    traces = [folder.files / f"trace of mine{more}.json" for more in ("", "-1")]
    assert all("ALLREDUCE" in trace.read_text() for trace in traces), "one of each time that the ranks met"
    wait_for(lambda: not _left_on(hosts, "h1") + _left_on(hosts, "h2"), what="the end of the agents")


@needs_horovod
@pytest.mark.parametrize("hosts", [2], indirect=True)
def test_another_host_joins_and_is_lost(hosts: Hosts, wait_for: WaitFor, tmp_path: Path) -> None:
    """The run goes on without it, and what it has left there ends by itself."""
    folder, listed = _over_hosts(hosts, "h1", tmp_path, min_np=1, max_np=2, gloo_timeout_seconds=10, grace=5)
    _processes_at_step(folder, wait_for, 0, 5)
    listed.write_text("h1:1\nnowhere:1\nh2:1\n")  # one that cannot be reached makes no difference
    _processes_at_step(folder, wait_for, 1, 1)
    _until_on(folder, ["h1", "h2"])
    until(folder, lambda status: "host nowhere: " in (status.reason or ""), "the host that is not reached")
    listed.write_text("h1:1\nh2:1\n")
    hosts.cut("h2")
    reached = next(iter(_steps(folder, 0).values()))[-1]
    alone = f"of 1 ranks, process {next(iter(_steps(folder, 0)))}".encode()
    before = reader.output(folder, 0).count(alone)
    wait_for(lambda: reader.output(folder, 0).count(alone) > before + 5, what="more steps without h2")
    assert next(iter(_steps(folder, 0).values()))[-1] > reached
    wait_for(lambda: not hosts.pids("h2"), what="the end of what was on h2")
    _finish(hosts, folder, tmp_path)
    assert results(folder, 1)[0]["size"] == 1
    hosts.mend("h2")
    wait_for(lambda: not _left_on(hosts, "h1"), what="the end of the agent")


@needs_horovod
@pytest.mark.parametrize("hosts", [1], indirect=True)
def test_named_hosts_in_an_elastic_run(hosts: Hosts, wait_for: WaitFor) -> None:
    """A rank that raises on them fails the run as anywhere, and so do hosts none of which can be used."""
    given: dict[str, Any] = {"ssh_config": str(hosts.ssh_config), "python": sys.executable, "min_np": 1}
    source = "import horovod.torch as hvd\nhvd.init()\nraise ValueError('not here')"
    folder = start(source, 2, hosts=[{"name": "h1", "slots": 2}], **given)
    assert ended(folder).state is State.FAILED
    root = failures(folder)[0]
    assert (root.type, root.message) == ("ValueError", "not here")
    wait_for(lambda: not _left_on(hosts, "h1"), what="the end of the agent")
    status = ended(start(source, 2, hosts=[{"name": "nowhere", "slots": 2}], **given))
    assert status.state is State.FAILED
    assert (status.reason or "").startswith("host nowhere: its name cannot be resolved")


@needs_horovod
@pytest.mark.parametrize("hosts", [1], indirect=True)
def test_this_machine_may_be_one_of_the_hosts(hosts: Hosts, wait_for: WaitFor, tmp_path: Path) -> None:
    """Also the first, while no other is known, and where its own name leads to 127.0.0.1; its rank is
    replaced as any other; no file stays anywhere."""
    here = socket.gethostname()
    networks = ["nowhere", hosts.interface, "eth0"]
    folder, listed = _over_hosts(hosts, "localhost", tmp_path, max_np=2, network_interfaces=networks)
    _processes_at_step(folder, wait_for, 0, 5)
    listed.write_text("localhost:1\nh1:1\n")
    _processes_at_step(folder, wait_for, 1, 1)
    _until_on(folder, [here, "h1"])
    (old,) = _steps(folder, 0)
    os.kill(old, signal.SIGKILL)
    wait_for(lambda: len(_steps(folder, 0)) > 1, what="a new process in the place of rank 0")
    status = _finish(hosts, folder, tmp_path)
    assert [(rank.state, rank.host) for rank in status.ranks] == [
        (State.SUCCEEDED, here),
        (State.SUCCEEDED, "h1"),
    ]
    found = results(folder, 2)
    assert found[0] == found[1]
    assert found[0]["size"] == 2
    wait_for(lambda: not _left_on(hosts, "h1"), what="the end of the agent")


@needs_horovod
def test_the_timeline_is_among_the_runs_files_and_secrets_are_in_no_command_line(
    wait_for: WaitFor, tmp_path: Path
) -> None:
    done = f"torch.tensor(float(os.path.exists({str(tmp_path / 'done')!r})))"
    source = WAITING.replace("True", f"not hvd.broadcast({done}, 0).item()") + "\nos.environ['TOKEN']"
    where = tmp_path / "timeline.json"
    folder = start(source, env={"TOKEN": SECRET}, gloo=True, timeline=str(where), timeline_mark_cycles=True)
    wait_for(lambda: all(b"here" in reader.output(folder, rank) for rank in (0, 1)), what="both ranks")
    shown = _command_lines()
    assert any(str(folder.path).encode() in words for words in shown)
    assert not [words for words in shown if SECRET.partition("'")[0].encode() in words]
    (tmp_path / "done").touch()
    assert ended(folder).state is State.SUCCEEDED, story(folder)
    assert results(folder, 2) == [SECRET] * 2
    kept = folder.files / "timeline.json"
    assert '"ALLREDUCE"' in kept.read_text() or "allreduce" in kept.read_text()
    assert kept.read_bytes() == where.read_bytes(), "it was asked for in that folder"


def _command_lines() -> list[bytes]:
    """Those of all processes of this machine and of its hosts."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # processes end while we look
            found.append(path.read_bytes())
    return found


@needs_horovod
def test_what_it_was_built_with_is_known_without_importing_it() -> None:
    ask = "import horovod.torch as hvd; print(*['gloo'] * hvd.gloo_built(), *['mpi'] * hvd.mpi_built())"
    told = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout
    assert fast_horovodrun.built_with() == set(told.split())
    assert "gloo" in told
    found = Horovod().detect()
    assert found["horovod"] == "0.28.1"
    assert Horovod().check(1, HorovodOptions().model_dump(mode="json")) == []


def job(np: int = 2, **options: Any) -> Job:
    given = HorovodOptions(**options).model_dump(mode="json")
    return Job("id", "horovod", np, 0.0, "/cwd", "/py", "1", options=given)


@needs_horovod
def test_the_request_is_horovodruns_command_line() -> None:
    request = Horovod().request(job(4, gloo=True, fusion_threshold_mb=64, cycle_time_ms=3.5, autotune=True))
    assert request["argv"] == [
        *("/py", "-m", "jupyter_dist.worker.launchers.fast_horovodrun", "-np", "4"),
        *("--fusion-threshold-mb", "64", "--cycle-time-ms", "3.5", "--autotune", "--disable-cache", "--gloo"),
        *("/py", "-m", "jupyter_dist.worker"),
    ]
    assert request["env"]["JUPYTER_DIST_LAUNCHER"] == "horovod"
    hosts = [{"name": "localhost", "slots": 2}, {"name": "127.0.0.1", "slots": 2}]
    argv = Horovod().request(job(4, hosts=hosts, timeline="t.json", mpi=True, mpi_args="--x y"))["argv"]
    assert argv[argv.index("-H") + 1] == "localhost:2,127.0.0.1:2"
    assert argv[argv.index("--timeline-filename") + 1] == "RUN/attempts/0/timeline.json"
    assert "--mpi-args=--x y" in argv
    argv = Horovod().request(job(2, timeline="t.json"), attempt=3)["argv"]
    assert argv[argv.index("--timeline-filename") + 1] == "RUN/attempts/3/timeline.json"
    argv = Horovod().request(job(2, min_np=1, max_np=4, reset_limit=7))["argv"]
    assert argv[argv.index("--min-np") : argv.index("--host-discovery-script")] == [
        *("--min-np", "1", "--max-np", "4", "--reset-limit", "7"),
        *("--blacklist-cooldown-range", "1", "30", "--network-interfaces", "lo"),
    ]
    assert argv[-4:] == ["--gloo", "/py", "-m", "jupyter_dist.worker"]


@needs_horovod
@pytest.mark.parametrize(
    ("mpirun", "built", "controller"),
    [
        ("/usr/bin/mpirun", {"gloo", "mpi"}, "--mpi"),
        ("/usr/bin/mpirun", {"gloo"}, "--gloo"),
        ("/usr/bin/mpirun", set(), "--mpi"),
        (None, {"gloo", "mpi"}, "--gloo"),
    ],
)
def test_the_default_is_mpi_where_mpirun_and_horovod_have_it(
    mpirun: str | None, built: set[str], controller: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name, **more: mpirun)
    monkeypatch.setattr("jupyter_dist.backends.horovod.backend.built_with", lambda: frozenset(built))
    assert Horovod().request(job(2))["argv"][-4] == controller
    assert Horovod().request(job(2, mpi=True))["argv"][-4] == "--mpi"


@needs_horovod
def test_elastic_options_that_cannot_work(tmp_path: Path) -> None:
    def check(np: int, **options: Any) -> None:
        Horovod().check(np, HorovodOptions(**options).model_dump(mode="json"))

    with pytest.raises(InputError, match="--min-np 3 is more than -np 2"):
        check(2, min_np=3)
    with pytest.raises(InputError, match="--max-np 2 is less than -np 4"):
        check(4, max_np=2)
    script = tmp_path / "discover.sh"
    with pytest.raises(InputError, match=r"there is no file '.*discover\.sh'"):
        check(2, host_discovery_script=str(script))
    script.write_text("#!/bin/sh\n")
    with pytest.raises(InputError, match="cannot be run: chmod"):
        check(2, host_discovery_script=str(script))
    hosts = [{"name": "localhost", "slots": 1}, {"name": "192.0.2.7", "slots": 1}]
    check(2, min_np=1, hosts=hosts, timeline="t.json")


def test_without_horovod_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        MissingEngine, match="`jupyter dist install-horovod` builds it for the installed torch"
    ):
        backends.load("horovod")
