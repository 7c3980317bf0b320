"""PyTorch's recipe for the sharded optimizer: a model before the process group, then ZeRO or plain Adam.

source: https://docs.pytorch.org/tutorials/recipes/zero_redundancy_optimizer.html
group: torch
notebook: --backend torchrun -np 2
plain: torchrun --standalone --nproc-per-node 2 SCRIPT
compared: weights with and without, exactly
changed: nothing
"""

# %%
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.optim as optim
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(0)
start = nn.Sequential(*[nn.Linear(20, 20) for _ in range(4)]).state_dict()


# %%
def example(rank, world_size, use_zero):
    model = nn.Sequential(*[nn.Linear(20, 20) for _ in range(4)])
    model.load_state_dict(start)
    ddp_model = DDP(model)
    loss_fn = nn.MSELoss()
    if use_zero:
        optimizer = ZeroRedundancyOptimizer(ddp_model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
    else:
        optimizer = optim.Adam(ddp_model.parameters(), lr=0.01)
    draw = torch.Generator().manual_seed(rank)
    for _ in range(3):
        outputs = ddp_model(torch.randn(20, 20, generator=draw))
        optimizer.zero_grad()
        loss_fn(outputs, torch.ones(20, 20)).backward()
        optimizer.step()
    held = sum(len(group["params"]) for group in optimizer.param_groups)
    return {"weights": [p.flatten().tolist() for p in model.parameters()], "parameters": held}


# %%
if "RANK" not in os.environ:
    mp.spawn(example, args=(2, True), nprocs=2, join=True)
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", rank=rank, world_size=world_size)
print("=== Using ZeroRedundancyOptimizer ===")
with_zero = example(rank, world_size, True)
print("=== Not Using ZeroRedundancyOptimizer ===")
without = example(rank, world_size, False)
{"rank": rank, "with": with_zero, "without": without}
