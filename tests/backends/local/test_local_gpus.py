"""Runs that have the GPUs of a machine for themselves: local runs, warm and cold, killed and waiting."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_dist import backends
from jupyter_dist.conformance.deadlines import Deadline
from jupyter_dist.errors import Busy
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import State
from jupyter_dist.launch import submission
from jupyter_dist.record import reader
from jupyter_dist.worker.gpus import by_local_rank, record
from tests.rigs.hosts import Hosts
from tests.rigs.launching import ended, launch_cell, open_files, results, story
from tests.rigs.nvidia import FakeGpus
from tests.rigs.stopwatch import Stopwatch, WaitFor
from tests.rigs.time_limit import TimeLimit

pytestmark = pytest.mark.usefixtures("warm")

SEES = "import os; os.environ.get('CUDA_VISIBLE_DEVICES')"
CURES = (
    "Add --wait-for-gpus to wait for them, or --share-gpus to use them now, "
    "or --gpus-per-worker 0 to train on the CPU"
)
STAYS = """
import os, time
print("here")
while not os.path.exists(END):
    time.sleep(0.01)
os.environ.get("CUDA_VISIBLE_DEVICES")
"""


class Runs:
    """Runs that stay until they are told to end."""

    def __init__(self, folder: Path) -> None:
        self.end = folder / "end"

    def start(self, np: int = 2, backend: str = "local", cold: bool = False, **options: Any) -> RunFolder:
        return launch_cell(backend, STAYS, np, options, {"END": str(self.end)}, cold=cold)

    def up(self, folder: RunFolder, wait_for: WaitFor) -> RunFolder:
        def all_here() -> bool:
            status = reader.status(folder)
            assert not status.state.ended, story(folder)
            printed = [b"here" in reader.output(folder, rank.rank) for rank in status.ranks]
            return bool(printed) and all(printed) and all(rank.pid for rank in status.ranks)

        wait_for(all_here, "all ranks")
        return folder

    def let_go(self) -> None:
        self.end.touch()


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def used() -> set[str]:
    """The GPUs in use, by the last letter of their UUIDs."""
    return {uuid[-1] for holder in record.holders() if not holder.waits_for for uuid in holder.uuids}


@pytest.mark.race
def test_two_runs_never_take_the_same_gpu(fake_gpus: FakeGpus, runs: Runs, wait_for: WaitFor) -> None:
    fake_gpus.are(4)
    local = backends.load("local")
    first = runs.up(runs.start(gpus_per_worker=1), wait_for)
    assert used() == {"0", "1"}
    assert local.default_np() == 2
    second = runs.up(runs.start(), wait_for)
    assert used() == {"0", "1", "2", "3"}
    told = f"GPUs 0-1 are held by run {first.id}, GPUs 2-3 are held by run {second.id}; none is free"
    with pytest.raises(Busy) as refused:
        local.check(1, {})
    assert str(refused.value) == (f"1 GPU is needed: {told}. {CURES}.")
    # The check is the notebook's; whoever comes past it is refused by the supervisor, in the same words.
    third = launch_cell("local", SEES, 1)
    status = ended(third)
    assert (status.state, status.ranks[0].pid) == (State.FAILED, None)
    assert status.reason == str(refused.value).removesuffix(".") + ". Nothing was started."
    assert local.detect()["gpus_in_use"] == told
    runs.let_go()
    assert ended(first).state is State.SUCCEEDED
    assert results(first) == ["0", "1"]
    assert ended(second).state is State.SUCCEEDED
    assert results(second) == ["2", "3"]
    assert used() == set()
    assert [name for name in os.listdir(os.environ[record.FOLDER]) if name != "turn"] == []


def test_ranks_of_a_run_share_a_gpu_and_other_runs_do_not(
    fake_gpus: FakeGpus, runs: Runs, wait_for: WaitFor
) -> None:
    fake_gpus.are(3)
    first = runs.up(runs.start(3, gpus_per_worker=0.5), wait_for)
    assert used() == {"0", "1"}
    with pytest.raises(Busy, match=r"2 GPUs are needed: GPUs 0-1 are held by run \S+; 1 is free"):
        backends.load("local").check(2, {})
    assert backends.load("local").check(1, {})[0].endswith("; 1 is free. This run gets GPU 2.")
    shared = launch_cell("local", SEES, 3, {"share_gpus": True})
    assert ended(shared).state is State.SUCCEEDED, story(shared)
    assert results(shared, 3) == ["0", "1", "2"]
    alone = launch_cell("local", SEES, 2, {"gpus_per_worker": 0})
    assert ended(alone).state is State.SUCCEEDED
    assert results(alone) == ["-1", "-1"]
    runs.let_go()
    assert ended(first).state is State.SUCCEEDED
    assert results(first, 3) == ["0", "0", "1"]


def test_a_gpu_that_is_shared_is_not_free(fake_gpus: FakeGpus, runs: Runs, wait_for: WaitFor) -> None:
    fake_gpus.are(2)
    first = runs.up(runs.start(1, share_gpus=True, gpus_per_worker=1), wait_for)
    with pytest.raises(Busy, match=rf"2 GPUs are needed: GPU 0 is shared by run {first.id}; 1 is free"):
        backends.load("local").check(2, {})
    other = launch_cell("local", SEES, 1, {"share_gpus": True, "gpus_per_worker": 1})
    assert ended(other).state is State.SUCCEEDED
    assert results(other, 1) == ["1"]  # beside as few others as can be
    runs.let_go()
    assert ended(first).state is State.SUCCEEDED


@pytest.mark.parametrize("cold", [True, False], ids=["cold", "warm"])
@pytest.mark.parametrize("killed", ["supervisor", "rank", "guard and supervisor"])
def test_gpus_are_free_once_the_last_rank_is_gone_and_never_before(
    fake_gpus: FakeGpus, runs: Runs, wait_for: WaitFor, killed: str, cold: bool
) -> None:
    fake_gpus.are(2)
    run = runs.up(runs.start(cold=cold), wait_for)
    status = reader.status(run)
    assert status.warm is not cold
    assert status.supervisor is not None
    pids = [rank.pid for rank in status.ranks if rank.pid is not None]
    assert used() == {"0", "1"}
    # Its GPU is its own until the very last: a rank that is stopped cannot end by itself.
    if killed == "rank":
        os.kill(pids[0], signal.SIGKILL)
    else:
        if killed == "guard and supervisor":
            for pid in guards(status.supervisor.pid):
                os.kill(pid, signal.SIGKILL)
        os.kill(status.supervisor.pid, signal.SIGKILL)
    since_gone: Stopwatch | None = None
    deadline, free = Deadline(), False
    while not free:
        assert not deadline.passed()
        alive = any(is_alive(pid) for pid in pids)
        free = not used()
        if free:
            assert not alive or not any(is_alive(pid) for pid in pids), "free, and ranks were still there"
        elif not alive and since_gone is None:
            since_gone = Stopwatch()
        time.sleep(0.005)  # the guards need the cores too
    if since_gone is not None and killed != "rank":
        assert since_gone.under(1)
    wait_for(lambda: reader.status(run).state.ended)


def guards(supervisor: int) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", name, "stat").read_text()
        except OSError:
            continue
        if "(jdist guard)" in words and int(words.rpartition(")")[2].split()[1]) == supervisor:
            found.append(int(name))
    return found


def is_alive(pid: int) -> bool:
    """Return whether a process runs. At its end, it loses its memory first, then its files, then its name."""
    try:
        return Path("/proc", str(pid), "statm").read_text().split()[0] != "0"
    except OSError:
        return False


def test_those_that_wait_are_served_in_turn(fake_gpus: FakeGpus, runs: Runs, wait_for: WaitFor) -> None:
    fake_gpus.are(2)
    first = runs.up(runs.start(), wait_for)
    waiting = []
    for np in (2, 1, 2):
        waiting.append(launch_cell("local", "import time\ntime.time()", np, {"wait_for_gpus": True}))
        wait_for(lambda run=waiting[-1]: "waits for" in (reader.status(run).reason or ""))
    assert reader.status(waiting[0]).reason == (
        f"waits for 2 GPUs: GPUs 0-1 are held by run {first.id}; none is free"
    )
    assert reader.status(waiting[2]).reason == (
        f"waits for 2 GPUs: GPUs 0-1 are held by run {first.id}, run {waiting[0].id} waits for 2, "
        f"run {waiting[1].id} waits for 1; none is free"
    )
    assert all(rank.pid is None for run in waiting for rank in reader.status(run).ranks)
    assert {reader.status(run).state for run in waiting} == {State.PENDING}
    stopped = launch_cell("local", SEES, 1, {"wait_for_gpus": True})
    wait_for(lambda: "waits for" in (reader.status(stopped).reason or ""))
    stopped.request("stop")
    watch = Stopwatch()
    assert ended(stopped).state is State.STOPPED
    assert watch.under(2)
    runs.let_go()
    began = []
    for run in waiting:
        assert ended(run).state is State.SUCCEEDED, story(run)
        began.append(min(results(run, len(reader.status(run).ranks))))
    assert began == sorted(began)
    assert record.holders() == []


def test_the_clocks_of_a_run_begin_when_it_has_its_gpus(
    fake_gpus: FakeGpus, runs: Runs, tmp_path: Path, wait_for: WaitFor
) -> None:
    """Neither --timeout nor --stall-timeout count while a run waits its turn."""
    fake_gpus.are(1)
    first = runs.up(runs.start(1), wait_for)
    limit = TimeLimit(tmp_path)
    limits: dict[str, Any] = {"timeout": limit.seconds, "stall_timeout": 0.5, "env": limit.env}
    waiting = launch_cell("local", SEES, 1, {"wait_for_gpus": True}, **limits)
    wait_for(lambda: "waits for" in (reader.status(waiting).reason or ""))
    limit.pass_by()
    passed = time.time()
    wait_for(lambda: reader.status(waiting).heartbeat > passed + 1, "its next turns")
    status = reader.status(waiting)
    assert (status.state, status.stall, status.started) == (State.PENDING, None, None)
    runs.let_go()
    assert ended(first).state is State.SUCCEEDED
    assert ended(waiting).state is State.SUCCEEDED, story(waiting)


def test_a_killed_one_that_waits_holds_nobody_up(fake_gpus: FakeGpus, runs: Runs, wait_for: WaitFor) -> None:
    fake_gpus.are(1)
    first = runs.up(runs.start(1), wait_for)
    ahead, behind = (launch_cell("local", SEES, 1, {"wait_for_gpus": True}) for _ in range(2))
    wait_for(lambda: sum(holder.waits_for for holder in record.holders()) == 2)
    supervisor = reader.status(ahead).supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    runs.let_go()
    for run in (first, behind):
        assert ended(run).state is State.SUCCEEDED, story(run)


def test_gpus_are_kept_over_restarts(fake_gpus: FakeGpus, tmp_path: Path) -> None:
    fake_gpus.are(1)
    source = """
