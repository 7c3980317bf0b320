"""Horovod's elastic example: a decorated function, a model and an optimizer before it.

source: https://github.com/horovod/horovod/blob/master/examples/elastic/pytorch/pytorch_mnist_elastic.py
group: horovod-torch
notebook: --backend horovod -np 2 --min-np 2
plain: horovodrun --gloo --network-interfaces lo -np 2 --min-np 2 --host-discovery-script SLOTS python SCRIPT
compared: losses and weights, exactly
changed: nothing
"""

# %%
import argparse

import horovod.torch as hvd
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
import torch.utils.data.distributed

parser = argparse.ArgumentParser(description="digits, elastic")
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--momentum", type=float, default=0.5)
parser.add_argument("--seed", type=int, default=42)
parser.add_argument("--use-adasum", action="store_true", default=False)
args = parser.parse_args([])
torch.manual_seed(args.seed)


# %%
def digits(count, seed):
    draw = torch.Generator().manual_seed(seed)
    images = torch.rand(count, 1, 8, 8, generator=draw)
    return torch.utils.data.TensorDataset(images, (images.sum((1, 2, 3)) * 10).long() % 10)


train_dataset, test_dataset = digits(192, 0), digits(64, 1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, kernel_size=3)
        self.fc1 = nn.Linear(36, 16)
        self.fc2 = nn.Linear(16, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(self.fc1(x.view(-1, 36)))
        return F.log_softmax(self.fc2(x), dim=1)


model = Net()


# %%
@hvd.elastic.run
def train(state):
    for state.epoch in range(state.epoch, args.epochs + 1):
        state.model.train()
        train_sampler.set_epoch(state.epoch)
        steps_remaining = len(train_loader) - state.batch
        for state.batch, (data, target) in enumerate(train_loader):
            if state.batch >= steps_remaining:
                break
            state.optimizer.zero_grad()
            loss = F.nll_loss(state.model(data), target)
            loss.backward()
            state.optimizer.step()
            losses.append(loss.item())
            state.commit()
        state.batch = 0


def metric_average(val, name):
    return hvd.allreduce(torch.tensor(val), name=name).item()


def test():
    model.eval()
    test_loss = 0.0
    for data, target in test_loader:
        test_loss += F.nll_loss(model(data), target, reduction="sum").item()
    return metric_average(test_loss / len(test_sampler), "avg_loss")


def on_state_reset():
    for param_group in optimizer.param_groups:
        param_group["lr"] = args.lr * hvd.size()


# %%
hvd.init()
torch.set_num_threads(1)
losses = []
train_sampler = torch.utils.data.distributed.DistributedSampler(
    train_dataset, num_replicas=hvd.size(), rank=hvd.rank()
)
train_loader = torch.utils.data.DataLoader(train_dataset, batch_size=args.batch_size, sampler=train_sampler)
test_sampler = torch.utils.data.distributed.DistributedSampler(
    test_dataset, num_replicas=hvd.size(), rank=hvd.rank()
)
test_loader = torch.utils.data.DataLoader(test_dataset, batch_size=32, sampler=test_sampler)
optimizer = optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=args.momentum)
optimizer = hvd.DistributedOptimizer(
    optimizer,
    named_parameters=model.named_parameters(),
    compression=hvd.Compression.none,
    op=hvd.Adasum if args.use_adasum else hvd.Average,
)
state = hvd.elastic.TorchState(model, optimizer, epoch=1, batch=0)
state.register_reset_callbacks([on_state_reset])
train(state)
{
    "rank": hvd.rank(),
    "losses": losses,
    "test": test(),
    "weights": [p.flatten().tolist() for p in model.parameters()],
}
