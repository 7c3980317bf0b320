"""Ranks of a session that wait for others in a collective of TensorFlow: they leave, and keep their state."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_dist.job import State
from tests.rigs.gates import Gates
from tests.rigs.launching import ended, until
from tests.rigs.stopwatch import Stopwatch

from .conftest import Notebook
from .test_endings import pids
from .test_failures import waits_in

PRELOADED = ["tensorflow"]
pytestmark = [
    pytest.mark.needs("tensorflow"),
    pytest.mark.usefixtures("warm"),
    pytest.mark.xdist_group("sessions of TensorFlow"),
]

NAMES = """
import tensorflow as tf, os, time, jupyter_dist as dist
def total(strategy):
    @tf.function
    def one():
        return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.ones(1)))
    return float(one()[0])
"""
BEGIN = NAMES + "strategy = dist.strategy()\nkept = tf.Variable(float(dist.rank()))\ntotal(strategy)"
AGAIN = "strategy = dist.strategy()\nfloat(kept), total(strategy)"
IN_IT = "print('in it', flush=True)\n"


def test_the_others_leave_their_collective_when_a_rank_raises(notebook: Notebook) -> None:
    assert notebook.results(BEGIN, "--session -np 2") == [2.0, 2.0]
    before = pids()
    watch = Stopwatch()
    error = notebook.fails("if dist.rank() == 1: raise ValueError('planted')\ntotal(strategy)")
    assert watch.under(3)
    assert str(error).startswith("rank 1")
    assert "The collectives of TensorFlow were ended" in notebook.printed
    assert notebook.results(AGAIN) == [(0.0, 2.0), (1.0, 2.0)]
    assert pids() == before


def test_the_cell_that_makes_a_strategy_may_run_again(notebook: Notebook) -> None:
    code = f"{NAMES}strategy = tf.distribute.MultiWorkerMirroredStrategy()\ntotal(strategy)"
    assert notebook.results(code, "--session -np 2") == [2.0, 2.0]
    assert notebook.results(code.replace("tf.ones(1)", "tf.ones(3)")) == [2.0, 2.0]
    assert notebook.results("total(strategy)") == [2.0, 2.0]


def test_ranks_leave_a_collective_and_keep_their_state(notebook: Notebook) -> None:
    notebook.cell(BEGIN, "--session -np 2")
    before = pids()
    waits_in("in it", lambda folder: folder.request("interrupt"))
    watch = Stopwatch()
    notebook.fails(f"{IN_IT}if dist.rank() == 1:\n    while True: time.sleep(0.1)\ntotal(strategy)")
    assert watch.under(5)
    assert notebook.results(AGAIN) == [(0.0, 2.0), (1.0, 2.0)]
    assert pids() == before


@pytest.mark.parametrize("killed", [0, 1])
def test_the_others_stay_when_a_rank_was_killed(notebook: Notebook, killed: int) -> None:
    notebook.cell(BEGIN, "--session -np 2")
    before = pids()
    error = notebook.fails(f"if dist.rank() == {killed}: os.kill(os.getpid(), 9)\ntotal(strategy)")
    assert "SIGKILL" in str(error)
    run = notebook.cell("'kept' in globals()")
    assert run.results[killed] is False
    assert run.results[1 - killed] is True
    assert f"rank {killed} is a fresh process" in notebook.printed
    assert notebook.results(f"{NAMES}strategy = dist.strategy()\ntotal(strategy)") == [2.0, 2.0]
    assert pids()[1 - killed] == before[1 - killed]


def test_a_model_trains_on_with_its_weights(notebook: Notebook) -> None:
    build = (
        "def build():\n    with strategy.scope():\n"
        "        model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])\n"
        "        model.compile('sgd', 'mse')\n    return model\n"
        "x, y = tf.ones((8, 2)), tf.ones((8, 1))\n"
        "own, average = tf.VariableSynchronization.ON_READ, tf.VariableAggregation.MEAN\n"
        "with strategy.scope():\n    mean = tf.Variable(0.0, synchronization=own, aggregation=average)\n"
        "strategy.run(lambda: mean.assign(float(dist.rank())))\n"
    )
    fit = "model.fit(x, y, batch_size=4, verbose=0)"
    notebook.cell(f"{BEGIN}\n{build}model = build()\n{fit}", "--session -np 2")
    before = pids()
    waits_in("in it", lambda folder: folder.request("interrupt"))
    notebook.fails(f"{IN_IT}if dist.rank() == 1:\n    while True: time.sleep(0.1)\n{fit}")
    read = "float(mean.numpy()), len(model.get_weights())"
    assert notebook.results(read) == [(float(rank), 2) for rank in range(2)]
    for old in (fit, "total(strategy)", "build()"):
        assert "this strategy belongs to collectives of TensorFlow that were ended" in str(
            notebook.fails(old)
        )
    again = (
        "old, strategy = model.get_weights(), dist.strategy()\nmodel = build()\nmodel.set_weights(old)\n"
        f"{fit}\nmodel.get_weights()[0].tolist()"
    )
    weights = notebook.results(again)
    assert weights[0] == weights[1]
    assert pids() == before


def test_the_next_collective_waits_until_each_rank_has_closed_the_old_ones(
    notebook: Notebook, tmp_path: Path
) -> None:
    """Rank 0 succeeds in a cell in which rank 1 fails, and then takes long to renew its collectives."""
    notebook.cell(BEGIN, "--session -np 2")
    before = pids()
    slow = (
        "from tensorflow.python.eager import context\ncontext = context.context()\n"
        "def slow(definition, enable=context.enable_collective_ops):\n"
        "    time.sleep(0.5)\n    enable(definition)\n"
        "if dist.rank() == 0: context.enable_collective_ops = slow\n"
    )
    notebook.cell(slow)
    gates = Gates(tmp_path)
    fails = "if dist.rank() == 1:\n    gate('alone')\n    raise ValueError('planted')"
    failed = notebook.cell(gates.source + fails, "--session --detach").folder
    until(failed, lambda status: status.ranks[0].state is State.SUCCEEDED, "the end of rank 0")
    gates.open("alone")
    assert str(ended(failed).reason).startswith("rank 1")
    assert notebook.results(AGAIN) == [(0.0, 2.0), (1.0, 2.0)]
    assert notebook.printed.count("The collectives of TensorFlow were ended") == 1
    assert pids() == before