import jupyter_dist as dist
from jupyter_dist.worker.gpus import record as gpu_record
print([sorted(h.uuids) for h in gpu_record.holders()])
if dist.attempt() < 2:
    raise ValueError
"""
    run = launch_cell("local", source, 1, max_restarts=2)
    assert ended(run).state is State.SUCCEEDED, story(run)
    for attempt in range(3):
        assert reader.output(run, 0, attempt).decode().startswith("[['GPU-fake-0']]"), story(run)


def test_a_dry_run_takes_nothing_and_says_what_it_would(
    fake_gpus: FakeGpus, runs: Runs, wait_for: WaitFor
) -> None:
    fake_gpus.are(3)
    first = runs.up(runs.start(1, gpus_per_worker=1), wait_for)
    from tests.backends.test_backends import job

    request = backends.load("local").request(job(2))
    assert request["gpus"] == f"GPUs 1-2 (GPU 0 is held by run {first.id}; 2 are free)"
    assert [rank["env"]["CUDA_VISIBLE_DEVICES"] for rank in request["ranks"]] == ["1", "2"]
    assert used() == {"0"}
    runs.let_go()
    assert ended(first).state is State.SUCCEEDED


@pytest.mark.parametrize(
    ("backend", "more"),
    [
        ("ssh", {}),
        pytest.param("torchrun", {}, marks=pytest.mark.needs("torch")),
        ("mpi", {}),
        pytest.param("horovod", {"gloo": True}, marks=pytest.mark.needs("horovod")),
    ],
    ids=["ssh", "torchrun", "mpi", "horovod"],
)
def test_hosts_take_their_gpus_before_any_rank_starts(
    fake_gpus: FakeGpus,
    runs: Runs,
    wait_for: WaitFor,
    tmp_path: Path,
    backend: str,
    more: dict[str, Any],
) -> None:
    """A run over ssh and one of this machine alone meet on this machine."""
    fake_gpus.are(3)
    here: dict[str, Any] = {
        **more,
        "hosts": [{"name": "localhost", "slots": 2}],
        "remote_dir": str(tmp_path / "hosts"),
    }
    first = runs.up(runs.start(2, backend, gpus_per_worker=1, **here), wait_for)
    assert used() == {"0", "1"}
    told = f"GPUs 0-1 are held by run {first.id}; 1 is free"
    with pytest.raises(Busy, match=told):
        backends.load("local").check(2, {})
    refused = launch_cell(backend, SEES, 2, here)
    status = ended(refused)
    assert (status.state, status.ranks[0].pid) == (State.FAILED, None)
    assert status.reason is not None
    assert f"2 GPUs are needed: {told}. {CURES}. Nothing was started." in status.reason
    waiting = launch_cell(backend, SEES, 2, {**here, "wait_for_gpus": True})
    wait_for(lambda: "waits for 2 GPUs" in (reader.status(waiting).reason or ""))
    runs.let_go()
    assert ended(first).state is State.SUCCEEDED, story(first)
    seen = ["0", "1"] if backend == "ssh" else ["0,1", "0,1"]
    assert results(first) == seen
    assert ended(waiting).state is State.SUCCEEDED, story(waiting)
    assert results(waiting) == seen
    assert used() == set()


def test_an_agent_keeps_the_gpus_when_the_supervisor_is_killed(
    fake_gpus: FakeGpus, runs: Runs, wait_for: WaitFor, tmp_path: Path
) -> None:
    """The ranks go on: their GPUs are nobody else's, before and after another supervisor has come."""
    fake_gpus.are(2)
    here: dict[str, Any] = {
        "hosts": [{"name": "localhost", "slots": 2}],
        "remote_dir": str(tmp_path / "hosts"),
    }
    run = runs.up(runs.start(2, "ssh", **here), wait_for)
    supervisor = reader.status(run).supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(supervisor.pid))
    assert used() == {"0", "1"}
    wait_for(lambda: reader.status(run).state is not State.RUNNING)
    submission.resume(run)
    assert used() == {"0", "1"}
    runs.let_go()
    assert ended(run).state is State.SUCCEEDED, story(run)
    assert results(run) == ["0", "1"]
    assert used() == set()


