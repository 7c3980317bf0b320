"""What a cell calls on a rank, in the notebook itself, on one rank and on several real processes."""

from __future__ import annotations

import json
import math
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import jupyter_dist as dist
from jupyter_dist.worker import api
from jupyter_dist.worker.api.torch_devices import shares_gpu
from jupyter_dist.worker.output import events as _events
from jupyter_dist.worker.output import progress_meter
from jupyter_dist.worker.output.logged_media import HISTOGRAM
from tests.rigs.rank_maker import alone


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """This process records like a rank; call the fixture for what it has recorded."""
    monkeypatch.setattr(api._state, "step", -1)
    path = tmp_path / "events.jsonl"
    _events.open_writer(str(path))
    yield lambda: [json.loads(line) for line in path.read_text().splitlines()]
    _events.close()


def test_outside_a_run_it_is_the_only_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert (dist.rank(), dist.world_size(), dist.local_rank(), dist.local_world_size()) == (0, 1, 0, 1)
    assert dist.attempt() == 0
    dist.log(loss=0.5)
    dist.barrier()
    assert list(dist.progress([1, 2])) == [1, 2]
    assert dist.shard([1, 2, 3]) == [1, 2, 3]
    assert dist.checkpoint_dir() == tmp_path / "checkpoints"
    assert dist.checkpoint_dir().is_dir()


def test_in_a_run_it_is_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": 5, "WORLD_SIZE": 8, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 4}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("JUPYTER_DIST_ATTEMPT", "2")
    assert (dist.rank(), dist.world_size(), dist.local_rank(), dist.local_world_size()) == (5, 8, 1, 4)
    assert dist.attempt() == 2


def test_log_counts_its_own_steps(events: Callable[[], list[dict[str, Any]]]) -> None:
    dist.log(loss=0.5, n=3)
    dist.log({"val/loss": 1}, acc=True, step=10)
    dist.log(loss=0.25)
    dist.log({}, step=12)
    dist.log(step=13, large=2**53 + 1, huge=10**400, most_negative=-(10**400))
    assert events()[3]["values"] == {"large": 2**53 + 1, "huge": "Infinity", "most_negative": "-Infinity"}
    assert [(e["step"], e["values"]) for e in events()[:3]] == [
        (0, {"loss": 0.5, "n": 3}),
        (10, {"val/loss": 1, "acc": 1}),
        (11, {"loss": 0.25}),
    ]


def test_log_takes_scalars_of_the_libraries(events: Callable[[], list[dict[str, Any]]]) -> None:
    dist.log(
        f64=np.float64(0.1),
        f32=np.float32(0.5),
        i64=np.int64(7),
        b=np.bool_(True),
        zero_d=np.array(2.5),
        nan=math.nan,
        inf=np.float64("inf"),
        ninf=-math.inf,
        step=np.int32(4),
    )
    (event,) = events()
    assert event["step"] == 4
    assert event["values"] == {
        **{"f64": 0.1, "f32": 0.5, "i64": 7, "b": 1, "zero_d": 2.5},
        **{"nan": "NaN", "inf": "Infinity", "ninf": "-Infinity"},
    }


@pytest.mark.parametrize("values", [[1.0, 1 - 2**-53], [1_700_000_000_000_000_000] * 2, [0.0]])
def test_log_takes_a_histogram_of_values_that_hardly_differ(
    events: Callable[[], list[dict[str, Any]]], values: list[float]
) -> None:
    """As the sums of a softmax in float64."""
    dist.log(histogram={"sums": np.array(values)})
    told = events()[-1]["data"][HISTOGRAM]["json"]
    assert sum(told["counts"]) == len(values)
    assert told["low"] < min(values) <= max(values) < told["high"]


