"""Metrics without a line of user code: each framework really trains.

Its import is most of what that costs. So one process imports a framework, after the hooks were installed or
before, and each training is a fork of it, as ranks are forks of the template.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SETUP = """
import json, os, sys
from jupyter_dist.worker import autolog
from jupyter_dist.worker.output import events
events.open_writer(os.environ["EVENTS"])
{before}
autolog.install()
autolog.install()
{code}
"""
IMPORTED = """
import gc, json, os, sys
from jupyter_dist.worker import autolog, steps
from jupyter_dist.worker.output import events
install = {install}
events.open_writer("events.jsonl")
if install == "before":
    autolog.install()
    autolog.install()
{imports}
gc.freeze()  # else each fork that collects garbage copies all that was imported
print("imported", flush=True)
for line in sys.stdin:
    folder, code = json.loads(line)
    pid = os.fork()
    if pid == 0:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
else:
    os._exit(0)
os.chdir(folder)
log = os.open("log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
for fd, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
    os.dup2(file, fd)
events.open_writer("events.jsonl")
if install == "after":
    autolog.install()
    autolog.install()
steps.begin()
exec(compile(code, "<the test>", "exec"))
steps.write()
"""
"""Imports a framework once. Each line of stdin is a folder and a program: a fork runs it to its end."""
TORCH = """
import warnings
warnings.simplefilter("ignore")
import lightning.pytorch, pytorch_lightning, torch.utils.tensorboard, transformers.trainer
"""
FRAMEWORKS = {
    "keras": ("before", "import keras\nfrom tensorflow import keras", {}),
    "keras, warm": ("after", "import keras, tensorboard.plugins.scalar.summary_v2", {}),
    "tf_keras": ("before", "import tf_keras", {"TF_USE_LEGACY_KERAS": "1"}),
    "legacy keras": (
        "before",
        "from jupyter_dist.worker.keras.tf_keras import arrange\narrange()\nimport keras",
        {},
    ),
    "torch": ("before", TORCH, {}),
    "torch, warm": ("after", TORCH, {}),
}
"""When the hooks are installed, what is imported, and with which variables."""
ENV = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "WANDB_DISABLED": "true",
}
METRIC, PROGRESS, NOTE, STEPS = "metric", "progress", "note", "steps"


class Events(list[dict[str, Any]]):
    def kind(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self if event["kind"] == kind]

    def curve(self, name: str) -> list[tuple[int, Any]]:
        return [(e["step"], e["values"][name]) for e in self.kind(METRIC) if name in e["values"]]

    def names(self) -> set[str]:
        return {name for event in self.kind(METRIC) for name in event["values"]}


class Imported:
    """A process in which a framework is imported, and which trains in forks of itself."""

    def __init__(self, framework: str, folder: Path) -> None:
        install, imports, env = FRAMEWORKS[framework]
        self.folder = folder
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", IMPORTED.format(install=repr(install), imports=imports)],
                cwd=folder,
                env={**os.environ, **ENV, **env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._read("imported")
        assert read_events(folder).kind(NOTE) == [], "a hook failed"

    def train(self, folder: Path, code: str) -> Events:
        """Run `code` in a fork; returns what it recorded."""
        assert self.process.stdin is not None
        print(json.dumps([str(folder), code]), file=self.process.stdin, flush=True)
        self._read("0", folder / "log")
        events = read_events(folder)
        assert events.kind(NOTE) == [], "a hook failed"
        return events

    def _read(self, expected: str, log: Path | None = None) -> None:
        assert self.process.stdout is not None
        answer = self.process.stdout.readline().strip()
        assert answer == expected, (log or self._log).read_text(errors="replace")[-4000:]

    def close(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


def read_events(folder: Path) -> Events:
    return Events(json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines())


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Imported]]:
    """`imported("keras")`: the process that has imported it, which the first test that asks starts."""
    known: dict[str, Imported] = {}

    def imported(framework: str) -> Imported:
        if framework not in known:
            known[framework] = Imported(framework, tmp_path_factory.mktemp("imported"))
        return known[framework]

    yield imported
    for each in known.values():
        each.close()


IN_TENSORFLOW = pytest.mark.xdist_group("autolog with tensorflow")
IN_TORCH = pytest.mark.xdist_group("autolog with torch")


KERAS = """
import numpy as np
{imports}
rng = np.random.default_rng(0)
x = rng.normal(size=(64, 4)).astype("float32")
y = (x.sum(1) > 0).astype("float32")
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1, activation="sigmoid")])
model.compile("sgd", "binary_crossentropy", metrics=["accuracy"])
"""
FIT = "history = model.fit(x, y, batch_size=8, epochs=3, validation_data=(x, y), verbose=0{more})\n"
DUMP = 'open("history.json", "w").write(json.dumps(history.history))\n'


@IN_TENSORFLOW
@pytest.mark.needs("keras", "tensorflow")
@pytest.mark.parametrize("imports", ["import keras", "from tensorflow import keras"])
def test_keras_fit(imported: Callable[[str], Imported], tmp_path: Path, imports: str) -> None:
    code = KERAS.format(imports=imports) + FIT.format(more="") + DUMP
    check_fit(imported("keras").train(tmp_path, code), tmp_path)


@IN_TENSORFLOW
@pytest.mark.needs("tf_keras", "tensorflow")
def test_tf_keras_fit(imported: Callable[[str], Imported], tmp_path: Path) -> None:
    every_step = "from jupyter_dist.worker.autolog import keras as of_keras\nof_keras._EVERY_S = 0\n"
    code = every_step + KERAS.format(imports="import tf_keras as keras") + FIT.format(more="") + DUMP
    events = imported("tf_keras").train(tmp_path, code)
    check_fit(events, tmp_path)
    assert [step for step, _ in events.curve("loss")] == list(range(1, 25))


@IN_TENSORFLOW
@pytest.mark.needs("tf_keras", "tensorflow")
def test_keras_that_is_tf_keras(imported: Callable[[str], Imported], tmp_path: Path) -> None:
    code = KERAS.format(imports="import keras") + FIT.format(more="") + DUMP
    check_fit(imported("legacy keras").train(tmp_path, code), tmp_path)


def check_fit(events: Events, folder: Path) -> None:
    """64 items in batches of 8, 3 epochs: what `history` holds was recorded at steps 8, 16 and 24."""
    history = json.loads((folder / "history.json").read_text())
    assert set(history) >= {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert events.names() == set(history)
    for name, values in history.items():
        ends = {step: value for step, value in events.curve(name) if step in (8, 16, 24)}
        assert list(ends) == [8, 16, 24], name
        assert list(ends.values()) == pytest.approx(values), name
    steps = [step for step, _ in events.curve("loss")]
    assert steps == sorted(set(steps)), "a step came twice"
    assert steps[0] == 1, "the first batch is shown at once"
    first, *_, last = events.kind(PROGRESS)
    assert (first["n"], first["total"]) == (0, 24)
    assert (last["n"], last["total"], last["desc"]) == (24, 24, "epoch 3/3")
    check_steps(events, "batch", 23, 23 * 8)


def check_steps(events: Events, by: str, steps: int, samples: int | None) -> None:
    """Check the steps that were recorded: all but the first, with the size of their batches."""
    recorded = events.kind(STEPS)
    assert {event["by"] for event in recorded} == {by}
    assert sum(event["steps"] for event in recorded) == steps
    assert all(event["wall_s"] >= (event["data_s"] or 0) for event in recorded)
    told = [event["samples"] for event in recorded]
    assert (None if None in told else sum(told)) == samples


@IN_TENSORFLOW
@pytest.mark.needs("keras", "tensorflow")
def test_keras_callbacks_of_the_user_and_a_warm_start(
    imported: Callable[[str], Imported], tmp_path: Path
) -> None:
    """A list, one callback, a CallbackList, and positional: each still called, each recorded once."""
    code = (
        KERAS.format(imports="import keras")
        + """
