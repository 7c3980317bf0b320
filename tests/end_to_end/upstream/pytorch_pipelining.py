"""PyTorch's tutorial on pipelining: a model cut in stages, driven by a GPipe schedule.

source: https://docs.pytorch.org/tutorials/intermediate/pipelining_tutorial.html
group: torch
notebook: --backend torchrun -np 2
plain: torchrun --standalone --nproc-per-node 2 SCRIPT
compared: losses of the last stage and each stage's gradients, exactly
changed: nothing
"""

# %%
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe


@dataclass
class ModelArgs:
    dim: int = 16
    n_layers: int = 4
    n_heads: int = 2
    vocab_size: int = 20


# %%
class Transformer(nn.Module):
    def __init__(self, model_args: ModelArgs):
        super().__init__()
        self.tok_embeddings = nn.Embedding(model_args.vocab_size, model_args.dim)
        self.layers = torch.nn.ModuleDict()
        for layer_id in range(model_args.n_layers):
            self.layers[str(layer_id)] = nn.TransformerEncoderLayer(
                model_args.dim, model_args.n_heads, dim_feedforward=32, dropout=0.0, batch_first=True
            )
        self.norm = nn.LayerNorm(model_args.dim)
        self.output = nn.Linear(model_args.dim, model_args.vocab_size)

    def forward(self, tokens: torch.Tensor):
        h = self.tok_embeddings(tokens) if self.tok_embeddings else tokens
        for layer in self.layers.values():
            h = layer(h)
        h = self.norm(h) if self.norm else h
        return self.output(h).clone() if self.output else h


# %%
global rank, device, pp_group, stage_index, num_stages


def init_distributed():
    global rank, device, pp_group, stage_index, num_stages
    rank = int(os.environ["LOCAL_RANK"])
    device = torch.device(f"cuda:{rank}") if torch.cuda.is_available() else torch.device("cpu")
    dist.init_process_group(backend="gloo")
    pp_group = dist.new_group()
    stage_index = rank
    num_stages = int(os.environ["WORLD_SIZE"])


def manual_model_split(model) -> PipelineStage:
    if stage_index == 0:
        for i in range(2, 4):
            del model.layers[str(i)]
        model.norm = None
        model.output = None
    elif stage_index == 1:
        for i in range(2):
            del model.layers[str(i)]
        model.tok_embeddings = None
    return PipelineStage(model, stage_index, num_stages, device)


def tokenwise_loss_fn(outputs, targets):
    return nn.CrossEntropyLoss()(outputs.reshape(-1, model_args.vocab_size), targets.reshape(-1))


# %%
torch.manual_seed(4)
model_args = ModelArgs()
model = Transformer(model_args)
x = torch.arange(8 * 6).view(8, 6) % model_args.vocab_size
y = (x + 1) % model_args.vocab_size

# %%
init_distributed()
num_microbatches = 4
stage = manual_model_split(model)
schedule = ScheduleGPipe(stage, n_microbatches=num_microbatches, loss_fn=tokenwise_loss_fn)
losses = []
if rank == 0:
    schedule.step(x)
elif rank == 1:
    schedule.step(target=y, losses=losses)
gradients = {name: p.grad.flatten().tolist() for name, p in stage.submod.named_parameters()}
{"rank": rank, "losses": [loss.item() for loss in losses], "gradients": gradients}
