"""Trainers made in an earlier cell: on a rank they are those that the cell itself would have made."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_dist.worker.import_hooks import AfterImport

Kernel = Any

LIGHTNING = """
%load_ext jupyter_dist
import warnings; warnings.simplefilter("ignore")
import torch, lightning as L, lightning_fabric, pytorch_lightning
from lightning.fabric import Fabric
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import DDPStrategy

class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        loss = self.layer(batch[0]).pow(2).mean()
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

class Data(L.LightningDataModule):
    def train_dataloader(self):
        return torch.utils.data.DataLoader(data, batch_size=4)

class Seen(L.Callback):
    trainer = None
    sizes = []
    def on_train_end(self, trainer, module):
        self.sizes = [*self.sizes, trainer.world_size]

class Lite(Fabric):
    def __init__(self, scale, **more):
        super().__init__(**more)
        self.scale = scale
        self.number = self.global_rank

torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(32, 4))
model, other, alone, tried = Model(), Model(), Model(), Model()
quiet = dict(enable_progress_bar=False, enable_model_summary=False, accelerator="cpu", max_epochs=1)
none = dict(enable_checkpointing=False, logger=False)
seen, checkpoint = Seen(), ModelCheckpoint(dirpath="kept", filename="last")
trainer = L.Trainer(**quiet, callbacks=[seen, checkpoint], logger=CSVLogger("logs"), log_every_n_steps=1)
seen.trainer = trainer
added = Seen()
trainer.callbacks.append(added)
trainer.limit_train_batches = 3
trainer.mine = {"its": model}
ddp = DDPStrategy(find_unused_parameters=True, start_method="fork")
by_object = L.Trainer(**quiet, **none, strategy=ddp, devices=1)
for_kernel = L.Trainer(**quiet, **none, strategy="ddp_notebook", devices=2)
each = L.Trainer(**quiet, **none, devices=1)
longer = L.Trainer(**quiet, **none)
longer.fit_loop.max_epochs = 2
dm = Data()
L.Trainer(**quiet, **none).fit(tried, dm)
fabric = Lite(3, accelerator="cpu")
fabric.launch()
older = pytorch_lightning.Trainer(**quiet, **none)
newer = lightning_fabric.Fabric(accelerator="cpu")
"""

LIGHTNING_RANKS = """
%%distribute -np 2 --gpus-per-worker 0 --out run
import copy, os
def weights(module):
    return module.layer.weight.flatten().tolist()
found = {}
for module in (other, model, alone):
    module.load_state_dict(tried.state_dict())
start = weights(model)
made_here = L.Trainer(**quiet, **none, limit_train_batches=3)
made_here.fit(other, torch.utils.data.DataLoader(data, batch_size=4))
trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=4))
found["same"] = (start != weights(model), weights(model) == weights(other), weights(model))
found["sizes"] = (trainer.world_size, trainer.global_rank, trainer.num_training_batches)
found["callbacks"] = (seen.sizes, added.sizes, seen.trainer is trainer, trainer.mine["its"] is model)
logs = os.path.exists("logs/lightning_logs/version_0")
found["files"] = (os.path.basename(checkpoint.best_model_path), logs)
for name, its in {"by_object": by_object, "for_kernel": for_kernel, "longer": longer}.items():
    its.fit(copy.deepcopy(other), datamodule=dm)
    found[name] = (its.world_size, its.current_epoch, its.num_training_batches)
