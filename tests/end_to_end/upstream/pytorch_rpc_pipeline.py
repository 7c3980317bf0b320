"""PyTorch's pipeline over RPC: shards with locks live on the workers, the master drives them.

source: https://github.com/pytorch/examples/blob/main/distributed/rpc/pipeline/main.py
group: torch
notebook: -np 3
plain: torchrun --standalone --nproc-per-node 3 SCRIPT
compared: losses and parameters of the master, to 1e-6
changed: nothing
"""

# %%
import os
import threading
import time
import warnings
from functools import wraps

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp
import torch.nn as nn
import torch.optim as optim
from torch.distributed.optim import DistributedOptimizer
from torch.distributed.rpc import RRef

warnings.filterwarnings(
    "ignore", message="You are using a Backend .* as a ProcessGroup", category=UserWarning
)
num_classes = 5
num_batches = 3
batch_size = 12


# %%
def announced(function):
    @wraps(function)
    def wrapper(*args, **kwargs):
        tik = time.time()
        found = function(*args, **kwargs)
        print(f"{function.__name__} took {time.time() - tik:.3f} s")
        return found

    return wrapper


class ShardBase(nn.Module):
    def __init__(self):
        super().__init__()
        self._lock = threading.Lock()

    def _start(self):
        for number, parameter in enumerate(self.parameters()):
            values = torch.linspace(-0.4, 0.5, parameter.numel()) * (1 + number % 3)
            parameter.data = values.view_as(parameter)

    def forward(self, x_rref):
        x = x_rref.to_here()
        with self._lock:
            return self.seq(x)

    def parameter_rrefs(self):
        return [RRef(p) for p in self.parameters()]


class Shard1(ShardBase):
    def __init__(self, width):
        super().__init__()
        self.seq = nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU())
        self._start()


class Shard2(ShardBase):
    def __init__(self, width):
        super().__init__()
        self.seq = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, num_classes))
        self._start()


# %%
class DistNet(nn.Module):
    def __init__(self, split_size, workers, *args, **kwargs):
        super().__init__()
        self.split_size = split_size
        self.p1_rref = rpc.remote(workers[0], Shard1, args=args, kwargs=kwargs)
        self.p2_rref = rpc.remote(workers[1], Shard2, args=args, kwargs=kwargs)

    def forward(self, xs):
        out_futures = []
        for x in iter(xs.split(self.split_size, dim=0)):
            y_rref = self.p1_rref.remote().forward(RRef(x))
            out_futures.append(self.p2_rref.rpc_async().forward(y_rref))
        return torch.cat(torch.futures.wait_all(out_futures))

    def parameter_rrefs(self):
        remote_params = []
        remote_params.extend(self.p1_rref.remote().parameter_rrefs().to_here())
        remote_params.extend(self.p2_rref.remote().parameter_rrefs().to_here())
        return remote_params


@announced
def run_master(split_size):
    model = DistNet(split_size, ["worker1", "worker2"], 4)
    loss_fn = nn.MSELoss()
    opt = DistributedOptimizer(optim.SGD, model.parameter_rrefs(), lr=0.05)
    one_hot_indices = (torch.arange(batch_size) % num_classes).view(batch_size, 1)
    draw = torch.Generator().manual_seed(0)
    losses = []
    for _ in range(num_batches):
        inputs = torch.randn(batch_size, 3, 8, 8, generator=draw)
        labels = torch.zeros(batch_size, num_classes).scatter_(1, one_hot_indices, 1)
        with dist_autograd.context() as context_id:
            outputs = model(inputs)
            dist_autograd.backward(context_id, [loss_fn(outputs, labels)])
            opt.step(context_id)
            losses.append(loss_fn(outputs, labels).item())
    return losses, [rref.to_here().flatten().tolist() for rref in model.parameter_rrefs()]


def run_worker(rank, world_size):
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=8, rpc_timeout=60)
    name = "master" if rank == 0 else f"worker{rank}"
    rpc.init_rpc(name, rank=rank, world_size=world_size, rpc_backend_options=options)
    found = run_master(split_size=batch_size) if rank == 0 else None
    rpc.shutdown()
    return found


# %%
if "RANK" not in os.environ:
    mp.spawn(run_worker, args=(3,), nprocs=3, join=True)
rank = int(os.environ["RANK"])
{"rank": rank, "found": run_worker(rank, int(os.environ["WORLD_SIZE"]))}