class Mine(keras.callbacks.Callback):
    seen = 0
    def on_epoch_end(self, epoch, logs=None):
        Mine.seen += 1
        logs["mine"] = 1.0
given = [Mine()]
model.fit(x, y, batch_size=8, verbose=0, callbacks=given)
assert len(given) == 1
model.fit(x, y, batch_size=8, verbose=0, callbacks=Mine())
many = keras.callbacks.CallbackList([Mine()], model=model)
for _ in range(2):
    model.fit(x, y, batch_size=8, verbose=0, callbacks=many)
    assert [type(c) for c in many.callbacks] == [Mine], many.callbacks
model.fit(x, y, 8, 1, 0, [Mine()])
assert Mine.seen == 5, Mine.seen
try:
    model.fit(x, y, no_such_argument=1)
except TypeError as error:
    assert "no_such_argument" in str(error)
else:
    raise AssertionError
"""
    )
    events = imported("keras, warm").train(tmp_path, code)
    assert [step for step, _ in events.curve("mine")] == [8, 16, 24, 32, 40]
    assert [step for step, _ in events.curve("loss") if step % 8 == 0] == [8, 16, 24, 32, 40]
    # A fork numbers its bars from its own pid on (worker/output/progress_meter.py): one bar in all, which is
    # its first.
    (bar,) = {event["id"] for event in events.kind(PROGRESS)}
    assert bar & 0xFFFF == 0


@IN_TENSORFLOW
@pytest.mark.needs("keras", "tensorflow")
def test_keras_fit_that_is_interrupted(imported: Callable[[str], Imported], tmp_path: Path) -> None:
    code = (
        KERAS.format(imports="import keras")
        + """