@pytest.mark.parametrize(
    ("backend", "options"),
    [
        pytest.param("torchrun", {}, marks=pytest.mark.needs("torch")),
        pytest.param("horovod", {"gloo": True}, marks=pytest.mark.needs("horovod")),
        pytest.param("horovod", {"min_np": 2}, marks=pytest.mark.needs("horovod")),
        ("mpi", {}),
    ],
    ids=["torchrun", "horovod", "elastic horovod", "mpi"],
)
def test_launchers_take_a_gpu_for_each_rank(
    fake_gpus: FakeGpus, runs: Runs, wait_for: WaitFor, backend: str, options: dict[str, Any]
) -> None:
    fake_gpus.are(4)
    before = runs.up(runs.start(1, gpus_per_worker=1), wait_for)
    run = runs.up(runs.start(2, backend, **options), wait_for)
    assert used() == {"0", "1", "2"}
    with pytest.raises(
        Busy, match=rf"GPU 0 is held by run {before.id}, GPUs 1-2 are held by run {run.id}; 1 "
    ):
        backends.load(backend).check(2, options)
    waiting = runs.start(2, backend, **options, wait_for_gpus=True)
    wait_for(lambda: "waits for 2 GPUs" in (reader.status(waiting).reason or ""))
    stopped = runs.start(2, backend, **options, wait_for_gpus=True)
    wait_for(lambda: "waits for 2 GPUs" in (reader.status(stopped).reason or ""))
    stopped.request("stop")
    assert ended(stopped).state is State.STOPPED, story(stopped)
    # The launcher's ranks hold what their run has, not only the supervisor and the launcher.
    status = reader.status(run)
    held = [holding(rank.pid) for rank in status.ranks if rank.pid is not None]
    assert len(held) == 2
    assert all(run.id in name for name in held), held
    runs.let_go()
    for each in (before, run, waiting):
        assert ended(each).state is State.SUCCEEDED, story(each)
    apart = "min_np" in options
    assert results(run) == (["1", "2"] if apart else ["1,2"] * 2)
    assert used() == set()


