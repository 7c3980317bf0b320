"""HorovodRunner and TorchDistributor of `jupyter_dist.databricks` on this machine: values and errors.

What they do on a Spark is in backends/spark/test_notebook_session.py and in the notebook
spark-horovodrunner.ipynb.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_dist import databricks
from jupyter_dist.databricks import HorovodRunner, TorchDistributor, log_to_driver
from jupyter_dist.errors import InputError, RunFailed
from jupyter_dist.hosts import staged_files
from jupyter_dist.job import State
from tests.rigs.nvidia import FakeGpus


def train(lr: float, np: int = 5, backend: str = "mine", main: int = 0) -> list[Any]:
    import horovod.torch as hvd
    import torch

    hvd.init()
    log_to_driver(f"rank {hvd.rank()} trains" + 5000 * "!")
    total = hvd.allreduce(torch.tensor(float(hvd.rank())), op=hvd.Sum)
    return [hvd.rank(), hvd.size(), float(total), lr, np, backend]


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    """Name, default and kind of each parameter."""
    found = inspect.signature(function).parameters.values()
    return [(each.name, each.default, each.kind) for each in found]


def test_signatures_are_those_of_horovodrunner() -> None:
    """https://databricks.github.io/spark-deep-learning"""

    class Documented:
        def __init__(self, *, np: Any, driver_log_verbosity: Any = "log_callback_only") -> None: ...

        def run(self, main: Any, **kwargs: Any) -> Any: ...

    assert parameters(HorovodRunner.__init__) == parameters(Documented.__init__)
    assert parameters(HorovodRunner.run) == parameters(Documented.run)


@pytest.mark.needs("pyspark")
def test_signatures_are_those_of_pyspark() -> None:
    """Read from its text: its import needs more than a Spark."""
    import ast
    from importlib.util import find_spec

    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    tree = ast.parse((Path(spark.origin).parent / "ml" / "torch" / "distributor.py").read_text())
    (theirs,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "TorchDistributor")
    ours = ast.parse(inspect.getsource(TorchDistributor)).body[0]
    assert isinstance(ours, ast.ClassDef)

    def spelled(cls: ast.ClassDef, name: str) -> str:
        (found,) = (n for n in cls.body if isinstance(n, ast.FunctionDef) and n.name == name)
        for argument in ast.walk(found.args):
            if isinstance(argument, ast.arg):
                argument.annotation = None
        return ast.unparse(found.args).partition(", _ssl_conf")[0]

    for name in ("__init__", "run"):
        assert spelled(ours, name) == spelled(theirs, name)


@pytest.mark.needs("horovod", "torch")
def test_horovodrunner_on_the_driver() -> None:
    """Arguments that are called as options of ours are the function's."""
    runner = HorovodRunner(np=-2, driver_log_verbosity="all")
    assert runner.last_run is None
    assert runner.run(main=train, lr=0.1, np=7, backend="theirs") == [0, 2, 1.0, 0.1, 7, "theirs"]
    run = runner.last_run
    assert run is not None
    assert [result[0] for result in run.results] == [0, 1]
    assert run.log(1).startswith("rank 1 trains!!!")
    assert len(run.log(1)) == 4001


@pytest.mark.needs("torch")
def test_the_first_failure_is_what_is_raised() -> None:
    def fail(at: int) -> None:
        import os
        import time

        if int(os.environ["RANK"]) == at:
            raise ValueError(f"no digits at {at}")
        time.sleep(60)

    distributor = TorchDistributor(num_processes=2, local_mode=True, use_gpu=False)
    with pytest.raises(RunFailed, match=r"rank 1 failed first.*ValueError: no digits at 1") as raised:
        distributor.run(fail, at=1)
    assert raised.value.run is distributor.last_run
    assert distributor.last_run is not None
    assert distributor.last_run.state is State.FAILED


