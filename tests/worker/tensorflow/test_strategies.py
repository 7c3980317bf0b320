"""Strategies of tf.distribute: which one a rank gets and why, and that each of them trains."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist import folder as folders
from jupyter_dist.backends.local.backend import _specs
from jupyter_dist.backends.ranks.server_ranks import Serving
from jupyter_dist.backends.ranks.tensorflow_roles import Role, roles, tf_configs
from jupyter_dist.errors import InputError
from jupyter_dist.folder import RunFolder
from jupyter_dist.job import Job, Poll, RankState, State, Status
from jupyter_dist.launch import template
from jupyter_dist.record import reader
from jupyter_dist.worker import payload as container
from jupyter_dist.worker.tensorflow.server_rank import MARK
from jupyter_dist.worker.tensorflow.strategies import KINDS, Devices, choose, kind_of
from jupyter_dist.worker.tf_config import Task, task
from tests.rigs.launching import ended, launch_cell, until
from tests.rigs.rank_maker import alone
from tests.rigs.stopwatch import Stopwatch, WaitFor

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": "-1"}

DATA = """
import json, os
import numpy as np
import tensorflow as tf
import jupyter_dist as dist

rng = np.random.default_rng(0)
x = rng.normal(size=(256, 4)).astype("float32")
y = (x @ np.array([[1.0], [-2.0], [0.5], [3.0]], "float32")).astype("float32")

def batches(size=32):
    return tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(size)
"""

MODEL = """
from tensorflow import keras

def fitted(strategy, data, **more):
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.05), "mse")
    losses = model.fit(data, epochs=3, steps_per_epoch=8, verbose=0, **more).history["loss"]
    return model, losses
"""


@pytest.fixture(scope="module")
def warm() -> Iterator[None]:
    """TensorFlow is imported once, and the ranks of all these runs are forks of that process."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in QUIET.items():
            patch.setenv(name, value)
        # Otherwise only a notebook has a template.
        patch.setattr(template, "wanted", lambda: True)
        yield
        template.close()


forked = pytest.mark.xdist_group("forks of TensorFlow")


def start(source: str, np: int, *, cold: bool = True, **options: Any) -> RunFolder:
    return launch_cell("local", source, np, options, env=QUIET, cold=cold)


def said(folder: RunFolder) -> list[str]:
    """What each rank printed."""
    size = json.loads(folder.job.read_bytes())["world_size"]
    return [reader.output(folder, rank).decode() for rank in range(size)]


def results(folder: RunFolder, status: Status) -> list[Any]:
    assert status.state is State.SUCCEEDED, (status.reason, said(folder))
    assert {(rank.state, rank.exit_code) for rank in status.ranks} == {(State.SUCCEEDED, 0)}
    return [container.load(folder.rank(status.attempt, r.rank).result) for r in status.ranks]


class TestKind:
    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            *((kind, kind) for kind in KINDS),
            *((name, kind) for kind, name in KINDS.items()),
            ("tf.distribute.MultiWorkerMirroredStrategy", "multi_worker_mirrored"),
            ("CollectiveAllReduceStrategy", "multi_worker_mirrored"),
            ("ParameterServerStrategyV2", "parameter_server"),
            ("TPUStrategyV2", "tpu"),
            ("Multi-Worker Mirrored", "multi_worker_mirrored"),
            ("mirrored_strategy", "mirrored"),
            (type("OneDeviceStrategy", (), {}), "one_device"),
        ],
    )
    def test_is_understood(self, name: Any, kind: str) -> None:
        assert kind_of(name) == kind

    @pytest.mark.parametrize("name", ["horovod", "", "strategy", 3, "multi_worker"])
    def test_of_another_name_is_an_error_that_lists_the_names(self, name: Any) -> None:
        with pytest.raises(
            ValueError, match=f"there is no strategy {name!r}. The strategies are 'one_device', "
        ) as info:
            kind_of(name)
        assert all(repr(kind) in str(info.value) for kind in KINDS)


def cluster(**counts: int) -> dict[str, list[str]]:
    return {kind: [f"{kind}{i}:1" for i in range(count)] for kind, count in counts.items()}