def holding(pid: int) -> str:
    """The file of the record that a process holds open."""
    return next((link for link in open_files(pid) if link.startswith(os.environ[record.FOLDER])), "nothing")


def test_notebooks_and_a_killed_kernel(
    fake_gpus: FakeGpus, start_kernel: Callable[[], Any], wait_for: WaitFor, monkeypatch: Any, tmp_path: Path
) -> None:
    """Two kernels share a machine out; what one of them leaves behind keeps its GPUs as long as it trains."""
    fake_gpus.are(4)
    monkeypatch.setenv("JPY_SESSION_NAME", str(tmp_path / "train.ipynb"))
    first = start_kernel()
    monkeypatch.setenv("JPY_SESSION_NAME", str(tmp_path / "other.ipynb"))
    second = start_kernel()
    for kernel in (first, second):
        kernel.run("%load_ext jupyter_dist")
    stays = (
        "\nimport os, time\nprint('here', os.environ['CUDA_VISIBLE_DEVICES'], flush=True)\ntime.sleep(600)"
    )
    first.run(f"%%distribute -np 3 --gpus-per-worker 1 --detach --out run{stays}")
    wait_for(lambda: used() == {"0", "1", "2"})
    cell = second.run(f"%%distribute --detach --out run{stays}")
    assert re.search(
        r"warning: GPUs 0-2 are held by run \S+ of train.ipynb; 1 is free. This run gets GPU 3\.", cell.stdout
    )
    wait_for(lambda: used() == {"0", "1", "2", "3"})
    refused = second.start("%%distribute -np 1\n1").finish()
    assert refused.error is not None
    assert re.match(
        r"Busy: 1 GPU is needed: GPUs 0-2 are held by .*, GPU 3 is held by .*; none", refused.error
    )
    saved = second.run("%dist clusters add box -np 1 --gpus-per-worker 2")
    assert "Saved. Use it with" in saved.text
    listed = second.run("%dist backends").text
    assert re.search(r"gpus 4: GPUs 0-2 are held by run \S+ of train.ipynb, GPU 3 is held", listed)
    first.kill()
    assert used() == {"0", "1", "2", "3"}
    second.run("run.stop()")
    wait_for(lambda: used() == {"0", "1", "2"})
    (run,) = [holder.run for holder in record.holders()]
    second.run(f"%dist stop {run}")
    wait_for(lambda: used() == set())


