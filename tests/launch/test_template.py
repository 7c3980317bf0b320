"""Warm starts: as fast as a fork, and in every other respect like a cold start."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.capture.payload_builder import capture_cell
from jupyter_dist.conformance.deadlines import run_process
from jupyter_dist.folder import RunFolder, runs
from jupyter_dist.job import State, Status
from jupyter_dist.launch import submission, template
from jupyter_dist.options import RunOptions
from jupyter_dist.record import reader
from tests.rigs.gates import Gates
from tests.rigs.launching import launch_cell, results
from tests.rigs.stopwatch import WaitFor

pytestmark = pytest.mark.usefixtures("own_template")


def run(
    source: str, wait_for: WaitFor, *, np: int = 2, backend: str = "local", **request: Any
) -> tuple[RunFolder, Status]:
    folder = launch_cell(backend, source, np, **{"cold": False, **request})
    wait_for(lambda: reader.status(folder).state.ended, "the run's end")
    return folder, reader.status(folder)


def template_pid() -> int:
    assert template._template is not None
    return template._template.pid


FACTS = """
import os, random, signal, sys, tempfile
facts = {
    "main": __name__ == "__main__" and sys.modules["__main__"].__dict__ is globals(),
    "names": sorted(name for name in globals() if not name.startswith("__")),
    "cwd": os.getcwd(),
    "umask": os.umask(0o077),
    "environ": {
        k: v for k, v in os.environ.items()
        if k not in (
            *("MASTER_PORT", "TF_CONFIG", "HOROVOD_GLOO_RENDEZVOUS_PORT"),
            *("JUPYTER_DIST_RUN_ID", "JUPYTER_DIST_RUN", "_"),
        )
    },
    "signals": [
        str(signal.getsignal(getattr(signal, "SIG" + s))) for s in ("INT", "CHLD", "HUP", "USR1", "PIPE")
    ],
    "blocked": signal.pthread_sigmask(signal.SIG_BLOCK, []),
    "leader": os.getsid(0) == os.getpgrp() == os.getpid(),
    "argv": sys.argv,
    "stdin": sys.stdin.read(),
    "tmp": tempfile.gettempdir(),
    "fds": sorted(
        os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))
        for fd in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{fd}")
    ),
    "encoding": (sys.stdout.encoding, sys.stderr.errors, sys.stdout.line_buffering),
}
facts
"""


def test_a_forked_rank_cannot_be_told_from_a_fresh_one(
    wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    run("1", wait_for)  # the template is older than what follows
    there = tmp_path / "elsewhere"
    there.mkdir()
    monkeypatch.chdir(there)
    monkeypatch.setenv("FRESH", "yes")
    monkeypatch.delenv("IPYTHONDIR")
    umask = os.umask(0o027)
    try:
        warm_folder, warm = run(FACTS, wait_for, env={"MINE": "1"})
        cold_folder, cold = run(FACTS, wait_for, env={"MINE": "1"}, cold=True)
    finally:
        os.umask(umask)
    assert (warm.warm, cold.warm) == (True, False)
    for forked, fresh in zip(results(warm_folder), results(cold_folder), strict=True):
        assert {k: v for k, v in forked.items() if v != fresh[k]} == {}
    assert results(warm_folder)[0]["cwd"] == str(there)


@pytest.mark.needs("torch")
def test_random_numbers_and_threads_are_the_ranks_own(wait_for: WaitFor) -> None:
    source = """
import os, random, numpy, torch
draws = (random.random(), float(numpy.random.rand()), float(torch.rand(1)), torch.initial_seed())
float((torch.randn(400, 400) @ torch.randn(400, 400)).sum())
(draws, torch.get_num_threads(), os.environ["OMP_NUM_THREADS"])
"""
    folders = [run(source, wait_for, env={"PLAIN": "1"}) for _ in range(2)]
    assert all(status.warm for _, status in folders)
    drawn = [result for folder, _ in folders for result in results(folder)]
    for column in zip(*(draws for draws, _, _ in drawn), strict=True):
        assert len(set(column)) == 4
    for _, threads, omp in drawn:
        assert threads == int(omp)


@pytest.mark.needs("torch")
def test_ranks_train_together_warm(wait_for: WaitFor) -> None:
    source = """
