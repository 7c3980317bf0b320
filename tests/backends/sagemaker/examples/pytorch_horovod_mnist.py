"""Horovod as a script of SageMaker's: mpirun starts a process for each place.

source: https://github.com/aws/amazon-sagemaker-examples/blob/default/%20archived/pytorch_horovod_mnist/code/mnist.py
flags: --distribution horovod --instance-count 2 -np 2
"""

import argparse
import json
import logging
import os
import sys

import horovod.torch as hvd
import numpy as np
import torch
import torch.nn.functional as F
import torch.utils.data.distributed
from torch import nn, optim

logger = logging.getLogger("train")
logger.setLevel(logging.DEBUG)
logger.addHandler(logging.StreamHandler(sys.stdout))


def _load(data_dir, name):
    arrays = np.load(os.path.join(data_dir, "digits.npz"))
    return torch.utils.data.TensorDataset(
        torch.tensor(arrays[f"{name}_images"]), torch.tensor(arrays[f"{name}_labels"])
    )


def train(args):
    hvd.init()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    data = _load(args.data_dir, "train")
    sampler = torch.utils.data.distributed.DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
    loader = torch.utils.data.DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    logger.debug("Processes %d/%d of train data", len(sampler), len(data))

    model = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10)),
    )
    optimizer = optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=args.momentum)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    logger.info("Train in batches of %d", args.batch_size)
    for epoch in range(1, args.epochs + 1):
        model.train()
        sampler.set_epoch(epoch)
        for images, target in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), target)
            loss.backward()
            optimizer.step()
        logger.info("Train Epoch: %d Loss: %.6f", epoch, loss.item())
    accuracy = test(model, args)
    if hvd.rank() == 0:
        torch.save(model.state_dict(), os.path.join(args.model_dir, "model.pth"))
    return accuracy


def _metric_average(value, name):
    return hvd.allreduce(torch.tensor(value), name=name).item()


def test(model, args):
    model.eval()
    data = _load(args.data_dir, "test")
    sampler = torch.utils.data.distributed.DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
    right = 0
    with torch.no_grad():
        for images, target in torch.utils.data.DataLoader(data, batch_size=100, sampler=sampler):
            right += model(images).argmax(1).eq(target).sum().item()
    accuracy = _metric_average(right / len(sampler), "avg_accuracy")
    logger.info("Test set: Accuracy: %.2f%%", 100 * accuracy)
    return accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--hosts", type=list, default=json.loads(os.environ["SM_HOSTS"]))
    parser.add_argument("--model-dir", type=str, default=os.environ["SM_MODEL_DIR"])
    parser.add_argument("--data-dir", type=str, default=os.environ["SM_CHANNEL_TRAINING"])
    parser.add_argument("--num-gpus", type=int, default=os.environ["SM_NUM_GPUS"])
    accuracy = train(parser.parse_args())

accuracy