@pytest.mark.needs("torch")
def test_log_takes_torch_scalars(events: Callable[[], list[dict[str, Any]]]) -> None:
    import torch

    loss = torch.tensor(0.5, requires_grad=True)
    half = torch.tensor(0.25, dtype=torch.bfloat16)
    dist.log(loss=loss, half=half, hit=torch.tensor(True), step=torch.tensor(3))
    (event,) = events()
    assert (event["step"], event["values"]) == (3, {"loss": 0.5, "half": 0.25, "hit": 1})
    with pytest.raises(TypeError, match=r"'loss' is a torch\.Tensor of shape \(2,\).*mean"):
        dist.log(loss=torch.zeros(2))


@pytest.mark.needs("tensorflow")
def test_log_takes_tensorflow_scalars(tmp_path: Path) -> None:
    code = """
import tensorflow as tf
from jupyter_dist.worker.output import events
events.open_writer("events.jsonl")
counter = tf.Variable(7, dtype=tf.int64)
dist.log(loss=tf.constant(0.5), half=tf.constant(0.25, tf.bfloat16), count=counter, step=counter)
for bad in (tf.zeros([2]), tf.constant("text")):
    try:
        dist.log(loss=bad)
    except TypeError as error:
        assert "'loss'" in str(error), error
    else:
        raise AssertionError(bad)
@tf.function
def step(x):
    dist.log(loss=x)
try:
    step(tf.constant(1.0))
except TypeError as error:
    print("SymbolicTensor" in str(error))
"""
    assert alone(code, tmp_path).split() == ["True"]
    (event,) = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert (event["step"], event["values"]) == (7, {"loss": 0.5, "half": 0.25, "count": 7})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"loss": "0.3"}, r"'loss' is a str, which is not a number"),
        ({"a": 1, "loss": None}, r"'loss' is a NoneType"),
        ({"loss": 1j}, r"'loss' is a complex"),
        ({"loss": [1.0]}, r"'loss' is a list"),
        ({"loss": np.ones(1)}, r"'loss' is a numpy\.ndarray of shape \(1,\)"),
        ({"loss": np.str_("x")}, r"'loss' is a numpy\.str_"),
        ({"loss": pd.Series([1.0])}, r"'loss' is a pandas\.Series of shape \(1,\)"),
        ({3: 1.0}, r"the name of a metric is a str, not 3 \(int\)"),
        (0.3, r"a dict of metrics or keywords, not a float"),
    ],
)
@pytest.mark.parametrize("in_run", [True, False])
def test_log_refuses_what_is_not_a_number(
    values: Any, message: str, in_run: bool, request: pytest.FixtureRequest
) -> None:
    recorded = request.getfixturevalue("events") if in_run else list
    with pytest.raises(TypeError, match=message):
        dist.log(values)
    assert recorded() == []


def test_log_refuses_a_step_that_is_not_an_int(events: Callable[[], list[dict[str, Any]]]) -> None:
    for step in (1.5, "3", [1]):
        with pytest.raises(TypeError, match="step is a"):
            dist.log(loss=0.1, step=step)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="64 bits"):
        dist.log(loss=0.1, step=1 << 63)
    assert events() == []


def test_log_costs_at_most_ten_microseconds(events: Callable[[], list[dict[str, Any]]]) -> None:
    """Of a CPU's time, the kernel's for the file included: what others do beside it makes no difference."""

    def cost() -> float:
        start = time.thread_time()
        for step in range(500):
            dist.log(loss=0.123456, step=step)
        return (time.thread_time() - start) / 500

    assert min(cost() for _ in range(20)) <= 10e-6
    assert len(events()) == 10_000


def counts(events: list[dict[str, Any]], id: int = 0) -> list[tuple[int, int | None]]:
    return [(e["n"], e["total"]) for e in events if e["kind"] == "progress" and e["id"] == id]