APART = "TF_CONFIG is not set, so each rank trains for itself, and "
CHOICES = [
    (Task(), Devices(), 1, "one_device", "this rank is alone and has no GPU"),
    (Task(), Devices(gpus=1), 1, "one_device", "this rank has 1 GPU"),
    (Task(), Devices(gpus=4), 1, "mirrored", "this rank has 4 GPUs"),
    (Task(), Devices(cpus=2), 1, "mirrored", "this rank has 2 logical CPUs"),
    (Task(), Devices(gpus=4, tpu=True), 1, "tpu", "this rank has a TPU"),
    (
        Task(),
        Devices(),
        2,
        "one_device",
        "TF_CONFIG is not set, so each rank trains for itself, and has no GPU",
    ),
    (Task("worker", 0, cluster(worker=1)), Devices(gpus=2), 1, "mirrored", "this rank has 2 GPUs"),
    (
        Task("worker", 1, cluster(worker=2)),
        Devices(gpus=2),
        2,
        "multi_worker_mirrored",
        "TF_CONFIG names 2 workers and no ps",
    ),
    (
        Task("chief", 0, cluster(chief=1, worker=1)),
        Devices(),
        2,
        "multi_worker_mirrored",
        "TF_CONFIG names 1 chief, 1 worker and no ps",
    ),
    (
        Task("ps", 0, cluster(chief=1, worker=2, ps=2)),
        Devices(),
        5,
        "parameter_server",
        "TF_CONFIG names 1 chief, 2 workers and 2 ps",
    ),
    (
        Task("evaluator", 0, cluster(chief=1, worker=2, ps=1)),
        Devices(gpus=1),
        5,
        "one_device",
        "the evaluator works alone and has 1 GPU",
    ),
]


@pytest.mark.parametrize(("task", "place", "size", "kind", "why"), CHOICES)
def test_what_fits(task: Task, place: Devices, size: int, kind: str, why: str) -> None:
    assert choose(task, place, size) == (kind, why)


