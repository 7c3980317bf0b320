"""Horovod's benchmark for PyTorch, by mpirun: a step on made-up data, timed.

source: https://github.com/horovod/horovod/blob/master/examples/pytorch/pytorch_synthetic_benchmark.py
group: horovod-torch
notebook: --backend mpi -np 2
plain: mpirun --allow-run-as-root --oversubscribe -np 2 python SCRIPT
compared: losses and weights, exactly
changed: nothing
"""

# %%
import argparse
import timeit

import horovod.torch as hvd
import numpy as np
import torch.backends.cudnn as cudnn
import torch.nn.functional as F
import torch.optim as optim
import torch.utils.data.distributed

parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--num-batches-per-iter", type=int, default=3)
parser.add_argument("--num-iters", type=int, default=2)
args = parser.parse_args([])
args.cuda = torch.cuda.is_available()
cudnn.benchmark = True

# %%
hidden = 32
model = torch.nn.Sequential(
    torch.nn.Linear(16, hidden), torch.nn.BatchNorm1d(hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10)
)
with torch.no_grad():
    for parameter in model.parameters():
        parameter.copy_(torch.linspace(-0.2, 0.2, parameter.numel()).view_as(parameter))
data = torch.randn(args.batch_size, 16, generator=torch.Generator().manual_seed(5))
target = torch.arange(args.batch_size) % 10
losses = []


# %%
def benchmark_step():
    optimizer.zero_grad()
    output = model(data)
    loss = F.cross_entropy(output, target)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())


def log(s, nl=True):
    if hvd.rank() != 0:
        return
    print(s, end="\n" if nl else "")


# %%
hvd.init()
torch.set_num_threads(1)
optimizer = optim.SGD(model.parameters(), lr=0.01 * hvd.size())
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=model.named_parameters(), compression=hvd.Compression.fp16
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
timeit.timeit(benchmark_step, number=2)
img_secs = []
for x in range(args.num_iters):
    time = timeit.timeit(benchmark_step, number=args.num_batches_per_iter)
    img_secs.append(args.batch_size * args.num_batches_per_iter / time)
log("Img/sec per CPU: %.1f +-%.1f" % (np.mean(img_secs), 1.96 * np.std(img_secs)))
{"rank": hvd.rank(), "losses": losses, "weights": [p.flatten().tolist() for p in model.parameters()]}