@pytest.mark.needs("torch")
def test_a_script_and_the_modules_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("FACTOR = 10\n")
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse, os, sys\n"
        "import beside\n"
        "if __name__ == '__main__':\n"
        "    parser = argparse.ArgumentParser()\n"
        "    parser.add_argument('--lr', type=float)\n"
        "    lr = parser.parse_args().lr\n"
        "    print(f\"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}: {lr * beside.FACTOR:g}\")\n"
        "    sys\n"
    )
    before = sys.path[:]
    distributor = TorchDistributor(2, True, False)
    assert distributor.run(str(script), "--lr", 0.5) is None
    assert sys.path == before
    assert distributor.last_run is not None
    assert [distributor.last_run.log(rank) for rank in (0, 1)] == ["rank 0 of 2: 5\n", "rank 1 of 2: 5\n"]


def test_no_more_processes_than_gpus(fake_gpus: FakeGpus, capsys: pytest.CaptureFixture[str]) -> None:
    fake_gpus.are(2)
    assert TorchDistributor(num_processes=3).num_processes == 2
    assert "the driver has only 2 GPUs, so 2 processes start instead of 3" in capsys.readouterr().err
    assert TorchDistributor(num_processes=3, use_gpu=False).num_processes == 3


RUNNER: Any = HorovodRunner
DISTRIBUTOR: Any = TorchDistributor


@pytest.mark.parametrize(
    ("call", "kind", "told"),
    [
        (lambda: RUNNER(np=1.5), ValueError, "np needs a whole number, got 1.5"),
        (lambda: RUNNER(np=2, driver_log_verbosity="none"), ValueError, "not 'none'"),
        (lambda: RUNNER(2), TypeError, "positional"),
        (lambda: RUNNER(np=0).run(train, lr=1), InputError, "-np 0 means all task slots"),
        (lambda: DISTRIBUTOR(0), ValueError, "whole number above 0, got 0"),
        (lambda: DISTRIBUTOR("2"), ValueError, "got '2'"),
        (lambda: DISTRIBUTOR(2), RuntimeError, "use_gpu=False"),
        (lambda: DISTRIBUTOR(2, use_gpu=False).run("t.py", lr=1), ValueError, "--lr=…"),
        (lambda: DISTRIBUTOR(2, use_gpu=False).run("none.py"), InputError, "cannot read 'none.py'"),
        (lambda: DISTRIBUTOR(2, use_gpu=False).run(train), InputError, "'lr'"),
        (lambda: DISTRIBUTOR(2, use_gpu=False).run(3), InputError, "needs a function"),
    ],
)
def test_bad_input(
    call: Callable[[], Any], kind: type[Exception], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The originals' kinds of errors, so that code which catches these goes on to."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(kind, match=told) as raised:
        call()
    assert isinstance(raised.value, InputError | TypeError)
    assert type(raised.value).__name__ in ("InputError", "TypeError")


def test_what_functions_import_on_a_far_rank_is_there(tmp_path: Path) -> None:
    import subprocess

    (tmp_path / "jupyter_dist").mkdir()
    (tmp_path / "jupyter_dist" / "__init__.py").write_bytes(staged_files._stub())
    (tmp_path / "jupyter_dist" / "databricks.py").write_bytes(staged_files._DATABRICKS)
    worker = Path(databricks.__file__).parent / "worker"
    (tmp_path / "jupyter_dist" / "worker").symlink_to(worker)
    code = "from jupyter_dist.databricks import log_to_driver; log_to_driver('there')"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "there\n", done.stderr


def test_the_callback_of_keras_tells_of_each_epoch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Callback:
        pass

    keras = SimpleNamespace(callbacks=SimpleNamespace(Callback=Callback))
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(keras=keras))
    callback: Any = databricks.LogCallback(per_batch_log=True)
    again: Any = databricks.LogCallback
    assert type(callback) is again  # one class, for a model that is saved with it
    assert Callback in again.__mro__
    callback.on_epoch_begin(3)
    callback.on_batch_end(0, {"loss": 0.25})
    callback.on_epoch_end(3, {"loss": 0.125, "accuracy": 1})
    assert capsys.readouterr().out.splitlines() == [
        *("epoch 3 begins", "epoch 3, batch 0: loss 0.25", "epoch 3 ends: loss 0.125, accuracy 1")
    ]
