"""PyTorch's FSDP example: a wrapping policy made with `partial`, activation checkpointing, a schedule.

source: https://github.com/pytorch/examples/blob/main/distributed/FSDP/T5_training.py
group: torch
notebook: -np 2
plain: torchrun --standalone --nproc-per-node 2 SCRIPT
compared: losses and each rank's shards, exactly
changed: nothing
"""

# %%
import functools
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.optim.lr_scheduler import StepLR
from torch.utils.data.distributed import DistributedSampler


# %%
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


@dataclass
class train_config:
    batch_size: int = 8
    epochs: int = 2
    lr: float = 2e-2
    gamma: float = 0.85
    sharding_strategy: ShardingStrategy = ShardingStrategy.FULL_SHARD


torch.manual_seed(1)
model = nn.Sequential(nn.Linear(6, 16), Block(16), Block(16), nn.Linear(16, 6))
policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
non_reentrant_wrapper = functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT)
check_fn = lambda submodule: isinstance(submodule, Block)  # noqa: E731
data = torch.rand(64, 6, generator=torch.Generator().manual_seed(2))


# %%
def train(model, loader, optimizer, epoch, sampler):
    sampler.set_epoch(epoch)
    fsdp_loss = torch.zeros(2)
    for x in loader:
        optimizer.zero_grad()
        loss = (model(x) - x.flip(1)).square().mean()
        loss.backward()
        optimizer.step()
        fsdp_loss[0] += loss.item()
        fsdp_loss[1] += len(x)
    dist.all_reduce(fsdp_loss, op=dist.ReduceOp.SUM)
    return (fsdp_loss[0] / fsdp_loss[1]).item()


def fsdp_main(model, cfg):
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    sampler = DistributedSampler(data, rank=rank, num_replicas=world_size, shuffle=True)
    loader = torch.utils.data.DataLoader(data, batch_size=cfg.batch_size, sampler=sampler)
    model = FSDP(
        model,
        auto_wrap_policy=policy,
        sharding_strategy=cfg.sharding_strategy,
        device_id=None,
        sync_module_states=False,
    )
    apply_activation_checkpointing(model, checkpoint_wrapper_fn=non_reentrant_wrapper, check_fn=check_fn)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=cfg.gamma)
    losses = []
    for epoch in range(cfg.epochs):
        losses.append(train(model, loader, optimizer, epoch, sampler))
        scheduler.step()
    return {"rank": rank, "losses": losses, "shards": [p.flatten().tolist() for p in model.parameters()]}


# %%
dist.init_process_group("gloo")
fsdp_main(model, train_config())