import torch, torch.distributed as td
import jupyter_dist as dist
dist.init()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 8))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(5):
    loss = model(torch.randn(32, 64)).exp().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
[float(p.detach().sum()) for p in model.parameters()]
"""
    folder, status = run(source, wait_for)
    assert (status.state, status.warm) == (State.SUCCEEDED, True)
    first, second = results(folder)
    assert first == second


def test_a_variable_that_is_read_at_import_starts_cold_and_says_why(wait_for: WaitFor) -> None:
    folder, status = run("import os; os.environ['KERAS_BACKEND']", wait_for, env={"KERAS_BACKEND": "torch"})
    assert not status.warm
    assert results(folder) == ["torch", "torch"]
    assert "KERAS_BACKEND is read at import" in folder.supervisor_log.read_text()


def test_such_a_variable_set_in_the_notebook_makes_another_template(
    wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("1", wait_for)
    first = template_pid()
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    _, status = run("1", wait_for)
    assert status.warm
    assert template_pid() != first
    wait_for(lambda: reader.start_ticks(first) is None, "the old template's end")


def test_an_import_that_starts_a_thread_is_left_to_the_ranks(
    wait_for: WaitFor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    template._current().preload(["json", "threaded"])
    _, status = run("1", wait_for)
    assert status.warm
    assert template._poisoned == {"threaded": "an import has started 1 threads"}


def test_a_run_is_pending_for_as_long_as_the_template_imports(
    wait_for: WaitFor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates = Gates(tmp_path)
    (tmp_path / "slow.py").write_text(gates.source + "gate('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(template, "_SIGN_S", 0.2)
    template._current().preload(["slow"])
    with ThreadPoolExecutor(1) as pool:
        launched = pool.submit(launch_cell, "local", "1", cold=False)
        try:
            (folder,) = wait_for(lambda: list(runs()), what="the run's folder")
            wait_for(folder.job.exists, what="the job")
            for _ in range(3):
                # A run without a supervisor that is so old is lost, unless somebody says that he is at it.
                os.utime(folder.job, (0, 0))
                wait_for(lambda: folder.job.stat().st_mtime > 0, what="another sign")
                assert reader.status(folder).state is State.PENDING
            assert not launched.done()
        finally:
            gates.open("imported")
        assert launched.result().id == folder.id
    wait_for(lambda: reader.status(folder).state is State.SUCCEEDED, what="the run's end")


@pytest.mark.needs("pandas", "pyarrow")
def test_pandas_with_pyarrow_is_preloaded(wait_for: WaitFor) -> None:
    template._current().preload(["pandas"])
    _, status = run("1", wait_for)
    assert status.warm
    assert template._poisoned == {}


def test_a_broken_import_does_not_matter(wait_for: WaitFor) -> None:
    template._current().preload(["there_is_no_such_module"])
    _, status = run("1", wait_for)
    assert status.warm


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param(
            "mpi",
            marks=pytest.mark.skipif(
                shutil.which("mpirun") is None, reason="needs mpirun: apt-get install openmpi-bin"
            ),
        ),
        pytest.param("torchrun", marks=pytest.mark.needs("torch")),
    ],
)
def test_a_launchers_ranks_are_the_same_when_only_the_supervisor_is_a_fork(
    backend: str, wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SET_AFTER_THE_TEMPLATE", "no")
    run("1", wait_for)
    monkeypatch.setenv("SET_AFTER_THE_TEMPLATE", "yes")
    forked, status = run(FACTS, wait_for, backend=backend, env={"MINE": "yes"})
    assert (status.state, status.warm) == (State.SUCCEEDED, False)
    assert f"'{backend}' starts its own processes" in forked.supervisor_log.read_text()
    cold, _ = run(FACTS, wait_for, backend=backend, env={"MINE": "yes"}, cold=True)
    changing = re.compile("PORT|RUN_ID|JUPYTER_DIST|TF_|TORCHELASTIC|PMIX|OMPI|OLDPWD|SHLVL")
    for ours, theirs in zip(results(forked), results(cold), strict=True):
        for facts in (ours, theirs):
            facts["environ"] = {k: v for k, v in facts["environ"].items() if not changing.search(k)}
        assert ours == theirs
        assert (ours["environ"]["MINE"], ours["environ"]["SET_AFTER_THE_TEMPLATE"]) == ("yes", "yes")


def test_the_template_may_die_between_and_during_runs(wait_for: WaitFor) -> None:
    run("1", wait_for)
    os.kill(template_pid(), signal.SIGKILL)
    _, status = run("1", wait_for)
    assert (status.state, status.warm) == (State.SUCCEEDED, True)

    source = "import time\nprint('up')\ntime.sleep(1)\nprint('done')\n7"
    folder = launch_cell("local", source, cold=False)
    wait_for(lambda: all(b"up" in reader.output(folder, rank) for rank in (0, 1)), what="the ranks")
    os.kill(template_pid(), signal.SIGKILL)
    wait_for(lambda: reader.status(folder).state.ended, what="the run's end")
    assert reader.status(folder).state is State.SUCCEEDED
    assert [reader.output(folder, rank) for rank in (0, 1)] == [b"up\ndone\n"] * 2
    assert results(folder) == [7, 7]


def test_a_fork_that_has_left_its_rank_is_ended_with_the_run(wait_for: WaitFor) -> None:
    """It carries the environment of the template, in which the run's id is not."""
    source = """
import os, time
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    os.write(write, str(os.getpid()).encode())
    time.sleep(600)
    os._exit(0)
int(os.read(read, 20))
"""
    folder, status = run(source, wait_for, np=1)
    assert status.warm
    (pid,) = results(folder, 1)
    wait_for(lambda: reader.start_ticks(pid) is None, "its end")


