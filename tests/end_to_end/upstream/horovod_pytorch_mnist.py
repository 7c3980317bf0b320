"""Horovod's first example: everything in a function that each rank calls.

source: https://github.com/horovod/horovod/blob/master/examples/pytorch/pytorch_mnist.py
group: horovod-torch
notebook: --backend horovod -np 2
plain: horovodrun --gloo -np 2 python SCRIPT
compared: losses and weights, exactly
changed: nothing
"""

# %%
import argparse

import horovod.torch as hvd
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
import torch.utils.data.distributed

# %%
parser = argparse.ArgumentParser(description="digits")
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--momentum", type=float, default=0.5)
parser.add_argument("--seed", type=int, default=42)
parser.add_argument("--fp16-allreduce", action="store_true")
args = parser.parse_args([])
args.cuda = torch.cuda.is_available()


# %%
class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 4, kernel_size=3)
        self.drop = nn.Dropout2d()
        self.fc1 = nn.Linear(36, 16)
        self.fc2 = nn.Linear(16, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.drop(self.conv1(x)), 2))
        x = F.dropout(F.relu(self.fc1(x.view(-1, 36))), training=self.training)
        return F.log_softmax(self.fc2(x), dim=1)


def digits(count, seed):
    draw = torch.Generator().manual_seed(seed)
    images = torch.rand(count, 1, 8, 8, generator=draw)
    return torch.utils.data.TensorDataset(images, (images.sum((1, 2, 3)) * 10).long() % 10)


# %%
def main(args):
    def train_epoch(epoch):
        model.train()
        train_sampler.set_epoch(epoch)
        for data, target in train_loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            loss.backward()
            optimizer.step()
        return metric_average(loss.item(), "loss")

    def metric_average(val, name):
        return hvd.allreduce(torch.tensor(val), name=name).item()

    def test():
        model.eval()
        with torch.no_grad():
            losses = [F.nll_loss(model(data), target).item() for data, target in test_loader]
        return metric_average(sum(losses) / len(losses), "test_loss")

    hvd.init()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    kwargs = {"num_workers": 1, "multiprocessing_context": mp.get_context("fork")} if args.cuda else {}
    train_dataset, test_dataset = digits(256, 0), digits(64, 1)
    train_sampler = torch.utils.data.distributed.DistributedSampler(
        train_dataset, num_replicas=hvd.size(), rank=hvd.rank()
    )
    train_loader = torch.utils.data.DataLoader(
        train_dataset, batch_size=args.batch_size, sampler=train_sampler, **kwargs
    )
    test_sampler = torch.utils.data.distributed.DistributedSampler(
        test_dataset, num_replicas=hvd.size(), rank=hvd.rank()
    )
    test_loader = torch.utils.data.DataLoader(test_dataset, batch_size=32, sampler=test_sampler, **kwargs)
    model = Net()
    optimizer = optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=args.momentum)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), compression=compression, op=hvd.Average
    )
    losses = [(train_epoch(epoch), test()) for epoch in range(args.epochs)]
    return {
        "rank": hvd.rank(),
        "losses": losses,
        "weights": [p.flatten().tolist() for p in model.parameters()],
    }


# %%
main(args)
