"""PyTorch's DistributedDataParallel as a script of SageMaker's: one process for each host.

source: https://github.com/aws/amazon-sagemaker-examples/blob/default/%20archived/training_pipeline_pytorch_mnist/code/mnist.py
flags: --distribution torchrun --instance-count 2 -np 2
"""

import argparse
import json
import logging
import os
import sys

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
import torch.utils.data.distributed
from torch import nn, optim

logger = logging.getLogger("train")
logger.setLevel(logging.DEBUG)
logger.addHandler(logging.StreamHandler(sys.stdout))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(x), dim=1)


def _load(data_dir, name):
    arrays = np.load(os.path.join(data_dir, "digits.npz"))
    return torch.utils.data.TensorDataset(
        torch.tensor(arrays[f"{name}_images"]), torch.tensor(arrays[f"{name}_labels"])
    )


def train(args):
    world_size = len(args.hosts)
    os.environ["WORLD_SIZE"] = str(world_size)
    host_rank = args.hosts.index(args.current_host)
    os.environ["RANK"] = str(host_rank)
    dist.init_process_group(backend=args.backend, rank=host_rank, world_size=world_size)
    logger.info("Host %s is %d of %d", args.current_host, dist.get_rank(), dist.get_world_size())
    torch.manual_seed(args.seed)

    data = _load(args.data_dir, "train")
    sampler = torch.utils.data.distributed.DistributedSampler(data)
    loader = torch.utils.data.DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    model = nn.parallel.DistributedDataParallel(Net())
    optimizer = optim.AdamW(model.parameters(), lr=args.lr)
    logger.info("Train in batches of %d", args.batch_size)
    for epoch in range(1, args.epochs + 1):
        model.train()
        sampler.set_epoch(epoch)
        for images, target in loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(images), target)
            loss.backward()
            optimizer.step()
        logger.info("Train Epoch: %d Loss: %.6f", epoch, loss.item())
    accuracy = test(model, args)
    save_model(model, args.model_dir)
    return accuracy


def test(model, args):
    model.eval()
    images, target = _load(args.data_dir, "test").tensors
    with torch.no_grad():
        right = (model(images).argmax(1) == target).float().mean().item()
    logger.info("Test set: Accuracy: %.2f%%", 100 * right)
    return right


def save_model(model, model_dir):
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), os.path.join(model_dir, "model.pth"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", type=str, default="gloo")
    parser.add_argument("--hosts", type=list, default=json.loads(os.environ["SM_HOSTS"]))
    parser.add_argument("--current-host", type=str, default=os.environ["SM_CURRENT_HOST"])
    parser.add_argument("--model-dir", type=str, default=os.environ["SM_MODEL_DIR"])
    parser.add_argument("--data-dir", type=str, default=os.environ["SM_CHANNEL_TRAINING"])
    parser.add_argument("--num-gpus", type=int, default=os.environ["SM_NUM_GPUS"])
    accuracy = train(parser.parse_args())

accuracy