class Stop(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            raise KeyboardInterrupt
try:
    model.fit(x, y, batch_size=8, epochs=3, verbose=0, callbacks=[Stop()])
except KeyboardInterrupt:
    pass
def endless():
    while True:
        yield x[:8], y[:8]
model.compile("sgd", lambda a, b: a.sum() * float("nan") if hasattr(a, "sum") else b * float("nan"))
model.fit(endless(), steps_per_epoch=5, verbose=0)

import contextlib, io  # the bars that it draws
with contextlib.redirect_stdout(io.StringIO()) as drawn:
    model.fit(x, y, batch_size=8)
    model.evaluate(x, y, batch_size=16)
lines = drawn.getvalue().splitlines()
assert [line for line in lines if "/" in line and "8/8" not in line and "4/4" not in line] == [], lines
assert drawn.getvalue().count("\\r") == 2, drawn.getvalue()
"""
    )
    events = imported("keras").train(tmp_path, code)
    progress = events.kind(PROGRESS)
    counts = [event["n"] for event in progress]
    assert 8 in counts
    assert [event["n"] for event in progress if event.get("closed")] == [8, 5, 8, 4]
    assert progress[-1]["total"] == 4, "that of `evaluate`, which has its own"
    assert events.curve("loss")[-1] == (21, "NaN")


LIGHTNING = """
import warnings; warnings.simplefilter("ignore")
import torch
import {name} as L
class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        loss = self.layer(batch).pow(2).mean()
        self.log("train/loss", loss)
        self.log("both", loss, on_step=True, on_epoch=True)
        return loss
    def on_train_epoch_end(self):
        self.log("late", float(self.current_epoch))
        if self.trainer.logger is not None:
            self.trainer.logger.experiment.add_scalar("by hand", 1.0, self.global_step)
    def validation_step(self, batch, index):
        self.log("val/loss", self.layer(batch).pow(2).mean())
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
torch.manual_seed(0)
data = torch.utils.data.DataLoader(torch.randn(32, 4), batch_size=4)
trainer = L.Trainer(max_epochs=2, log_every_n_steps=4, accelerator="cpu", enable_progress_bar=False,
                    enable_model_summary=False, enable_checkpointing={checkpoints}, logger={logger},
                    default_root_dir=".")
trainer.fit(Model(), data, data)
assert trainer.state.finished
open("last", "w").write(str(float(trainer.callback_metrics["train/loss"])))
"""


@IN_TORCH
@pytest.mark.needs("lightning", "pytorch_lightning", "tensorboard")
@pytest.mark.parametrize(
    ("name", "logger", "warm"),
    [
        ("lightning.pytorch", False, False),
        ("lightning.pytorch", True, False),
        ("lightning", True, True),
        ("pytorch_lightning", True, False),
    ],
)
def test_lightning_fit(
    imported: Callable[[str], Imported], tmp_path: Path, name: str, logger: bool, warm: bool
) -> None:
    """What Lightning would log, whether or not it has a logger, and once where that is TensorBoard's."""
    code = LIGHTNING.format(name=name, logger=logger, checkpoints=logger)
    events = imported("torch, warm" if warm else "torch").train(tmp_path, code)
    by_hand = {"by hand"} if logger else set()
    assert events.names() == {"train/loss", "both_step", "both_epoch", "late", "val/loss"} | by_hand
    assert [step for step, _ in events.curve("train/loss")] == [3, 7, 11, 15]
    assert [step for step, _ in events.curve("both_step")] == [3, 7, 11, 15]
    assert [step for step, _ in events.curve("both_epoch")] == [7, 15]
    assert events.curve("late") == [(7, 0.0), (15, 1.0)]
    assert [step for step, _ in events.curve("val/loss")] == [7, 15]
    assert events.curve("train/loss")[-1][1] == pytest.approx(float((tmp_path / "last").read_text()))
    if logger:
        assert events.curve("by hand") == [(8, 1.0), (16, 1.0)]
        assert list(tmp_path.glob("lightning_logs/version_0/events.*")), "Lightning's own logger still works"
    first, *_, last = events.kind(PROGRESS)
    assert (first["n"], first["total"]) == (0, 16)
    assert (last["n"], last["total"], last["desc"]) == (16, 16, "epoch 2/2")
    check_steps(events, "optimizer", 15, 15 * 4)


TRANSFORMERS = """
import warnings; warnings.simplefilter("ignore")
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
torch.manual_seed(0)
config = BertConfig(vocab_size=32, hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
                    intermediate_size=8, max_position_embeddings=16)
data = [dict(input_ids=torch.randint(0, 32, (6,)), labels=torch.tensor(i % 2)) for i in range(16)]
arguments = TrainingArguments(output_dir="out", per_device_train_batch_size=4, num_train_epochs=3,
                              logging_steps=2, eval_strategy="epoch", save_strategy="no", use_cpu=True,
                              disable_tqdm=True, report_to={report_to!r})
trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=data, eval_dataset=data)
trainer.train()
assert trainer.state.global_step == 12
"""


@IN_TORCH
@pytest.mark.needs("transformers", "accelerate", "tensorboard")
@pytest.mark.parametrize(
    ("report_to", "framework"),
    [("none", "torch"), ("tensorboard", "torch"), ("tensorboard", "torch, warm")],
)
def test_hugging_face_trainer(
    imported: Callable[[str], Imported], tmp_path: Path, report_to: str, framework: str
) -> None:
    events = imported(framework).train(tmp_path, TRANSFORMERS.format(report_to=report_to))
    assert [step for step, _ in events.curve("loss")] == [2, 4, 6, 8, 10, 12]
    assert [step for step, _ in events.curve("eval_loss")] == [4, 8, 12]
    assert [step for step, _ in events.curve("train_loss")] == [12]
    assert not any("/" in name for name in events.names()), "TensorBoard's copy came as well"
    assert all(math.isfinite(value) for _, value in events.curve("loss"))
    first, *_, last = events.kind(PROGRESS)
    assert (first["n"], first["total"]) == (0, 12)
    assert (last["n"], last["total"]) == (12, 12)
    check_steps(events, "optimizer", 11, 10 * 4)  # Accelerate loads one batch in advance
    if report_to == "tensorboard":
        assert list(tmp_path.glob("out/**/events.*")), "TensorBoard still gets it"


OPTIMIZERS = """
import threading
import torch
import horovod.torch as hvd
from torch.utils.data import DataLoader

def optimizer():
    model = torch.nn.Linear(4, 1)
    return model, torch.optim.Adam(model.parameters())

hvd.init()
(first, one), (second, two) = optimizer(), optimizer()
one = hvd.DistributedOptimizer(one, named_parameters=first.named_parameters())
loader = DataLoader(torch.ones(40, 4), batch_size=4, num_workers=1)
ragged = DataLoader([0], collate_fn=lambda _: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))
assert [batch.is_nested for batch in ragged] == [True]
prefetch = threading.Thread(target=lambda: list(loader))
prefetch.start()
for batch in loader:
    second(first.weight * batch).sum().backward()
    one.step()
    two.step()
    hvd.allreduce(torch.ones(2))
    with torch.no_grad():
        for batch in DataLoader(torch.ones(20, 4), batch_size=2):
            first(batch)
prefetch.join()
for batch in loader:  # the first optimizer is done
    second(batch).sum().backward()
    two.step()
if os.fork() == 0:
    two.step()
    steps.write()
    os._exit(0)
os.wait()
"""


@IN_TORCH
@pytest.mark.needs("torch", "horovod", "lightning", "pytorch_lightning", "transformers", "tensorboard")
@pytest.mark.parametrize("framework", ["torch", "torch, warm"])
def test_steps_of_optimizers_that_take_turns(
    imported: Callable[[str], Imported], tmp_path: Path, framework: str
) -> None:
    """Check that a step counts once, and that evaluations, other threads and forks count no samples."""
    events = imported(framework).train(tmp_path, OPTIMIZERS)
    # 10 steps of the first optimizer, and those of the second one after it was alone for a while.
    check_steps(events, "optimizer", 9 + 3, 9 * 4 + 10 * 4)
    assert sum(event["wait_s"] or 0 for event in events.kind(STEPS)) > 0, "Horovod's synchronize"
    assert sum(event["data_s"] for event in events.kind(STEPS)) > 0


SUMMARY = """
import numpy as np
import torch
from torch.utils.tensorboard import SummaryWriter
with SummaryWriter("logs") as writer:
    for step in range(3):
        writer.add_scalar("train/loss", 1.0 / (step + 1), step)
    writer.add_scalar("tensor", torch.tensor([2.0], requires_grad=True), global_step=torch.tensor(5))
    writer.add_scalar("array", np.float32(0.5), 1, walltime=0.0)
    writer.add_scalar("part of an epoch", 0.5, 1 + 1 / 3)
    writer.add_scalar(tag="bad", scalar_value=float("nan"), global_step=7)
    writer.add_scalar("no step", -1)
    writer.add_scalar("no step", float("-inf"))
    writer.add_scalar("hp_metric", -1, 0)
    writer.add_scalars("group", {"a": 1.0, "b": 2}, 4)
    try:
        writer.add_scalar()
    except TypeError as error:
        assert "tag" in str(error)
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
seen = EventAccumulator("logs").Reload()
assert [e.step for e in seen.Scalars("train/loss")] == [0, 1, 2]
"""


@IN_TORCH
@pytest.mark.needs("torch", "tensorboard", "lightning", "pytorch_lightning", "transformers")
@pytest.mark.parametrize("framework", ["torch", "torch, warm"])
def test_summary_writer(imported: Callable[[str], Imported], tmp_path: Path, framework: str) -> None:
    events = imported(framework).train(tmp_path, SUMMARY)
    assert events.curve("train/loss") == [(0, 1.0), (1, 0.5), (2, 1 / 3)]
    assert events.curve("tensor") == [(5, 2.0)]
    assert events.curve("array") == [(1, 0.5)]
    assert events.curve("part of an epoch") == [(1, 0.5)]
    assert events.curve("bad") == [(7, "NaN")]
    assert events.curve("no step") == [(0, -1), (1, "-Infinity")]
    assert events.curve("group/a") == [(4, 1.0)]
    assert events.curve("group/b") == [(4, 2)]
    assert events.curve("hp_metric") == []


TF_SUMMARY = (
    KERAS.format(imports="import keras")
    + """
import tensorflow as tf
tf.summary.scalar("nowhere", 1.0, step=0)
with tf.summary.create_file_writer("logs").as_default():
    for step in tf.range(2, dtype=tf.int64):
        with tf.name_scope("train"):
            tf.summary.scalar("loss", tf.constant(0.5) * tf.cast(step, tf.float32), step=step)
    tf.summary.experimental.set_step(7)
    tf.summary.scalar("no step", np.float32(2.5), description="…")
    @tf.function
    def graph(x):
        tf.summary.scalar("in a graph", x)
        return x
    graph(tf.constant(1.0))
model.fit(x, y, batch_size=8, epochs=1, validation_data=(x, y), verbose=0,
          callbacks=[keras.callbacks.TensorBoard("logs/keras", update_freq=1)])
"""
)


@IN_TENSORFLOW
@pytest.mark.needs("tensorflow", "keras", "tensorboard")
def test_tensorflow_summaries(imported: Callable[[str], Imported], tmp_path: Path) -> None:
    events = imported("keras, warm").train(tmp_path, TF_SUMMARY)
    assert events.curve("train/loss") == [(0, 0.0), (1, 0.5)]
    assert events.curve("no step") == [(7, 2.5)]
    others = {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert events.names() == {"train/loss", "no step"} | others, "TensorBoard's copy came as well"
    assert list(tmp_path.glob("logs/keras/train/events.*")), "TensorBoard still gets it"


FAKE = """
class Trainer:
    def __init__(self): self.callbacks = []
class Callback: pass
"""


def test_a_hook_that_fails_costs_one_note_and_no_import(tmp_path: Path) -> None:
    """A keras and a lightning that look like nothing we know."""
    (tmp_path / "keras.py").write_text("value = 7\n")
    package = tmp_path / "pytorch_lightning"
    package.mkdir()
    (package / "__init__.py").write_text(FAKE)
    path = tmp_path / "events.jsonl"
    code = """
import keras, pytorch_lightning, importlib, inspect
assert keras.value == 7 and pytorch_lightning.Trainer().callbacks == []
assert "exec_module" not in vars(keras.__loader__), "the hook stays on the loader"
assert keras.__spec__.loader is keras.__loader__
assert inspect.getsource(keras) == "value = 7\\n"
importlib.reload(keras)
import json.tool, wave
"""
    env = {**os.environ, "EVENTS": str(path), "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[3]}"}
    subprocess.run(
        [sys.executable, "-c", SETUP.format(before="", code=code)], env=env, check=True, cwd=tmp_path
    )
    notes = [json.loads(line)["text"] for line in path.read_text().splitlines()]
    assert len(notes) == 2
    assert "jupyter-dist cannot log metrics of keras automatically" in notes[0]
    assert "AttributeError" in notes[0]
    assert "metrics of pytorch_lightning" in notes[1]


def test_an_import_that_fails_fails_as_before(tmp_path: Path) -> None:
    (tmp_path / "keras.py").write_text("import os\nif os.path.exists('broken'): raise OSError('no cuda')\n")
    (tmp_path / "broken").touch()
    (tmp_path / "tensorboardX").mkdir()
    (tmp_path / "tensorboardX" / "__init__.py").touch()  # in place of one that is installed: it has no writer
    code = """
try:
    import keras
except OSError as error:
    assert str(error) == "no cuda"
else:
    raise AssertionError
os.unlink("broken")
import keras
try:
    import tensorboardX.writer
except ModuleNotFoundError as error:
    assert error.name == "tensorboardX.writer"
else:
    raise AssertionError
"""
    path = tmp_path / "events.jsonl"
    env = {**os.environ, "EVENTS": str(path), "PYTHONPATH": str(Path(__file__).parents[3])}
    subprocess.run(
        [sys.executable, "-c", SETUP.format(before="", code=code)], env=env, check=True, cwd=tmp_path
    )


def test_install_imports_no_framework(tmp_path: Path) -> None:
    code = """
heavy = {"keras", "tf_keras", "tensorflow", "torch", "lightning", "transformers", "numpy", "tensorboard"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    env = {**os.environ, "EVENTS": str(tmp_path / "events.jsonl")}
    subprocess.run([sys.executable, "-c", SETUP.format(before="", code=code)], env=env, check=True)


def test_callbacks_that_fail_let_training_go_on() -> None:
    from jupyter_dist.worker import autolog

    ran = []

    @autolog.guarded("something")
    def fail(value: int) -> None:
        ran.append(value)
        raise ValueError("no such step")

    fail(1)
    fail(2)
    assert ran == [1, 2]