def test_without_nvidia_smi_no_process_and_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    from jupyter_dist.worker.gpus import devices

    devices._visible.cache_clear()
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("a process was started"))
    assert devices.visible_gpus() == ()
    assert backends.load("local").check(1, {}) == []
    assert not os.path.exists(os.environ[record.FOLDER])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert [gpu.uuid for gpu in devices.visible_gpus()] == [None, None]
    assert backends.load("local").default_np() == 2
    devices._visible.cache_clear()


@pytest.mark.parametrize("hosts", [2], indirect=True)
def test_all_hosts_of_a_run_or_none(hosts: Hosts, wait_for: WaitFor) -> None:
    """While the GPUs of one host are waited for, those of the others are not kept."""
    for name in ("h1", "h2"):
        lines = (f"echo 'GPU {at}: A fake (UUID: GPU-{name}-{at})'" for at in range(2))
        program = "\n".join(["#!/bin/sh", *lines, ""])
        script = "cat > /usr/local/bin/nvidia-smi && chmod 755 /usr/local/bin/nvidia-smi"
        hosts.exec(name, ["sh", "-c", script], input=program)
    stays = "import os, time\nprint('here')\nwhile not os.path.exists('/tmp/end'):\n    time.sleep(0.01)\n"

    def start(*names: str, **options: Any) -> RunFolder:
        given: dict[str, Any] = {"ssh_config": str(hosts.ssh_config), "python": sys.executable, **options}
        given["hosts"] = [{"name": name, "slots": 2} for name in names]
        return launch_cell("ssh", stays + SEES, 2 * len(names), given)

    def is_up(run: RunFolder) -> bool:
        ranks = reader.status(run).ranks
        return bool(ranks) and all(b"here" in reader.output(run, rank.rank) for rank in ranks)

    first = start("h1")
    wait_for(lambda: is_up(first), "the first run's ranks")
    both = start("h1", "h2", wait_for_gpus=True)
    wait_for(lambda: "host h1: waits for 2 GPUs" in (reader.status(both).reason or ""))
    other = start("h2", wait_for_gpus=True)
    wait_for(lambda: is_up(other), "the ranks of the run on the other host")
    assert reader.status(both).state is State.PENDING
    refused = start("h1", "h2")
    status = ended(refused)
    assert (status.state, [rank.pid for rank in status.ranks]) == (State.FAILED, [None] * 4)
    assert status.reason is not None
    for name, run in (("h1", first), ("h2", other)):
        assert f"host {name}: 2 GPUs are needed: GPUs 0-1 are held by run {run.id}" in status.reason
    for name in ("h1", "h2"):
        hosts.exec(name, ["touch", "/tmp/end"])
    for run, seen in ((first, ["0", "1"]), (other, ["0", "1"]), (both, ["0", "1"] * 2)):
        assert ended(run).state is State.SUCCEEDED, story(run)
        assert results(run, len(seen)) == seen
    for name in ("h1", "h2"):
        left = hosts.exec(name, ["sh", "-c", "ls -d /run/lock/jupyter-dist-gpus /tmp/jupyter-dist-gpus; :"])
        assert "jupyter-dist-gpus" in str(left)


