"""PyTorch's basic example of DDP: functions in earlier cells, and who a rank is from the environment.

source: https://github.com/pytorch/examples/blob/main/distributed/ddp/example.py
group: torch
notebook: -np 2
plain: torchrun --standalone --nproc-per-node 2 SCRIPT
compared: losses and weights, exactly
changed: nothing
"""

# %%
import argparse
import os
import sys
import tempfile
from urllib.parse import urlparse

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.optim as optim
from torch.nn.parallel import DistributedDataParallel as DDP


# %%
class ToyModel(nn.Module):
    def __init__(self):
        super(ToyModel, self).__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


# %%
def demo_basic(rank):
    print(f"[{os.getpid()}] rank = {dist.get_rank()}, world_size = {dist.get_world_size()}")
    torch.manual_seed(rank)
    ddp_model = DDP(ToyModel())
    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.01)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = loss_fn(ddp_model(torch.randn(20, 10)), torch.randn(20, 5))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with tempfile.TemporaryDirectory() as folder:
        torch.save(ddp_model.state_dict(), os.path.join(folder, "toy.pt"))
        weights = torch.load(os.path.join(folder, "toy.pt"))
    return {"rank": rank, "losses": losses, "weights": {k: v.tolist() for k, v in weights.items()}}


def main():
    env_dict = {key: os.environ[key] for key in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE")}
    if sys.platform == "win32":
        init_method = urlparse(f"file:///{os.path.join(tempfile.gettempdir(), 'ddp_example')}").geturl()
        dist.init_process_group(
            backend="gloo", init_method=init_method, rank=int(env_dict["RANK"]), world_size=2
        )
    else:
        print(f"[{os.getpid()}] Initializing process group with: {env_dict}")
        dist.init_process_group(backend="gloo")
    found = demo_basic(dist.get_rank())
    dist.destroy_process_group()
    return found


# %%
parser = argparse.ArgumentParser()
parser.parse_args([])
main()