def test_the_template_ends_with_its_kernel(wait_for: WaitFor) -> None:
    code = """
import os, signal
from jupyter_dist.launch import template
template._current().preload(["json"])
print(template._template.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    kernel = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    pid = int(kernel.stdout)
    wait_for(lambda: reader.start_ticks(pid) is None, "the template's end")


def test_the_template_ends_when_idle() -> None:
    code = """
import socket, sys
from jupyter_dist.launch import template
template._IDLE_S = 0.1
ours, theirs = socket.socketpair()
template._serve(theirs)
print("ended")
"""
    done = run_process([sys.executable, "-c", code], check=True)
    assert done.stdout == "ended\n"


def test_a_fork_of_the_kernel_leaves_the_template_alone(wait_for: WaitFor) -> None:
    run("1", wait_for)
    before = template_pid()
    child = os.fork()
    if child == 0:
        template.close()
        os._exit(0)
    os.waitpid(child, 0)
    _, status = run("1", wait_for)
    assert status.warm
    assert template_pid() == before


def test_a_run_of_tf_keras_in_place_of_keras_starts_cold(wait_for: WaitFor) -> None:
    source = "def f():\n    import horovod.tensorflow.keras\n1"
    payload = capture_cell(source, {}, label="In[1]", directory=Path.cwd())
    assert payload.header["legacy_keras"]
    for env, cold in (({"TF_USE_LEGACY_KERAS": "1"}, True), ({}, False)):
        wanted = RunOptions(env=env)
        folder = submission.launch(submission.Request("local", 1, source, "In[1]", {}, wanted), payload)
        wait_for(lambda folder=folder: reader.status(folder).state.ended, "the run's end")
        assert ("tf_keras in place of keras" in folder.supervisor_log.read_text()) is cold