CHOOSES = """
import os, sys
def seen():
    return os.environ["CUDA_VISIBLE_DEVICES"], os.environ.get("JUPYTER_DIST_GPUS")

before = seen()
import horovod.torch as hvd
import torch
import jupyter_dist as dist

hvd.init()
chosen = []
torch.cuda.device_count, torch.cuda.set_device = lambda: 2, chosen.append
torch.cuda.is_available = lambda: True
torch.cuda._queued_calls[-1][0]()  # as CUDA does when it begins
(before, seen(), chosen, str(dist.device()), hvd.local_rank())
"""


@pytest.mark.needs("horovod", "torch")
@pytest.mark.parametrize("elastic", [{}, {"min_np": 2}], ids=["static", "elastic"])
def test_cells_for_horovod_choose_by_the_local_rank(
    fake_gpus: FakeGpus, tmp_path: Path, elastic: dict[str, int]
) -> None:
    """`torch.cuda.set_device(hvd.local_rank())` leads each to a GPU of its own, as leaving it out does."""
    fake_gpus.are(2)
    hosts = [{"name": "localhost", "slots": 2}]
    run = launch_cell("ssh", CHOOSES, 2, {"hosts": hosts, "remote_dir": str(tmp_path / "hosts"), **elastic})
    assert ended(run).state is State.SUCCEEDED, story(run)
    assert results(run) == [((own, "1"), ("0,1", None), [int(own)], f"cuda:{own}", int(own)) for own in "01"]