def test_progress_reports_first_and_last(events: Callable[[], list[dict[str, Any]]]) -> None:
    items = list(range(1000))
    bar = dist.progress(items, desc="épisode")
    assert list(bar) == items
    assert len(bar) == 1000  # type: ignore[arg-type]
    found = counts(events())
    assert found[0] == (0, 1000)
    assert found[-1] == (1000, 1000)
    assert events()[0]["desc"] == "épisode"
    assert list(bar) == items, "it can be iterated again"


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time passes between the items of a loop."""
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    monkeypatch.setattr(progress_meter, "_hold", lambda meter: None)


def test_progress_reports_at_most_ten_times_a_second(
    events: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for _ in dist.progress(range(1000)):
        now += 0.001
    found = counts(events())
    assert found[-1] == (1000, 1000)
    assert 9 <= len(found) <= 12


@pytest.mark.usefixtures("at_once")
def test_progress_of_what_has_no_length(events: Callable[[], list[dict[str, Any]]]) -> None:
    class Refuses:
        def __len__(self) -> int:
            raise TypeError("infinite")

        def __iter__(self) -> Iterator[str]:
            return iter("ab")

    assert list(dist.progress(x for x in "abc")) == ["a", "b", "c"]
    assert list(dist.progress(Refuses())) == ["a", "b"]
    assert list(dist.progress((x for x in "abc"), total=3)) == ["a", "b", "c"]
    assert counts(events()) == [(0, None), (3, None), (0, None), (2, None), (0, 3), (3, 3)]
    with pytest.raises(TypeError, match="not a int"):
        dist.progress(3)  # type: ignore[arg-type]


@pytest.mark.usefixtures("at_once")
def test_progress_takes_counts_and_texts_of_other_kinds(events: Callable[[], list[dict[str, Any]]]) -> None:
    others: Any = {"total": np.int64(2), "desc": Path("data")}
    assert list(dist.progress(iter("ab"), **others)) == ["a", "b"]
    assert counts(events()) == [(0, 2), (2, 2)]
    assert events()[0]["desc"] == "data"
    with pytest.raises(TypeError, match="'total' is a str"):
        dist.progress("ab", total="2")  # type: ignore[arg-type]


def test_progress_says_where_a_loop_stopped(events: Callable[[], list[dict[str, Any]]]) -> None:
    for item in dist.progress(range(10)):
        if item == 4:
            break
    assert counts(events())[-1] == (4, 10)

    def fail() -> None:
        for item in dist.progress(range(10)):
            if item == 7:
                raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        fail()
    assert counts(events())[-1] == (7, 10)

    def broken() -> Iterator[int]:
        yield 1
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        list(dist.progress(broken()))
    assert counts(events())[-1] == (1, None)


@pytest.mark.usefixtures("at_once")
def test_progress_within_progress_keeps_two_bars(events: Callable[[], list[dict[str, Any]]]) -> None:
    for _ in dist.progress(range(3), desc="epochs"):
        for _ in dist.progress("ab", desc="batches"):
            pass
    assert {(e["id"], e["desc"]) for e in events()} == {(0, "epochs"), (1, "batches")}
    assert counts(events(), 1) == [(0, 2), (2, 2)] * 3
    assert counts(events(), 0)[-1] == (3, 3)


def test_checkpoint_dir_is_private_and_outlives_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_DIST_RUN", str(tmp_path))
    before = os.umask(0)
    try:
        path = dist.checkpoint_dir()
    finally:
        os.umask(before)
    assert path == tmp_path / "checkpoints"
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    (path / "model.pt").write_bytes(b"weights")
    monkeypatch.setenv("JUPYTER_DIST_ATTEMPT", "1")
    monkeypatch.setenv("RANK", "1")
    assert (dist.checkpoint_dir() / "model.pt").read_bytes() == b"weights"


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for call in (dist.init, dist.device):
        with pytest.raises(
            ModuleNotFoundError, match=rf"dist\.{call.__name__}\(\) needs PyTorch.*pip install torch"
        ):
            call()


class FakeCuda:
    """torch with as many GPUs as a test wants; there is none on this machine."""

    def __init__(self, count: int) -> None:
        self.cuda = self
        self.count = count

    def is_available(self) -> bool:
        return self.count > 0

    def device_count(self) -> int:
        return self.count

    def device(self, kind: str, index: int | None = None) -> str:
        return kind if index is None else f"{kind}:{index}"


@pytest.mark.parametrize(
    ("gpus", "visible", "local_rank", "expected"),
    [
        ("1", 1, "3", "cuda:0"),
        ("2", 2, "1", "cuda:0"),
        ("0", 4, "1", "cpu"),
        ("1", 0, "0", "cpu"),
        (None, 4, "3", "cuda:3"),
        (None, 2, "3", "cuda:1"),
        (None, 0, "0", "cpu"),
    ],
)
def test_device_is_the_rank_s_own_gpu(
    gpus: str | None, visible: int, local_rank: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", FakeCuda(visible))
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    if gpus is not None:
        monkeypatch.setenv("JUPYTER_DIST_GPUS", gpus)
    assert str(dist.device()) == expected


@pytest.mark.parametrize(
    ("gpus", "visible", "ranks", "shares"),
    [("1", 1, 2, False), ("2", 2, 2, False), ("0.5", 1, 2, True), (None, 2, 2, False), (None, 1, 2, True)],
)
def test_ranks_that_share_a_gpu_know_it(
    gpus: str | None, visible: int, ranks: int, shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dist.init()` takes gloo then, because NCCL refuses to open a group: "Duplicate GPU detected"."""
    if gpus is not None:
        monkeypatch.setenv("JUPYTER_DIST_GPUS", gpus)
    assert shares_gpu(FakeCuda(visible), ranks) is shares


