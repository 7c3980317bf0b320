"""PyTorch's ImageNet example: the header of every training script, meters, a scheduler, a best model.

source: https://github.com/pytorch/examples/blob/main/imagenet/main.py
group: torch
notebook: -np 2
plain: torchrun --standalone --nproc-per-node 2 SCRIPT
compared: losses, accuracies and weights, exactly
changed: nothing
"""

# %%
import argparse
import os
import random
import shutil
import time
import warnings
from enum import Enum

import torch
import torch.backends.cudnn as cudnn
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.parallel
import torch.optim
import torch.utils.data
import torch.utils.data.distributed
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import Subset

parser = argparse.ArgumentParser(description="ImageNet training")
parser.add_argument("-j", "--workers", default=0, type=int)
parser.add_argument("--epochs", default=2, type=int)
parser.add_argument("-b", "--batch-size", default=32, type=int)
parser.add_argument("--lr", default=0.05, type=float)
parser.add_argument("--momentum", default=0.9, type=float)
parser.add_argument("--wd", default=1e-4, type=float, dest="weight_decay")
parser.add_argument("-p", "--print-freq", default=2, type=int)
parser.add_argument("--seed", default=7, type=int)
best_acc1 = 0


# %%
class Summary(Enum):
    NONE = 0
    AVERAGE = 1
    SUM = 2
    COUNT = 3


class AverageMeter(object):
    def __init__(self, name, fmt=":f", summary_type=Summary.AVERAGE):
        self.name = name
        self.fmt = fmt
        self.summary_type = summary_type
        self.reset()

    def reset(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def all_reduce(self):
        total = torch.tensor([self.sum, self.count], dtype=torch.float32)
        dist.all_reduce(total, dist.ReduceOp.SUM, async_op=False)
        self.sum, self.count = total.tolist()
        self.avg = self.sum / self.count

    def __str__(self):
        return ("{name} {val" + self.fmt + "} ({avg" + self.fmt + "})").format(**self.__dict__)

    def summary(self):
        if self.summary_type is Summary.NONE:
            return ""
        if self.summary_type is Summary.AVERAGE:
            return "{name} {avg:.3f}".format(**self.__dict__)
        raise ValueError("invalid summary type %r" % self.summary_type)


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        _, pred = output.topk(max(topk), 1, True, True)
        correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
        return [correct[:k].reshape(-1).float().sum(0) * (100.0 / target.size(0)) for k in topk]


def save_checkpoint(state, is_best, filename="checkpoint.pth.tar"):
    torch.save(state, filename)
    if is_best:
        shutil.copyfile(filename, "model_best.pth.tar")


# %%
def dataset(count, seed):
    draw = torch.Generator().manual_seed(seed)
    images = torch.rand(count, 3, 8, 8, generator=draw)
    return torch.utils.data.TensorDataset(images, (images.mean((1, 2, 3)) * 1000).long() % 10)


def run(loader, model, criterion, optimizer, epoch, args):
    batch_time = AverageMeter("Time", ":6.3f", Summary.NONE)
    losses = AverageMeter("Loss", ":.4e")
    top1 = AverageMeter("Acc@1", ":6.2f")
    model.train(optimizer is not None)
    end = time.time()
    for i, (images, target) in enumerate(loader):
        with torch.set_grad_enabled(optimizer is not None):
            output = model(images)
            loss = criterion(output, target)
        acc1, _ = accuracy(output, target, topk=(1, 5))
        losses.update(loss.item(), images.size(0))
        top1.update(acc1.item(), images.size(0))
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        batch_time.update(time.time() - end)
        end = time.time()
        if i % args.print_freq == 0:
            print(f"Epoch: [{epoch}][{i}/{len(loader)}]", losses, top1)
    losses.all_reduce()
    top1.all_reduce()
    print(" *", losses.summary(), top1.summary(), batch_time.summary())
    return losses.avg, top1.avg


# %%
def main_worker(args):
    global best_acc1
    dist.init_process_group(backend="gloo", init_method="env://")
    args.rank = dist.get_rank()
    args.batch_size = int(args.batch_size / dist.get_world_size())
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.1), nn.Flatten(), nn.Linear(216, 10)
    )
    model = torch.nn.parallel.DistributedDataParallel(model)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(
        model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.weight_decay
    )
    scheduler = StepLR(optimizer, step_size=1, gamma=0.1)
    train_dataset, val_dataset = dataset(160, 0), Subset(dataset(64, 1), range(48))
    train_sampler = torch.utils.data.distributed.DistributedSampler(train_dataset)
    val_sampler = torch.utils.data.distributed.DistributedSampler(val_dataset, shuffle=False, drop_last=True)
    train_loader = torch.utils.data.DataLoader(
        train_dataset,
        batch_size=args.batch_size,
        shuffle=(train_sampler is None),
        num_workers=args.workers,
        sampler=train_sampler,
    )
    val_loader = torch.utils.data.DataLoader(val_dataset, batch_size=args.batch_size, sampler=val_sampler)
    history = []
    for epoch in range(args.epochs):
        train_sampler.set_epoch(epoch)
        history.append(run(train_loader, model, criterion, optimizer, epoch, args))
        loss, acc1 = run(val_loader, model, criterion, None, epoch, args)
        history.append((loss, acc1))
        scheduler.step()
        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)
        if args.rank == 0:
            save_checkpoint({"epoch": epoch + 1, "state_dict": model.state_dict()}, is_best)
    weights = [p.flatten().tolist() for p in model.parameters()]
    return {"rank": args.rank, "history": history, "best": best_acc1, "weights": weights}


# %%
def main():
    args = parser.parse_args([])
    if args.seed is not None:
        random.seed(args.seed)
        torch.manual_seed(args.seed)
        cudnn.deterministic = True
        cudnn.benchmark = False
        with warnings.catch_warnings(record=True):
            warnings.warn("You have chosen to seed training.", stacklevel=1)
    if "WORLD_SIZE" not in os.environ:
        mp.spawn(main_worker, nprocs=2, args=(args,))
    return main_worker(args)


# %%
main()
