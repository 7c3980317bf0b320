"""Horovod's ImageNet example: everything at the top level, a schedule by epochs, gradients accumulated, fp16.

source: https://github.com/horovod/horovod/blob/master/examples/pytorch/pytorch_imagenet_resnet50.py
group: horovod-torch
notebook: --backend horovod -np 2 --fusion-threshold-mb 8
plain: horovodrun --gloo -np 2 --fusion-threshold-mb 8 python SCRIPT
compared: losses, accuracies and weights, exactly
changed: nothing
"""

# %%
import argparse
import math
import os

import horovod.torch as hvd
import torch
import torch.backends.cudnn as cudnn
import torch.multiprocessing as mp
import torch.nn.functional as F
import torch.optim as optim
import torch.utils.data.distributed
from tqdm import tqdm

parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--batches-per-allreduce", type=int, default=2)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--base-lr", type=float, default=0.0125)
parser.add_argument("--warmup-epochs", type=float, default=1)
parser.add_argument("--wd", type=float, default=0.00005)
parser.add_argument("--checkpoint-format", default="./checkpoint-{epoch}.pth.tar")
args = parser.parse_args(args=[])
allreduce_batch_size = args.batch_size * args.batches_per_allreduce
cudnn.benchmark = True


# %%
class Block(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(channels)

    def forward(self, x):
        return F.relu(x + self.norm(self.conv(x)))


class Metric(object):
    def __init__(self, name):
        self.name = name
        self.sum = torch.tensor(0.0)
        self.n = torch.tensor(0.0)

    def update(self, val):
        self.sum += hvd.allreduce(val.detach().cpu(), name=self.name)
        self.n += 1

    @property
    def avg(self):
        return self.sum / self.n


def accuracy(output, target):
    pred = output.max(1, keepdim=True)[1]
    return pred.eq(target.view_as(pred)).cpu().float().mean()


def adjust_learning_rate(epoch, batch_idx):
    if epoch < args.warmup_epochs:
        epoch += float(batch_idx + 1) / len(train_loader)
        lr_adj = 1.0 / hvd.size() * (epoch * (hvd.size() - 1) / args.warmup_epochs + 1)
    else:
        lr_adj = 1.0 if epoch < 2 else 1e-1
    for param_group in optimizer.param_groups:
        param_group["lr"] = args.base_lr * hvd.size() * args.batches_per_allreduce * lr_adj


def save_checkpoint(epoch):
    if hvd.rank() == 0:
        filepath = args.checkpoint_format.format(epoch=epoch + 1)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, filepath)


# %%
draw = torch.Generator().manual_seed(3)
images = torch.rand(128, 3, 8, 8, generator=draw)
train_dataset = torch.utils.data.TensorDataset(images, (images.mean((1, 2, 3)) * 1000).long() % 10)
kwargs = {"num_workers": 1} if torch.cuda.is_available() else {}
if kwargs.get("num_workers", 0) > 0 and "forkserver" in mp.get_all_start_methods():
    kwargs["multiprocessing_context"] = "forkserver"
torch.manual_seed(42)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 4, 3), Block(4), Block(4), torch.nn.Flatten(), torch.nn.Linear(144, 10)
)


# %%
def train(epoch):
    model.train()
    train_sampler.set_epoch(epoch)
    train_loss = Metric("train_loss")
    train_accuracy = Metric("train_accuracy")
    with tqdm(total=len(train_loader), desc=f"Train Epoch #{epoch + 1}", disable=hvd.rank() != 0) as t:
        for batch_idx, (data, target) in enumerate(train_loader):
            adjust_learning_rate(epoch, batch_idx)
            optimizer.zero_grad()
            for i in range(0, len(data), args.batch_size):
                data_batch = data[i : i + args.batch_size]
                target_batch = target[i : i + args.batch_size]
                output = model(data_batch)
                train_accuracy.update(accuracy(output, target_batch))
                loss = F.cross_entropy(output, target_batch)
                train_loss.update(loss)
                loss.div_(math.ceil(float(len(data)) / args.batch_size))
                loss.backward()
            optimizer.step()
            t.set_postfix({"loss": train_loss.avg.item()})
            t.update(1)
    return train_loss.avg.item(), train_accuracy.avg.item()


# %%
hvd.init()
torch.set_num_threads(1)
resume_from_epoch = 0
for try_epoch in range(args.epochs, 0, -1):
    if os.path.exists(args.checkpoint_format.format(epoch=try_epoch)):
        resume_from_epoch = try_epoch
        break
resume_from_epoch = hvd.broadcast(torch.tensor(resume_from_epoch), root_rank=0, name="resume").item()
verbose = 1 if hvd.rank() == 0 else 0
train_sampler = torch.utils.data.distributed.DistributedSampler(
    train_dataset, num_replicas=hvd.size(), rank=hvd.rank()
)
train_loader = torch.utils.data.DataLoader(
    train_dataset, batch_size=allreduce_batch_size, sampler=train_sampler, **kwargs
)
optimizer = optim.SGD(
    model.parameters(),
    lr=args.base_lr * args.batches_per_allreduce * hvd.size(),
    momentum=0.9,
    weight_decay=args.wd,
)
optimizer = hvd.DistributedOptimizer(
    optimizer,
    named_parameters=model.named_parameters(),
    compression=hvd.Compression.fp16,
    backward_passes_per_step=args.batches_per_allreduce,
    op=hvd.Average,
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
history = []
for epoch in range(resume_from_epoch, args.epochs):
    history.append(train(epoch))
    save_checkpoint(epoch)
{
    "rank": hvd.rank(),
    "history": history,
    "weights": [p.flatten().tolist() for p in model.parameters()],
    "statistics": model[1].norm.running_mean.tolist(),
}
