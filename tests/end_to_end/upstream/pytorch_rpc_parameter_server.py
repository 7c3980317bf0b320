"""PyTorch's parameter server over RPC, updated in batches by an asynchronous function of a class.

source: https://github.com/pytorch/examples/blob/main/distributed/rpc/batch/parameter_server.py
group: torch
notebook: -np 3
plain: torchrun --standalone --nproc-per-node 3 SCRIPT
compared: losses of the trainers and weights of the server, to 1e-6
changed: nothing
"""

# %%
import os
import threading
from datetime import datetime

import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc
import torch.nn as nn
from torch import optim

batch_size = 10
num_classes = 4
num_batches = 4
batch_update_size = 2


def timed_log(text):
    print(f"{datetime.now().strftime('%H:%M:%S')} {text}")


# %%
class BatchUpdateParameterServer(object):
    def __init__(self, batch_update_size=batch_update_size):
        self.model = nn.Linear(6, num_classes)
        nn.init.constant_(self.model.weight, 0.1)
        nn.init.zeros_(self.model.bias)
        self.lock = threading.Lock()
        self.future_model = torch.futures.Future()
        self.batch_update_size = batch_update_size
        self.curr_update_size = 0
        self.optimizer = optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        for p in self.model.parameters():
            p.grad = torch.zeros_like(p)

    def get_model(self):
        return self.model

    @staticmethod
    @rpc.functions.async_execution
    def update_and_fetch_model(ps_rref, grads):
        self = ps_rref.local_value()
        timed_log(f"PS got {self.curr_update_size}/{batch_update_size} updates")
        for p, g in zip(self.model.parameters(), grads):
            p.grad += g
        with self.lock:
            self.curr_update_size += 1
            fut = self.future_model
            if self.curr_update_size >= self.batch_update_size:
                for p in self.model.parameters():
                    p.grad /= self.batch_update_size
                self.curr_update_size = 0
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=False)
                fut.set_result(self.model)
                self.future_model = torch.futures.Future()
        return fut


class Trainer(object):
    def __init__(self, ps_rref):
        self.ps_rref = ps_rref
        self.loss_fn = nn.MSELoss()
        self.one_hot_indices = (torch.arange(batch_size) % num_classes).view(batch_size, 1)

    def get_next_batch(self):
        draw = torch.Generator().manual_seed(rpc.get_worker_info().id)
        for _ in range(num_batches):
            inputs = torch.randn(batch_size, 6, generator=draw)
            labels = torch.zeros(batch_size, num_classes).scatter_(1, self.one_hot_indices, 1)
            yield inputs, labels

    def train(self):
        losses = []
        m = self.ps_rref.rpc_sync().get_model()
        for inputs, labels in self.get_next_batch():
            loss = self.loss_fn(m(inputs), labels)
            loss.backward()
            losses.append(loss.item())
            m = rpc.rpc_sync(
                self.ps_rref.owner(),
                BatchUpdateParameterServer.update_and_fetch_model,
                args=(self.ps_rref, [p.grad for p in m.parameters()]),
            )
        return losses


# %%
def run_trainer(ps_rref):
    return Trainer(ps_rref).train()


def run_ps(trainers):
    ps_rref = rpc.RRef(BatchUpdateParameterServer())
    futs = [rpc.rpc_async(trainer, run_trainer, args=(ps_rref,)) for trainer in trainers]
    losses = torch.futures.wait_all(futs)
    return losses, [p.flatten().tolist() for p in ps_rref.local_value().get_model().parameters()]


def run(rank, world_size):
    dist.init_process_group(backend="gloo", rank=rank, world_size=world_size)
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=16, rpc_timeout=60)
    name = "ps" if rank == 0 else f"trainer{rank}"
    rpc.init_rpc(name, rank=rank, world_size=world_size, rpc_backend_options=options)
    found = run_ps([f"trainer{r}" for r in range(1, world_size)]) if rank == 0 else None
    rpc.shutdown()
    dist.destroy_process_group()
    return found


# %%
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
{"rank": rank, "found": run(rank, world_size)}
