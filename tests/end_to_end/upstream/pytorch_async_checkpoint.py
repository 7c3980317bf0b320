"""PyTorch's recipe for asynchronous checkpoints: an application's state, saved beside the training, loaded.

source: https://docs.pytorch.org/tutorials/recipes/distributed_async_checkpoint_recipe.html
group: torch
notebook: --backend torchrun -np 2
plain: torchrun --standalone --nproc-per-node 2 SCRIPT
compared: losses and what is loaded on each rank, exactly
changed: nothing
"""

# %%
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import fully_shard

CHECKPOINT_DIR = "checkpoint"


# %%
class AppState(Stateful):
    def __init__(self, model, optimizer=None):
        self.model = model
        self.optimizer = optimizer

    def state_dict(self):
        model_state_dict, optimizer_state_dict = get_state_dict(self.model, self.optimizer)
        return {"model": model_state_dict, "optim": optimizer_state_dict}

    def load_state_dict(self, state_dict):
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state_dict["model"],
            optim_state_dict=state_dict["optim"],
        )


class ToyModel(nn.Module):
    def __init__(self):
        super(ToyModel, self).__init__()
        self.net1 = nn.Linear(16, 16)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(16, 8)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


torch.manual_seed(6)
model = ToyModel()
inputs = torch.rand(8, 16, generator=torch.Generator().manual_seed(7))


# %%
def setup():
    dist.init_process_group("cpu:gloo", rank=int(os.environ["RANK"]))


def run_fsdp_checkpoint_save_example():
    setup()
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    losses, checkpoint_future = [], None
    process_group = dist.new_group(backend="gloo")
    for step in range(4):
        optimizer.zero_grad()
        loss = model(inputs).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if checkpoint_future is not None:
            checkpoint_future.result()
        state_dict = {"app": AppState(model, optimizer)}
        checkpoint_future = dcp.async_save(
            state_dict, checkpoint_id=f"{CHECKPOINT_DIR}_step{step}", process_group=process_group
        )
    checkpoint_future.result()
    dcp.load({"app": AppState(model, optimizer)}, checkpoint_id=f"{CHECKPOINT_DIR}_step1")
    loaded = [p.to_local().flatten().tolist() for p in model.parameters()]
    return {"rank": dist.get_rank(), "losses": losses, "loaded": loaded, "after": model(inputs).sum().item()}


# %%
print(f"Running async checkpoints with {os.environ['WORLD_SIZE']} ranks")
run_fsdp_checkpoint_save_example()