@pytest.mark.parametrize(("tasks", "gpus", "shares"), [("2", "2", False), ("2", "1", True), ("1", "2", True)])
def test_a_rank_of_srun_sees_its_own_gpu_alone(
    tasks: str, gpus: str, shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --gpus-per-task. A step with one task is JupyterLab's, and says nothing about the ranks."""
    monkeypatch.delenv("JUPYTER_DIST_GPUS", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", tasks)
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", gpus)
    assert shares_gpu(FakeCuda(1), 2) is shares


@pytest.mark.parametrize("daemon", [False, True])
def test_a_rank_that_waits_for_a_thread_says_so(daemon: bool) -> None:
    """The thread ends when its standard input does. The rank does not wait for a daemon."""
    code = f"""
import sys, threading
from jupyter_dist.worker import boot
boot._EXIT_MAY_TAKE_S = 0.05
threading.Thread(target=sys.stdin.read, name="loader", daemon={daemon}).start()
boot.end(0, orderly=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stderr is not None
    with process:
        said = process.stderr.readline()
        process.stdin.close()
    assert process.returncode == 0
    assert ("this rank waits for its threads: 'loader'" in said) is not daemon


def test_an_epoch_of_a_pipe_is_its_own_fifo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SageMaker makes the next one when somebody has read the one before."""
    path, modes = tmp_path / "Training", {"Training": {"TrainingInputMode": "Pipe"}}
    monkeypatch.setenv("SM_CHANNEL_TRAINING", str(path))
    monkeypatch.setenv("SM_INPUT_DATA_CONFIG", json.dumps(modes))
    os.mkfifo(tmp_path / "Training_0")

    def serve() -> None:
        for epoch in range(2):
            fifo = tmp_path / f"Training_{epoch}"
            if epoch:
                (tmp_path / "Training_0").unlink()
                os.mkfifo(fifo)
            fifo.write_text(f"epoch {epoch}")

    service = threading.Thread(target=serve, daemon=True)
    service.start()
    assert [dist.input("training", epoch=epoch).read_text() for epoch in range(2)] == ["epoch 0", "epoch 1"]
    service.join()
    with pytest.raises(ValueError, match="count from 0"):
        dist.input("training", epoch=-1)
    monkeypatch.setenv("SM_INPUT_DATA_CONFIG", "{}")
    (tmp_path / "Training_1").unlink()
    assert dist.input("training", epoch=1) == path, "a folder is the same in each epoch"