found["by_object's"] = by_object.strategy._ddp_kwargs
each.fit(alone, dm)
found["each"] = (each.world_size, each.num_training_batches, dm.trainer is each)
found["fabric"] = (fabric.world_size, fabric.global_rank, fabric.number, fabric.scale, type(fabric).__name__)
torch.manual_seed(fabric.global_rank)
found["other names"] = (older.world_size, newer.world_size)
found["set up"] = fabric.setup(torch.nn.Linear(4, 1)).weight.flatten().tolist()
found
"""


def refusals(kernel: Kernel, code: str) -> dict[str, str]:
    """What a cell that is refused says of each name, with what to do about it."""
    cell = kernel.start(code).finish()
    assert cell.error is not None, "nothing was refused"
    _, _, text = cell.error.partition("CaptureError: ")
    lines, found = text.split("Nothing was started.")[0].splitlines(), {}
    for line, cure in zip(lines[::2], lines[1::2], strict=False):
        name, _, message = line.partition(": ")
        found[name] = f"{message} {cure.strip()}"
    return found


def results(kernel: Kernel, name: str = "run") -> list[dict[str, Any]]:
    text = kernel.run(f"import json; print(json.dumps([*{name}.results]))").stdout
    found: list[dict[str, Any]] = json.loads(text)
    return found


@pytest.mark.needs("torch", "lightning", "pytorch_lightning")
def test_lightning(kernel: Kernel) -> None:
    kernel.run(LIGHTNING)
    kernel.run(LIGHTNING_RANKS.strip())
    first, second = results(kernel)
    assert first["same"] == [True, True, first["same"][2]]
    assert first["same"] == second["same"], "one model, and the numbers of a trainer made in the cell"
    assert (first["sizes"], second["sizes"]) == ([2, 0, 3], [2, 1, 3])
    assert first["callbacks"] == second["callbacks"] == [[2], [2], True, True]
    assert first["files"] == ["last.ckpt", True]
    assert first["by_object"] == first["for_kernel"] == second["by_object"] == [2, 1, 4]
    assert first["longer"] == [2, 2, 4]
    assert first["by_object's"] == {"find_unused_parameters": True}
    assert first["each"] == second["each"] == [1, 8, True], "devices=1 still has each rank train its own"
    assert (first["fabric"], second["fabric"]) == ([2, 0, 0, 3, "Lite"], [2, 1, 1, 3, "Lite"])
    assert first["other names"] == second["other names"] == [2, 2]
    assert first["set up"] == second["set up"]

    kernel.run(LIGHTNING_REFUSED)
    use = "%%distribute -np 2\nfitted, ddp, turned, used, layer"
    again = "Make it inside the cell, or in a function that the cell calls."
    assert refusals(kernel, use) == {
        "fitted": "Lightning's Trainer that has run in the notebook, and a rank cannot continue from there "
        + again,
        "ddp": f"a DDPStrategy that a trainer of the notebook has set up for its one process {again}",
        "turned": f"Lightning's Trainer whose callbacks are in another order since it was made {again}",
        "used": "Lightning's Fabric that has set up a model in the notebook, and a rank cannot continue "
        f"from there {again}",
        "layer": "fabric.setup() has prepared it for the notebook's one process "
        "Call fabric.setup() inside the cell, or in a function that the cell calls.",
    }
    kernel.run("turned = L.Trainer(**quiet); turned.validate_loop.verbose = False")
    assert refusals(kernel, "%%distribute -np 2\nturned") == {
        "turned": f"Lightning's Trainer whose validate_loop.verbose has changed since it was made {again}"
    }
    for refused in ('L.Trainer(strategy="ddp", num_nodes=4)', 'Fabric(strategy="ddp", devices=2)'):
        told = kernel.start(refused).finish().text
        assert "is not compatible with an interactive environment" in told
        name = refused.removeprefix("L.").partition("(")[0]
        assert f"jupyter-dist: make this {name} inside the cell that trains." in told


LIGHTNING_REFUSED = """
fitted = L.Trainer(**quiet, **none)
fitted.fit(tried, dm)
turned = L.Trainer(**quiet, callbacks=[Seen()])
turned.callbacks.reverse()
used = Fabric(accelerator="cpu", devices=1)
layer = used.setup(torch.nn.Linear(4, 1))
"""


HUGGING_FACE = """
import warnings; warnings.simplefilter("ignore")
import torch
from accelerate import Accelerator, PartialState
early = Accelerator()
PartialState._reset_state()
from jupyter_dist import run
from transformers import (
    BertConfig, BertForSequenceClassification, PrinterCallback, Seq2SeqTrainingArguments, Trainer,
    TrainerCallback, TrainingArguments,
)

