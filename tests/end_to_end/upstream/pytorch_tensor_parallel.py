"""PyTorch's tensor parallelism: a plan made of styles, a mesh, an optimizer over DTensors.

source: https://github.com/pytorch/examples/blob/main/distributed/tensor_parallelism/tensor_parallel_example.py
group: torch
notebook: --backend torchrun -np 2
plain: torchrun --standalone --nproc-per-node 2 SCRIPT
compared: outputs and each rank's shards, exactly
changed: nothing
"""

# %%
import logging
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO, stream=sys.stdout)


def get_logger():
    return logging.getLogger("tensor parallel")


def rank_log(_rank, logger, msg):
    if _rank == 0:
        logger.info(f" {msg}")


logger = get_logger()


# %%
class ToyModel(nn.Module):
    def __init__(self):
        super(ToyModel, self).__init__()
        self.in_proj = nn.Linear(10, 32)
        self.relu = nn.ReLU()
        self.out_proj = nn.Linear(32, 5)

    def forward(self, x):
        return self.out_proj(self.relu(self.in_proj(x)))


torch.manual_seed(3)
tp_model = ToyModel()
plan = {"in_proj": ColwiseParallel(), "out_proj": RowwiseParallel()}

# %%
_world_size = int(os.environ["WORLD_SIZE"])
device_mesh = init_device_mesh(device_type="cpu", mesh_shape=(_world_size,))
_rank = device_mesh.get_rank()
assert _world_size % 2 == 0, f"TP examples require an even number of ranks, but got {_world_size}"
rank_log(_rank, logger, f"Device Mesh created: {device_mesh=}")
tp_model = parallelize_module(module=tp_model, device_mesh=device_mesh, parallelize_plan=plan)
optimizer = torch.optim.AdamW(tp_model.parameters(), lr=0.25, foreach=True)
outputs = []
for i in range(4):
    torch.manual_seed(i)
    inp = torch.rand(20, 10)
    output = tp_model(inp)
    output.sum().backward()
    optimizer.step()
    outputs.append(output.sum().item())
    rank_log(_rank, logger, f"Tensor Parallel iter {i} completed")
shards = [p.to_local().flatten().tolist() for p in tp_model.parameters()]
if dist.is_initialized():
    dist.destroy_process_group()
{"rank": _rank, "outputs": outputs, "shards": shards}
