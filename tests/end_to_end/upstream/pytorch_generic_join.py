"""PyTorch's tutorial on uneven inputs: DDP under `Join`, and a counter with a hook of one's own.

source: https://docs.pytorch.org/tutorials/advanced/generic_join.html
group: torch
notebook: -np 2
plain: torchrun --standalone --nproc-per-node 2 SCRIPT
compared: inputs counted, weights, exactly
changed: nothing
"""

# %%
import os

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook
from torch.distributed.optim import ZeroRedundancyOptimizer as ZeRO
from torch.nn.parallel import DistributedDataParallel as DDP

BACKEND = "nccl" if torch.cuda.is_available() else "gloo"
NUM_INPUTS = 5


# %%
class CounterJoinHook(JoinHook):
    def __init__(self, counter, sync_max_count):
        self.counter = counter
        self.sync_max_count = sync_max_count

    def main_hook(self):
        t = torch.zeros(1, device=self.counter.device)
        dist.all_reduce(t)

    def post_hook(self, is_last_joiner: bool):
        if not self.sync_max_count:
            return
        rank = dist.get_rank(self.counter.process_group)
        common_rank = self.counter.find_common_rank(rank, is_last_joiner)
        if rank == common_rank:
            self.counter.max_count = self.counter.count.detach().clone()
        dist.broadcast(self.counter.max_count, src=common_rank)


class Counter(Joinable):
    def __init__(self, device, process_group):
        super(Counter, self).__init__()
        self.device = device
        self.process_group = process_group
        self.count = torch.tensor([0], device=device).float()
        self.max_count = torch.tensor([0], device=device).float()

    def __call__(self):
        Join.notify_join_context(self)
        t = torch.ones(1, device=self.device).float()
        dist.all_reduce(t)
        self.count += t

    def join_hook(self, **kwargs) -> JoinHook:
        return CounterJoinHook(self, kwargs.get("sync_max_count", False))

    @property
    def join_device(self) -> torch.device:
        return self.device

    @property
    def join_process_group(self):
        return self.process_group

    def find_common_rank(self, rank, to_consider):
        common_rank = torch.tensor([rank if to_consider else -1], device=self.device)
        dist.all_reduce(common_rank, op=dist.ReduceOp.MAX, group=self.process_group)
        return common_rank.item()


# %%
def worker(rank):
    dist.init_process_group(BACKEND)
    torch.manual_seed(0)
    model = DDP(torch.nn.Linear(1, 1))
    optim = ZeRO(model.parameters(), torch.optim.Adam, lr=0.01)
    inputs = [torch.tensor([float(i + 1)]) for i in range(NUM_INPUTS + rank)]
    num_inputs = 0
    with Join([model, optim]):
        for input in inputs:
            num_inputs += 1
            loss = model(input).sum()
            loss.backward()
            optim.step()
    counter = Counter(torch.device("cpu"), dist.group.WORLD)
    with Join([counter], sync_max_count=True):
        for _ in inputs:
            counter()
    return {
        "rank": rank,
        "inputs": num_inputs,
        "counted": [counter.count.item(), counter.max_count.item()],
        "weights": [p.tolist() for p in model.parameters()],
    }


# %%
worker(int(os.environ["RANK"]))