state = PartialState()
accelerator = Accelerator(gradient_accumulation_steps=2)
torch.manual_seed(0)
rows = [{"input_ids": torch.randint(0, 32, (6,)), "labels": torch.tensor(i % 2)} for i in range(16)]
small = dict.fromkeys(("hidden_size", "intermediate_size"), 8)
dropout = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
config = BertConfig(vocab_size=32, num_hidden_layers=1, num_attention_heads=1, **small, **dropout)
common = dict(per_device_train_batch_size=4, num_train_epochs=1, save_strategy="no", report_to="none",
              disable_tqdm=True, logging_steps=1, learning_rate=0.1)
arguments = TrainingArguments("kept/out", **common)
arguments.learning_rate = 0.01
arguments.mine = "its"
of_pairs = Seq2SeqTrainingArguments("pairs", predict_with_generate=True, report_to="none")

class Weighted(Trainer):
    def __init__(self, *args, weight=1.0, **more):
        super().__init__(*args, **more)
        self.weight = weight
        self.is_first = self.is_world_process_zero()
    def compute_loss(self, model, inputs, return_outputs=False, **more):
        loss = super().compute_loss(model, inputs, False, **more)
        return loss * self.weight

class Seen(TrainerCallback):
    trainer = None
    steps = 0
    def on_step_end(self, args, state, control, **more):
        self.steps += 1

model = BertForSequenceClassification(config)
seen, added = Seen(), Seen()
trainer = Weighted(model, arguments, train_dataset=rows, callbacks=[seen], weight=2.0)
seen.trainer = model.its_trainer = trainer
trainer.remove_callback(PrinterCallback)
trainer.add_callback(added)
next(iter(trainer.get_train_dataloader()))
late = Trainer(model_init=lambda: BertForSequenceClassification(config), args=arguments)
late.train_dataset = rows
late.label_names = ["labels"]
accelerator.gradient_accumulation_steps = 3

def ask(trainer, state, accelerator, pairs):
    import copy
    found = {"accumulates": accelerator.gradient_accumulation_steps}
    accelerator.gradient_accumulation_steps = 1  # all Accelerators share it
    own = copy.deepcopy(model.state_dict())
    arguments = trainer.args
    found["arguments"] = (
        arguments.world_size, arguments.process_index, arguments.local_process_index, arguments.should_save,
        arguments.output_dir, arguments.learning_rate, arguments.mine,
        arguments.parallel_mode.value,
    )
    found["pairs"] = (pairs.world_size, pairs.process_index, pairs.predict_with_generate)
    found["pairs"] += (type(pairs).__name__,)
    found["trainer"] = (trainer.is_world_process_zero(), trainer.is_first, trainer.weight)
    found["held"] = (
        trainer.model is model, model.its_trainer is trainer, seen.trainer is trainer,
        [type(c).__name__ for c in trainer.callback_handler.callbacks],
    )
    found["state"] = (state.num_processes, state.process_index)
    found["accelerator"] = (accelerator.num_processes, accelerator.process_index)
    torch.manual_seed(1)
    trainer.train()
    found["trained"] = [p.sum().item() for p in trainer.model.parameters()]
    found["steps"] = (trainer.state.global_step, seen.steps, added.steps)
    found["logged"] = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    again = BertForSequenceClassification(config)
    again.load_state_dict(own)
    here = TrainingArguments("kept/out", **{**common, "learning_rate": 0.01})
    made_here = Weighted(again, here, train_dataset=rows, weight=2.0)
    found["devices"] = (str(arguments.device), str(here.device))
    torch.manual_seed(1)
    made_here.train()
    found["made here"] = [p.sum().item() for p in again.parameters()]
    found["logged here"] = [entry["loss"] for entry in made_here.state.log_history if "loss" in entry]
    found["late"] = (late.train_dataset is rows, late.label_names, late.train().global_step)
    torch.manual_seed(state.process_index)
    layer = accelerator.prepare(torch.nn.Linear(4, 1))
    found["prepared"] = [p.tolist() for p in layer.parameters()]
    return found