class TestTask:
    def test_is_what_tf_config_says(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert task() == Task("worker", 0, {})
        for rank, text in enumerate(tf_configs(roles(4, ps=1, chief=True), ["a:1", "b:2", "c:3", "d:4"])):
            monkeypatch.setenv("TF_CONFIG", text)
            assert task().cluster == {"chief": ["a:1"], "worker": ["b:2", "c:3"], "ps": ["d:4"]}
            assert (task().type, task().index) == [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0)][
                rank
            ]
            assert task().serves is (rank > 0)
            assert task().to_config() == text

    def test_knows_tensorflow_1s_master(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TF_CONFIG", '{"cluster": {"master": ["a:1"]}, "task": {"type": "master"}}')
        assert task() == Task("chief", 0, {"chief": ["a:1"]})

    @pytest.mark.parametrize("text", ["{", "[]", '{"cluster": 3}', '{"task": {"index": "x"}}'])
    def test_of_something_else_is_an_error(self, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
        monkeypatch.setenv("TF_CONFIG", text)
        with pytest.raises(ValueError, match="TF_CONFIG cannot be read"):
            task()

    def test_without_a_chief_worker_0_coordinates(self) -> None:
        given = {"worker": ["a", "b", "c"], "ps": ["d"]}
        made = [Task(*own, given).coordinated() for own in [("worker", 0), ("worker", 2), ("ps", 0)]]
        assert [(t.type, t.index) for t in made] == [("chief", 0), ("worker", 1), ("ps", 0)]
        assert all(t.cluster == {"chief": ["a"], "worker": ["b", "c"], "ps": ["d"]} for t in made)
        with pytest.raises(ValueError, match=r"names 1 chief, no.* and 1 ps|names 1 worker and 1 ps"):
            Task("worker", 0, cluster(worker=1, ps=1)).coordinated()


class TestRoles:
    def test_share_the_ranks(self) -> None:
        assert roles(2) == (Role("worker", 0), Role("worker", 1))
        every = roles(6, ps=2, chief=True, evaluator=True)
        assert [role.type for role in every] == ["chief", "worker", "worker", "ps", "ps", "evaluator"]
        assert [role.index for role in every] == [0, 0, 1, 0, 1, 0]
        assert roles(1, chief=True) == (Role("chief", 0),)

    def test_of_too_few_ranks_are_an_error(self) -> None:
        with pytest.raises(InputError, match=r"-np 2 leaves no rank for a worker.* least -np 3"):
            roles(2, ps=1, chief=True)

    def test_a_parameter_server_takes_no_gpu_from_the_others(self) -> None:
        job = Job("id", "local", 4, 0.0, "/", "python", "1", options={"ps": 1, "evaluator": True})
        specs = _specs(job, 0, [0] * 6, tuple("01234567"), {})
        visible = [spec.env["CUDA_VISIBLE_DEVICES"] for spec in specs]
        assert visible == ["0,1", "2,3", "-1", "4,5"]
        assert [spec.env["JUPYTER_DIST_GPUS"] for spec in specs] == ["2", "2", "0", "2"]
        assert [json.loads(spec.env["TF_CONFIG"])["task"]["type"] for spec in specs][2:] == [
            "ps",
            "evaluator",
        ]

    def test_the_evaluator_is_nobodys_peer(self) -> None:
        every = roles(3, chief=True, evaluator=True)
        config = json.loads(tf_configs(every, ["a:1", "b:2", "c:3"])[2])
        assert config == {
            "cluster": {"chief": ["a:1"], "worker": ["b:2"]},
            "task": {"type": "evaluator", "index": 0},
        }


class TestServing:
    """The judge of ranks that serve, on polls made by hand."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> RunFolder:
        folder = folders.create(tmp_path / "runs", folders.new_id(), 3)
        for rank in (1, 2):
            (folder.rank(0, rank).path / MARK).write_text("{}\n")
        return folder

    def settled(self, serving: Serving, *states: State) -> tuple[Poll, list[bool]]:
        stops: list[bool] = []
        ranks = tuple(RankState(r, state, exit_code=143) for r, state in enumerate(states))
        running = State.RUNNING in states
        poll = Poll(State.RUNNING if running else State.FAILED, ranks)
        return serving.settle(poll, lambda *, kill: stops.append(kill)), stops

    def test_they_are_ended_when_the_others_are_done_and_have_succeeded(
        self, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        serving = Serving(folder, 0)
        poll, stops = self.settled(serving, State.RUNNING, State.RUNNING, State.RUNNING)
        assert (poll.state, stops) == (State.RUNNING, [])
        poll, stops = self.settled(serving, State.SUCCEEDED, State.RUNNING, State.RUNNING)
        assert (poll.state, stops) == (State.RUNNING, [False])
        poll, stops = self.settled(serving, State.SUCCEEDED, State.RUNNING, State.FAILED)
        assert [rank.state for rank in poll.ranks] == [State.SUCCEEDED, State.RUNNING, State.SUCCEEDED]
        assert stops == [], "asked once, then given time"
        monkeypatch.setattr("jupyter_dist.backends.ranks.server_ranks._GRACE_S", 0)
        assert self.settled(serving, State.SUCCEEDED, State.RUNNING, State.STOPPED)[1] == [True]
        poll, _ = self.settled(serving, State.SUCCEEDED, State.STOPPED, State.STOPPED)
        assert poll.state is State.SUCCEEDED
        assert [rank.exit_code for rank in poll.ranks] == [143, 0, 0]

    def test_a_rank_that_trains_is_waited_for(self, folder: RunFolder) -> None:
        (folder.rank(0, 1).path / MARK).unlink()
        poll, stops = self.settled(Serving(folder, 0), State.SUCCEEDED, State.RUNNING, State.RUNNING)
        assert (poll.state, stops) == (State.RUNNING, [])

    def test_a_failure_stays_one(self, folder: RunFolder) -> None:
        for states in (
            (State.FAILED, State.STOPPED, State.STOPPED),
            (State.SUCCEEDED, State.FAILED, State.STOPPED),
        ):
            poll, stops = self.settled(Serving(folder, 0), *states)
            assert (poll.state, stops) == (State.FAILED, [])


@pytest.mark.needs("tensorflow")
def test_one_rank_trains_with_each_of_its_strategies(tmp_path: Path) -> None:
    code = f"""
from jupyter_dist.worker import autolog
autolog.install()  # as in a rank
{DATA}{MODEL}
cpus = ["CPU:0", "CPU:1"]
mirrored = dist.strategy("mirrored", devices=cpus)
assert dist.strategy("MirroredStrategy") is mirrored and dist.strategy() is mirrored
seen = []
for strategy in (
    mirrored,
    dist.strategy("one_device"),
    dist.strategy("CentralStorage", compute_devices=cpus, parameter_device="CPU:0"),
):
    keras.utils.set_random_seed(0)
    model, losses = fitted(strategy, batches())
    assert len(model.weights) == 2 and losses[-1] < losses[0] / 2, (strategy, losses)
    seen.append([*losses, model.evaluate(batches(), steps=8, verbose=0)])
assert np.allclose(seen, seen[0], rtol=1e-5), seen
try:
    dist.strategy("mirrored", devices=[*cpus, "CPU:2"])
except RuntimeError as error:
    print(error)
sys.stdout.flush()
os._exit(0)
"""
    asked = "because it was asked for"
    assert alone(code, tmp_path).strip().split("\n") == [
        f"dist.strategy: MirroredStrategy, {asked}; 2 replicas",
        f"dist.strategy: OneDeviceStrategy, {asked}: /cpu:0",
        f"dist.strategy: CentralStorageStrategy, {asked}; 2 replicas",
        "3 CPU devices were asked for, but TensorFlow can no longer divide its CPU, because it has already "
        "run something in this process, such as a dataset of an earlier cell. Call dist.strategy() before "
        "anything else of TensorFlow, or divide the CPU in the notebook with "
        "tf.config.set_logical_device_configuration, which ranks repeat.",
    ]


@pytest.mark.needs("tensorflow")
def test_what_does_not_fit_is_one_clear_error(tmp_path: Path) -> None:
    workers = json.dumps({"cluster": cluster(worker=2), "task": {"type": "worker", "index": 0}})
    servers = json.dumps({"cluster": cluster(worker=2, ps=1), "task": {"type": "worker", "index": 0}})
    code = f"""
def attempt(kind, config=None):
    os.environ.pop("TF_CONFIG", None)
    if config:
        os.environ["TF_CONFIG"] = config
    try:
        dist.strategy(kind)
    except (ValueError, RuntimeError) as error:
        print(type(error).__name__, error)
attempt("hovorod")
assert "tensorflow" not in sys.modules
attempt("tpu")
attempt("parameter_server")
attempt("parameter_server", {workers!r})
attempt("multi_worker_mirrored", {servers!r})
attempt(None)
"""
    name, tpu, ps_alone, ps_workers, mirrored, fits = alone(code, tmp_path).strip().split("\n")
    assert name.startswith(
        "ValueError there is no strategy 'hovorod'. The strategies are 'one_device', 'mirrored', "
    )
    assert tpu.startswith("RuntimeError TPUStrategy needs a TPU, and this rank finds none")
    assert "TF_CONFIG is not set. Start the cell with --ps" in ps_alone
    assert "TF_CONFIG names 2 workers and no ps. Start the cell with --ps" in ps_workers
    assert "cannot use parameter servers, but TF_CONFIG names 2 workers and 1 ps" in mirrored
    assert fits == "dist.strategy: OneDeviceStrategy, because this rank is alone and has no GPU: /cpu:0"


def test_without_tensorflow_it_says_what_to_install(tmp_path: Path) -> None:
    code = """
sys.modules["tensorflow"] = None
try:
    dist.strategy()
except ModuleNotFoundError as error:
    print(error.name, error)
"""
    assert alone(code, tmp_path) == (
        "tensorflow dist.strategy() needs TensorFlow on every rank: pip install tensorflow\n"
    )


@pytest.mark.needs("tensorflow")
def test_two_workers_fit_and_loop(own_folders: Path) -> None:
    source = f"""{DATA}{MODEL}
strategy = dist.strategy()
assert dist.strategy() is strategy and strategy.num_replicas_in_sync == 2
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
model, losses = fitted(strategy, batches(64).with_options(options))
with strategy.scope():
    w = tf.Variable(tf.zeros((4, 1)))

@tf.function
def step(iterator):
    def one(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((batch[0] @ w - batch[1]) ** 2) / 64
        gradient = tf.distribute.get_replica_context().all_reduce("SUM", tape.gradient(loss, w))
        w.assign_sub(0.1 * gradient)
        return loss
    return strategy.reduce("SUM", strategy.run(one, (next(iterator),)), None)

iterator = iter(strategy.experimental_distribute_dataset(batches(64).with_options(options)))
looped = [float(step(iterator)) for _ in range(20)]
{{"fit": losses, "loop": looped, "weights": [v.tobytes() for v in [*model.get_weights(), w.numpy()]]}}
"""
    folder = start(source, 2)
    first, second = results(folder, ended(folder))
    assert first["weights"] == second["weights"]
    assert first["fit"][-1] < first["fit"][0] / 2
    assert first["loop"][-1] < first["loop"][0] / 10
    line = (
        "dist.strategy: MultiWorkerMirroredStrategy, because TF_CONFIG names 2 workers and no ps; "
        "2 replicas\n"
    )
    for text in said(folder):
        assert "tf_keras" not in text
        assert text.count(line) == 1
    notes = [(e.rank, e.data["text"]) for e in reader.events(folder) if e.kind == "note"]
    assert notes == [(0, line.strip())]


COORDINATED = """
import tensorflow as tf
import jupyter_dist as dist
strategy = dist.strategy()
coordinator = strategy.coordinator
with strategy.scope():
    total = tf.Variable(0.0)

@tf.function
def step():
    total.assign_add(1.0)

"""


@pytest.mark.needs("tensorflow")
def test_a_chief_trains_with_workers_and_a_parameter_server(own_folders: Path) -> None:
    source = f"""{DATA}{MODEL}
strategy = dist.strategy()
coordinator = strategy.coordinator
assert isinstance(coordinator, tf.distribute.coordinator.ClusterCoordinator)
with strategy.scope():
    w = tf.Variable(tf.zeros((4, 1)))

def data():
    return strategy.distribute_datasets_from_function(lambda context: batches())

@tf.function
def step(iterator):
    def one(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((batch[0] @ w - batch[1]) ** 2)
        w.assign_sub(0.05 * tape.gradient(loss, w))
        return loss
    return strategy.run(one, (next(iterator),))

iterator = iter(coordinator.create_per_worker_dataset(data))
values = [coordinator.schedule(step, args=(iterator,)) for _ in range(40)]
coordinator.join()
looped = [float(value.fetch()) for value in values]
model, losses = fitted(strategy, batches())
{{"loop": looped, "fit": losses, "device": w.device}}
"""
    folder = start(source, 4, ps=1, chief=True)
    status = ended(folder)
    chief, *serving = results(folder, status)
    assert serving == [None, None, None]
    assert chief["loop"][-1] < chief["loop"][0] / 5
    assert chief["fit"][-1] < chief["fit"][0] / 2
    assert "/job:ps/" in chief["device"]
    why = "ParameterServerStrategy, because TF_CONFIG names 1 chief, 2 workers and 1 ps; this rank"
    texts = said(folder)
    assert f"{why} coordinates\n" in texts[0]
    for text, name in zip(texts[1:], ("worker 0", "worker 1", "ps 0"), strict=True):
        assert f"{why} serves it as {name}\n" in text
    metrics = [e for e in reader.events(folder) if e.kind == "metric"]
    assert {e.rank for e in metrics} == {0}
    assert sum("loss" in e.data["values"] for e in metrics) >= 3
    assert not [e for e in reader.events(folder) if e.kind == "note" and "metrics of" in e.data["text"]]


@forked
@pytest.mark.needs("tensorflow")
def test_without_a_chief_rank_0_coordinates(own_folders: Path, warm: None) -> None:
    source = COORDINATED + "for _ in range(9): coordinator.schedule(step)\ncoordinator.join()\nfloat(total)"
    folder = start(source, 3, cold=False, ps=1)
    assert results(folder, ended(folder)) == [9.0, None, None]
    why = "because TF_CONFIG names 2 workers and 1 ps, no chief: worker 0 coordinates; this rank"
    texts = said(folder)
    assert f"{why} coordinates\n" in texts[0]
    assert f"{why} serves it as worker 0\n" in texts[1]


@forked
@pytest.mark.needs("tensorflow")
def test_the_usual_script_with_servers_of_its_own_ends_too(own_folders: Path, warm: None) -> None:
    """Written for machines that each run it, with `Server.join()`, which never returns."""
    source = """
import json, os
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )
    server.join()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    total = tf.Variable(0.0)

@tf.function
def step():
    total.assign_add(1.0)

for _ in range(5):
    coordinator.schedule(step)
coordinator.join()
float(total)
"""
    folder = start(source, 3, cold=False, ps=1, chief=True)
    assert results(folder, ended(folder)) == [5.0, None, None]


@forked
@pytest.mark.needs("tensorflow")
def test_a_dead_worker_ends_the_run_and_is_named(own_folders: Path, warm: None, wait_for: WaitFor) -> None:
    source = (
        COORDINATED
        + """
print("training", flush=True)
while True:
    coordinator.schedule(step)
    coordinator.join()
"""
    )
    folder = start(source, 3, cold=False, ps=1, chief=True)
    wait_for(lambda: "training" in said(folder)[0], "the chief")
    pid = until(folder, lambda status: status.ranks[1].pid is not None, "the pid of rank 1").ranks[1].pid
    assert pid is not None
    watch = Stopwatch()
    os.kill(pid, signal.SIGKILL)
    status = ended(folder)
    assert watch.under(10)
    assert (status.state, status.reason) == (State.FAILED, "rank 1 was ended by SIGKILL")
    assert [r.state for r in status.ranks] == [State.STOPPED, State.FAILED, State.STOPPED]
