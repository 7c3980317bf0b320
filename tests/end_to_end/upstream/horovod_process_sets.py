"""Horovod's process sets: some ranks reduce among themselves, and train a model of their own.

source: https://horovod.readthedocs.io/en/stable/process_set_include.html
group: horovod-torch
notebook: --backend horovod -np 3
plain: horovodrun --gloo -np 3 python SCRIPT
compared: sums and weights of each set, exactly
changed: nothing
"""

# %%
import horovod.torch as hvd
import torch

even_set = hvd.ProcessSet([0, 2])
odd_set = hvd.ProcessSet([1])


# %%
class Regression(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x)


def fit(model, process_set, steps=5):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), process_set=process_set
    )
    draw = torch.Generator().manual_seed(hvd.rank())
    for _ in range(steps):
        x = torch.rand(8, 4, generator=draw)
        optimizer.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
    return [p.flatten().tolist() for p in model.parameters()]


# %%
hvd.init(process_sets=[even_set, odd_set])
hvd.barrier()
mine = even_set if hvd.rank() % 2 == 0 else odd_set
torch.manual_seed(0)
summed = hvd.allreduce(torch.arange(3.0) + hvd.rank(), op=hvd.Sum, process_set=mine)
gathered = hvd.allgather(torch.tensor([[float(hvd.rank())]]), process_set=mine)
weights = fit(Regression(), mine)
included, size = [even_set.included(), odd_set.included()], mine.size()
hvd.barrier()  # with the first rank that ends, the sets end for all
{
    "rank": hvd.rank(),
    "included": included,
    "size": size,
    "summed": summed.tolist(),
    "gathered": gathered.tolist(),
    "weights": weights,
}