"""


HUGGING_FACE_REFUSED = """
tried = Trainer(model, arguments, eval_dataset=rows)
tried.evaluate()
other = Trainer(model, arguments, train_dataset=rows)
other.model = BertForSequenceClassification(config)
its = trainer.accelerator
layer = torch.nn.Linear(4, 1)
layer, optimizer = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), lr=0.1))
"""


@pytest.mark.needs("torch", "transformers", "accelerate")
def test_hugging_face(kernel: Kernel) -> None:
    kernel.run(HUGGING_FACE)
    call = "run(ask, trainer, state, accelerator, of_pairs, np=2, options={'gpus_per_worker': 0}"
    kernel.run(f"result = {call}, backend='torchrun')")
    first, second = results(kernel, "result")
    for rank, found in enumerate((first, second)):
        main = rank == 0
        assert found["arguments"] == [
            *(2, rank, rank, main, "kept/out", 0.01, "its", "distributed"),
        ]
        assert found["devices"] == [found["devices"][0]] * 2
        assert found["pairs"] == [2, rank, True, "Seq2SeqTrainingArguments"]
        assert found["trainer"] == [main, main, 2.0]
        assert found["held"] == [
            *(True, True, True),
            ["DefaultFlowCallback", "Seen", "JupyterDistCallback", "Seen"],
        ]
        assert found["state"] == found["accelerator"] == [2, rank]
        assert found["steps"] == [2, 2, 2], "each rank takes half of the batches"
        assert found["trained"] == found["made here"]
        assert found["logged"] == found["logged here"] != []
        assert found["late"] == [True, ["labels"], 2]
        assert found["accumulates"] == 3
    assert first["trained"] == second["trained"]
    assert first["prepared"] == second["prepared"]

    kernel.run(HUGGING_FACE_REFUSED)
    kernel.run("%load_ext jupyter_dist")
    again = "Make it inside the cell, or in a function that the cell calls."
    assert refusals(kernel, "%%distribute -np 2\nearly, tried, other, its, optimizer") == {
        "early": "an Accelerator that was made before jupyter_dist was loaded, or is a copy, so its "
        "arguments are unknown Run the line that makes it again, because jupyter-dist now sees it. Or "
        "make it inside the cell, or in a function that the cell calls.",
        "tried": "a Trainer of transformers that has run in the notebook, and a rank cannot continue "
        f"from there {again}",
        "other": f"a Trainer of transformers whose model has changed since it was made {again}",
        "its": "an Accelerator that another object has made for itself Read it from that object inside "
        "the cell, as in `accelerator = trainer.accelerator`.",
        "optimizer": "accelerator.prepare() has prepared it for the notebook's one process "
        "Call accelerator.prepare() inside the cell, or in a function that the cell calls.",
    }
    assert refusals(kernel, "%%distribute -np 2\naccelerator") == {
        "accelerator": "an Accelerator that has prepared something in the notebook, and a rank cannot "
        f"continue from there {again}",
    }


def test_two_hooks_on_one_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hooked_twice.py").write_text("value = 7\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    seen: list[tuple[int, int]] = []

    def hook_of(number: int) -> AfterImport:
        return AfterImport({"hooked_twice"}, lambda name, module: seen.append((number, module.value)))

    hooks = [hook_of(0), hook_of(1)]
    for hook in (*hooks, *hooks):
        hook.install()
    module = importlib.import_module("hooked_twice")
    assert seen == [(0, 7), (1, 7)]
    assert "exec_module" not in vars(module.__loader__)
    importlib.reload(module)
    assert len(seen) == 4
    hooks[0].remove()
    importlib.reload(module)
    assert seen[4:] == [(1, 7)]
    del sys.modules["hooked_twice"]


FAKE = {
    "accelerate/__init__.py": "",
    "accelerate/accelerator.py": """
class Accelerator:
    def __init__(self, rows=None, *, steps=1, fail=False):
        "Its own words."
        if fail:
            raise ValueError("no such device")
        self.rows = rows
        self.steps = steps
        self.inner = None if rows is None else Accelerator()
    _models = _optimizers = _schedulers = _dataloaders = _custom_objects = ()
""",
    "accelerate/state.py": """
