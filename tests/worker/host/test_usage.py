"""What ranks take of their hosts: noted beside their logs, by one process for all of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import jupyter_dist
from jupyter_dist import queries
from jupyter_dist.conformance.deadlines import Deadline
from jupyter_dist.record.metrics.usage_points import parse_usage
from jupyter_dist.worker import boot
from jupyter_dist.worker.gpus.nvml import Nvml
from jupyter_dist.worker.host.usage import HostUsage
from tests.rigs.run_maker import RunMaker

# Of a session of its own, as a rank is: burns a core, and so does its child.
_BUSY = """
import os, sys
sys.stdout.write("ready\\n"); sys.stdout.flush()
block = bytearray(50_000_000)
if os.fork() == 0:
    block = bytearray(30_000_000)
while os.getppid() != 1:
    pass
"""


@pytest.fixture
def make(own_folders: Path) -> Callable[..., RunMaker]:
    return partial(RunMaker, own_folders)


@pytest.fixture
def busy(make: Callable[..., RunMaker]) -> Iterator[tuple[RunMaker, subprocess.Popen[bytes]]]:
    run = make(2)
    with run.rank(0).output.open("wb") as log:
        process = subprocess.Popen([sys.executable, "-c", _BUSY], stdout=log, start_new_session=True)
    try:
        run.event(0, "started", pid=process.pid, host="here", clock_offset_s=1000.0)
        # A number that another process has here: rank 1 is on another host.
        run.event(1, "started", pid=os.getpid(), host="elsewhere")
        yield run, process
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def test_a_host_notes_what_its_ranks_take(busy: tuple[RunMaker, subprocess.Popen[bytes]]) -> None:
    run, process = busy
    usage = HostUsage(str(run.folder.path))
    deadline = Deadline()
    while not run.rank(0).output.read_bytes():
        assert not deadline.passed(), "the process says nothing"
        time.sleep(0.01)
    while True:
        assert not deadline.passed(), "the process takes too little"
        usage._due = 0.0
        usage.tick(time.monotonic())
        samples = list(parse_usage(run.rank(0).usage.read_bytes())) if run.rank(0).usage.exists() else []
        if samples and samples[-1][1]["memory"] > 80_000_000 and samples[-1][1]["cpu"] > 0:
            break
        time.sleep(0.2)
    when, values = samples[-1]
    assert abs(when - time.time() - 1000) < 20  # by the clock of the machine that the run was started from
    assert 0 < values["cpu"] <= 100 * (os.cpu_count() or 1) + 20
    assert 80_000_000 < values["memory"] < 400_000_000
    assert values["net_in"] >= 0 <= values["net_out"]
    assert not run.rank(1).usage.exists()
    process.kill()
    process.wait()
    size = run.rank(0).usage.stat().st_size
    usage._due = 0.0
    usage.tick(time.monotonic())
    assert run.rank(0).usage.stat().st_size == size


def test_a_rank_that_begins_after_another_is_noted_as_well(make: Callable[..., RunMaker]) -> None:
    """Its process was there before, when nothing told whose it was."""
    run, processes = make(2), []
    usage = HostUsage(str(run.folder.path))
    try:
        for rank in range(2):
            with run.rank(rank).output.open("wb") as log:
                processes.append(subprocess.Popen(["sleep", "60"], stdout=log, start_new_session=True))
        for rank in (1, 0):
            run.event(rank, "started", pid=processes[rank].pid, host="here")
            for _ in range(2):
                usage._due = 0.0
                usage.tick(time.monotonic())
            assert run.rank(rank).usage.exists(), rank
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.parametrize(("look_s", "looks"), [(0.001, 360), (0.02, 60), (0.5, 3)])
def test_asking_takes_little_of_a_core(
    busy: tuple[RunMaker, subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    look_s: float,
    looks: int,
) -> None:
    """However long a look takes, the next one waits until it is no more than 0.2 %."""
    run, _ = busy
    usage = HostUsage(str(run.folder.path))
    spent: list[float] = []

    def look(now: float, sample: Callable[[float], None] = usage._sample) -> None:
        sample(now)
        spent.append(look_s)

    monkeypatch.setattr(usage, "_sample", look)
    clock = SimpleNamespace(thread_time=lambda: sum(spent), monotonic=time.monotonic, time=time.time)
    monkeypatch.setattr("jupyter_dist.worker.host.usage.time", clock)
    began = time.monotonic()
    for tenth in range(6_000):  # ten minutes, in which nothing but this clock goes on
        usage.tick(began + tenth / 10)
    assert len(spent) == looks


def test_usage_for_views_and_in_metrics(make: Callable[..., RunMaker]) -> None:
    run = make(2)
    run.print(0, "hello\n")
    with run.rank(0).usage.open("w") as file:
        for second in range(100):
            values = {"cpu": float(second), "memory": 1000, **({"gpu": 50} if second > 50 else {})}
            file.write(json.dumps({"time": 1000.0 + second, "values": values}) + "\n")
        file.write('{"time": 5, "torn')
    one, other = queries.usage(run.folder.id, points=11)["ranks"]
    assert [series["name"] for series in one["series"]] == ["cpu", "memory", "gpu"]
    cpu = one["series"][0]["values"]
    assert (cpu[0], cpu[-1], one["times"][-1], len(cpu)) == (4.5, 99.0, 1099.0, 11)
    assert one["series"][2]["values"][0] is None
    assert one["last_sign"] is not None
    assert (other["series"], other["last_sign"]) == ([], None)
    assert [s["values"] for s in queries.usage(run.folder.id, points=1)["ranks"][0]["series"]] == [
        [99.0],
        [1000.0],
        [50.0],
    ]
    watch = queries.RunChanges([run.folder.id])
    assert {"kind": "usage", "id": run.folder.id} in watch.poll()
    run.metric(0, 3, {"loss": 0.5})
    attached = jupyter_dist.attach(run.folder.id)
    frame = attached.system_metrics
    assert list(frame.columns) == list(attached.metrics.columns)
    # Who sorts a training's metrics by their steps does not meet those of machines, which have none.
    assert set(attached.metrics["name"]) == {"loss"}
    assert set(frame["name"]) == {"system/cpu", "system/memory", "system/gpu"}
    assert frame[frame["name"] == "system/gpu"]["value"].tolist() == [50.0] * 49
    assert queries.curves(run.folder.id)["names"] == ["loss"]


_NVML = """
#include <string.h>
typedef struct { unsigned gpu, memory; } rates;
typedef struct { unsigned long long total, free, used; } memory;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)(long)(i + 1); return i > 3; }
int nvmlDeviceGetHandleByUUID(const char *u, void **h) { *h = (void *)9L; return strcmp(u, "MIG-a"); }
int nvmlDeviceGetUtilizationRates(void *h, rates *r) { r->gpu = 10 * (int)(long)h; return (long)h == 9; }
int nvmlDeviceGetMemoryInfo(void *h, memory *m) { m->used = 5000000000ULL * (long)h; return 0; }
"""


def test_gpus_are_asked_of_the_driver(tmp_path: Path) -> None:
    """Against a library with NVML's functions, as its header declares them."""
    source, library = tmp_path / "nvml.c", tmp_path / "libnvml.so"
    source.write_text(_NVML)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    driver = Nvml(str(library))
    assert driver.usage(["0", "2"]) == {"gpu": 20.0, "gpu_memory": 20_000_000_000}
    assert driver.usage(["MIG-a"]) == {"gpu_memory": 45_000_000_000}
    assert driver.usage(["7", "GPU-unknown"]) == {}
    with pytest.raises(OSError, match="is not NVML"):
        Nvml("libc.so.6")


@pytest.mark.parametrize(
    ("environ", "gpus"),
    [
        ({"CUDA_VISIBLE_DEVICES": "2,3", "JUPYTER_DIST_GPUS": "2", "LOCAL_RANK": "1"}, ["2", "3"]),
        ({"CUDA_VISIBLE_DEVICES": "-1", "JUPYTER_DIST_GPUS": "0"}, []),
        ({"CUDA_VISIBLE_DEVICES": "4,5", "LOCAL_RANK": "1"}, ["5"]),
        ({"LOCAL_RANK": "3"}, ["3"]),
    ],
)
def test_a_rank_says_which_gpus_are_its_own(environ: dict[str, str], gpus: list[str]) -> None:
    assert boot._gpus(environ) == gpus