@pytest.mark.parametrize("used", [False, True])
def test_cuda_that_was_used_before_horovod_was_imported(
    used: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has read which GPUs there are, and does not read it again: they stay as they are, which is told."""
    environ = {"CUDA_VISIBLE_DEVICES": "1", "JUPYTER_DIST_GPUS": "1"}
    monkeypatch.setattr(os, "environ", environ)
    by_local_rank.offer(environ, ("0", "1"))
    monkeypatch.setattr(os, "readlink", lambda path: "/dev/nvidia-uvm" if used else "/dev/nvidiactl")
    init = SimpleNamespace()
    basics = SimpleNamespace(HorovodBasics=SimpleNamespace(init=init))
    by_local_rank.patch_horovod(basics)
    before, together = (
        {"CUDA_VISIBLE_DEVICES": "1", "JUPYTER_DIST_GPUS": "1"},
        {"CUDA_VISIBLE_DEVICES": "0,1"},
    )
    assert environ == (before if used else together)
    assert (basics.HorovodBasics.init is init) is used
    assert ("Import horovod first" in capsys.readouterr().out) is used


LOOKS = """
import os
def look():
    return os.environ["CUDA_VISIBLE_DEVICES"], os.environ.get("JUPYTER_DIST_GPUS")
"""
MODULE = "def device():\n    import os\n    return 'cuda:' + os.environ['LOCAL_RANK']\n"


@pytest.mark.parametrize(
    ("code", "alone"),
    [
        ("os.environ['LOCAL_RANK']", False),
        ("os.environ.get('OMPI_COMM_WORLD_LOCAL_RANK')", True),
        ("import jupyter_dist as dist\ndist.local_rank()", True),
        ("if False: import accelerate", False),
        ("if False: transformers.TrainingArguments('out')", False),
        ("'words to accelerate learning'  # to accelerate it", True),
    ],
    ids=["environment", "another variable", "dist", "accelerate", "trainer", "the word alone"],
)
def test_code_that_chooses_by_the_local_rank_sees_the_gpus_of_all_ranks(
    fake_gpus: FakeGpus, code: str, alone: bool
) -> None:
    """`cuda:LOCAL_RANK` is right as under torchrun, and `cuda:0` in other code is the rank's own GPU."""
    fake_gpus.are(2)
    run = launch_cell("local", f"{LOOKS}\n{code}\nlook()", 2)
    assert ended(run).state is State.SUCCEEDED, story(run)
    assert results(run) == ([("0", "1"), ("1", "1")] if alone else [("0,1", None)] * 2)


def test_ranks_with_several_gpus_see_those_of_others_only_by_the_local_rank(fake_gpus: FakeGpus) -> None:
    """accelerate spreads a model over all GPUs that it sees: `device_map="auto"`."""
    fake_gpus.are(4)
    own = "from jupyter_dist.worker.gpus import by_local_rank\nlook(), by_local_rank.own(4)"
    run = launch_cell("local", f"{LOOKS}\nos.environ['LOCAL_RANK']\n{own}", 2, {"gpus_per_worker": 2})
    assert ended(run).state is State.SUCCEEDED, story(run)
    assert results(run) == [(("0,1,2,3", None), 0), (("0,1,2,3", None), 2)]
    run = launch_cell("local", f"{LOOKS}\nif False: import accelerate\nlook()", 2, {"gpus_per_worker": 2})
    assert ended(run).state is State.SUCCEEDED, story(run)
    assert results(run) == [("0,1", "2"), ("2,3", "2")]


def test_a_module_of_the_notebook_chooses_by_the_local_rank(
    fake_gpus: FakeGpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_gpus.are(2)
    (tmp_path / "devices_of_test.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    run = launch_cell("local", f"{LOOKS}\nimport devices_of_test\nlook(), devices_of_test.device()", 2)
    assert ended(run).state is State.SUCCEEDED, story(run)
    assert results(run) == [(("0,1", None), f"cuda:{rank}") for rank in range(2)]


@pytest.mark.needs("torch")
@pytest.mark.parametrize("kept", [True, False], ids=["made before", "imported for another cell"])
def test_an_object_of_accelerate_chooses_by_the_local_rank(fake_gpus: FakeGpus, kept: bool) -> None:
    """It comes from an earlier cell, so that the cell's text does not name the library."""
    from accelerate.utils import DistributedType

    fake_gpus.are(2)
    names = {"kind": DistributedType.NO if kept else 5}
    run = launch_cell("local", f"{LOOKS}\nlook(), str(kind)", 2, {}, names)
    assert ended(run).state is State.SUCCEEDED, story(run)
    assert [seen for seen, _ in results(run)] == ([("0,1", None)] * 2 if kept else [("0", "1"), ("1", "1")])
