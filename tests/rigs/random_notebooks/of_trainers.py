"""Kinds of trainers, and of models of the libraries that they are from. Importing these takes long."""

from __future__ import annotations

from .pieces import Kind

__all__ = ["TRAINERS"]

_LIT = """
import torch
import lightning.pytorch as pl
from torch.utils.data import DataLoader, TensorDataset
---
class Lit_N(pl.LightningModule):
    def __init__(self, width=1):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(2, width)
        torch.nn.init.constant_(self.layer.weight, 0.5)
        torch.nn.init.zeros_(self.layer.bias)
    def training_step(self, batch, i):
        return self.layer(batch[0]).pow(2).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
---
lit_N = Lit_N()
loader_N = DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2)
"""
_QUIET = "logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False"

TRAINERS = [
    Kind(
        "Lightning module",
        _LIT,
        ("lit_N.hparams.width", "lit_N.layer.weight.tolist()", "isinstance(lit_N, Lit_N)", "len(loader_N)"),
        needs=("lightning",),
        thing="lit_N",
        look="sum(p.numel() for p in IT.parameters())",
    ),
    Kind(
        "Lightning trainer",
        f"""
{_LIT}
---
trainer_N = pl.Trainer(max_epochs=INT_A % 3 + 1, accelerator="cpu", devices=1, {_QUIET})
---
def train_N():
    trainer_N.fit(lit_N, loader_N)
    return trainer_N.current_epoch, round(lit_N.layer.weight.sum().item(), 5)
""",
        ("trainer_N.max_epochs", "train_N()"),
        needs=("lightning",),
        refused=True,
    ),
    Kind(
        "Fabric",
        'from lightning.fabric import Fabric\n---\nfabric_N = Fabric(accelerator="cpu", devices=1)',
        ("fabric_N.world_size", "fabric_N.device.type"),
        needs=("lightning",),
        refused=True,
    ),
    Kind(
        "accelerator",
        """
import torch
from accelerate import Accelerator
---
accelerator_N = Accelerator(cpu=True, gradient_accumulation_steps=INT_A)
---
def step_N(x):
    with accelerator_N.accumulate(torch.nn.Linear(1, 1)):
        return accelerator_N.is_main_process, x
""",
        ("accelerator_N.num_processes", "accelerator_N.gradient_accumulation_steps", "step_N(1)"),
        needs=("accelerate",),
        refused=True,
    ),
    Kind(
        "training arguments",
        """
from transformers import TrainingArguments
---
args_N = TrainingArguments(output_dir="out_N", learning_rate=INT_A / 100, report_to=[], use_cpu=True)
""",
        ("args_N.learning_rate", "args_N.output_dir", "args_N.world_size", "args_N.train_batch_size"),
        needs=("transformers",),
        refused=True,
    ),
    Kind(
        "transformers and a small model of theirs",
        """
import torch, transformers
---
torch.manual_seed(INT_A)
config_N = transformers.GPT2Config(n_layer=1, n_head=1, n_embd=4, vocab_size=5, n_positions=8)
gpt_N = transformers.GPT2LMHeadModel(config_N).eval()
""",
        (
            "transformers.__version__",
            "gpt_N.config is config_N or gpt_N.config.n_embd",
            "round(gpt_N(torch.tensor([[1, 2]])).logits.sum().item(), 4)",
            "gpt_N.lm_head.weight is gpt_N.transformer.wte.weight",
        ),
        needs=("transformers",),
        thing="gpt_N",
        look="IT.config.n_layer",
    ),
    Kind(
        "Keras model",
        """
import keras
import numpy as np
---
keras.utils.set_random_seed(INT_A)
net_N = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), keras.layers.Dense(1)])
net_N.compile("sgd", "mse")
---
def step_N(x):
    net_N.fit(np.ones((4, 2)) * x, np.zeros((4, 1)), epochs=1, verbose=0)
    return round(float(net_N.predict(np.ones((1, 2)), verbose=0)[0, 0]), 4)
---
step_N(1)
""",
        (
            "len(net_N.layers)",
            "round(float(net_N.predict(np.ones((1, 2)), verbose=0)[0, 0]), 5)",
            "int(net_N.optimizer.iterations.numpy())",
            "step_N(1)",
        ),
        needs=("keras", "tensorflow"),
    ),
    Kind(
        "Keras classes of the notebook's own",
        """
import keras
from keras import layers as layers_N
---
class Scale_N(layers_N.Layer):
    def build(self, shape):
        self.w = self.add_weight(shape=(), initializer="ones")
    def call(self, x):
        return self.w * x * INT_A
---
class Note_N(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = []
---
def loss_N(y, p):
    return keras.ops.mean((y - p) ** 2)
---
layer_N, note_N = Scale_N(), Note_N()
out_N = float(layer_N(keras.ops.ones((1,)))[0])
""",
        ("float(layer_N(keras.ops.ones((1,)))[0])", "note_N.seen", "float(loss_N(1.0, 3.0))", "out_N"),
        needs=("keras", "tensorflow"),
    ),
]