class PartialState:
    _shared_state = {}
    def __init__(self, cpu=False, **kwargs):
        self.__dict__ = self._shared_state
        if not self._shared_state:
            self.cpu = cpu
class AcceleratorState:
    _shared_state = {}
""",
}

GUEST = """
import copy, gc, inspect, pickle, sys, threading, weakref
early = "before" in sys.argv
if early:
    import accelerate.accelerator
from jupyter_dist.capture import trainer_calls as recording
before = list(sys.meta_path)
recording.install(); recording.install()
assert len(sys.meta_path) == len(before) + 1
assert not {"torch", "transformers", "lightning", "numpy"} & set(sys.modules)
from accelerate.accelerator import Accelerator
from accelerate.state import PartialState
from jupyter_dist.worker import pickling
from jupyter_dist.worker.pickling.reducers import NOTES, Refused

def there(value):
    dumped = pickling.dump(value, mains=[globals()])
    with pickling.loading({}):
        return pickle.loads(dumped.body, buffers=dumped.buffers)

def refused(value):
    try:
        there(value)
    except Refused as error:
        return str(error)

class Rows(list):
    pass

class Own(Accelerator):
    def __init__(self, *args, scale, **more):
        scale += 1
        self.early = scale
        super().__init__(*args, **more)
        self.scale = scale

assert str(inspect.signature(Accelerator)) == "(rows=None, *, steps=1, fail=False)"
assert Accelerator.__init__.__doc__ == "Its own words."
for _ in range(2):
    try:
        Accelerator(fail=True)
    except ValueError as error:
        assert str(error) == "no such device"
    else:
        raise AssertionError

rows = Rows([1, 2])
one, two = Own(rows, scale=3, steps=5), Own(scale=1)
first, same, second = there((one, one, two))
assert first is same and (first.rows, first.steps, first.scale, first.early) == ([1, 2], 5, 4, 4)
assert (second.rows, second.scale, vars(type(first)) is vars(Own)) == (None, 2, False)
assert not hasattr(vars(type(first))["__init__"], NOTES), "the class travels as it was written"
rows.append(3)
one.steps, one.more = 7, rows
first = there(one)
assert (first.steps, first.more is first.rows, first.rows) == (7, True, [1, 2, 3])
assert "another object has made" in refused(one.inner)
one.rows = Rows()
assert refused(one) == "an Accelerator whose rows has changed since it was made"
one.rows = rows
assert refused(one) is None
del one.steps
assert refused(one) == "an Accelerator whose steps has changed since it was made"

kept = Rows()
gone = weakref.ref(kept)
held = Accelerator(kept)
held.rows = None
del kept
assert gone() is None, "what was given lives no longer than without us"
kept = Rows()
kept.owner = held = Accelerator(kept)
gone = weakref.ref(kept)
del kept, held
gc.collect()
assert gone() is None, "nor what refers back to what was made with it"

assert pickle.loads(pickle.dumps(two)).scale == copy.deepcopy(two).scale == 2
assert "is a copy" in refused(copy.deepcopy(two))

made = []
threads = [threading.Thread(target=lambda: made.append(Accelerator(Rows(), steps=3))) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert [there(each).steps for each in made] == [3] * 8

state = PartialState(cpu=True)
assert PartialState().cpu
found = there(state)
assert found.cpu and PartialState._shared_state is vars(found)

recording.remove(); recording.remove()
assert list(sys.meta_path) == before
for cls in (Accelerator, Own, PartialState):
    assert not hasattr(cls.__init__, NOTES)
assert "__init_subclass__" not in vars(Accelerator)
assert "is a copy" in refused(Own(scale=1))
recording.install()
assert there(Own(scale=1)).scale == 2
"""


@pytest.mark.parametrize("imported", ["before", "after"])
def test_a_guest_in_the_kernel(tmp_path: Path, imported: str) -> None:
    """What notes how things are made changes nothing of them, and keeps nothing alive."""
    for name, text in FAKE.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[3]}"}
    (tmp_path / "guest.py").write_text(GUEST)
    subprocess.run([sys.executable, "guest.py", imported], env=env, check=True, cwd=tmp_path)
