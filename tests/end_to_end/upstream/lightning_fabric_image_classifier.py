"""Lightning Fabric's image classifier: hyperparameters, metrics, `fabric.launch()`, all in one function.

source: https://github.com/Lightning-AI/pytorch-lightning/blob/master/examples/fabric/image_classifier/train_fabric.py
group: trainers
notebook: -np 2
plain: torchrun --standalone --nproc-per-node 2 SCRIPT
compared: losses, accuracy and weights, exactly
changed: nothing
"""

# %%
import argparse
from os import path

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from lightning.fabric import Fabric, seed_everything
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import Accuracy

DATASETS_PATH = path.join(".", "Datasets")


# %%
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.fc1 = nn.Linear(36, 10)

    def forward(self, x):
        x = self.dropout1(F.max_pool2d(F.relu(self.conv1(x)), 2))
        return F.log_softmax(self.fc1(torch.flatten(x, 1)), dim=1)


def digits(count, seed):
    images = torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(images, (images.sum((1, 2, 3)) * 10).long() % 10)


fabric = Fabric(accelerator="cpu", devices=2)
hparams = argparse.Namespace(batch_size=8, epochs=2, lr=0.5, gamma=0.7, seed=1, save_model=True)


# %%
def run(hparams):
    fabric.launch()
    seed_everything(hparams.seed)
    train_loader = DataLoader(digits(96, 0), batch_size=hparams.batch_size, shuffle=True)
    test_loader = DataLoader(digits(32, 1), batch_size=hparams.batch_size)
    train_loader, test_loader = fabric.setup_dataloaders(train_loader, test_loader)
    model = Net()
    optimizer = optim.Adadelta(model.parameters(), lr=hparams.lr)
    model, optimizer = fabric.setup(model, optimizer)
    scheduler = StepLR(optimizer, step_size=1, gamma=hparams.gamma)
    test_acc = Accuracy(task="multiclass", num_classes=10).to(fabric.device)
    losses, accuracies = [], []
    for _ in range(1, hparams.epochs + 1):
        model.train()
        for data, target in train_loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            fabric.backward(loss)
            optimizer.step()
            losses.append(loss.item())
        scheduler.step()
        model.eval()
        test_loss = 0
        with torch.no_grad():
            for data, target in test_loader:
                output = model(data)
                test_loss += F.nll_loss(output, target)
                test_acc(output, target)
        losses.append((fabric.all_gather(test_loss).sum() / len(test_loader.dataset)).item())
        accuracies.append(test_acc.compute().item())
        test_acc.reset()
    if hparams.save_model:
        fabric.save("mnist_cnn.pt", model.state_dict())
    return {
        "rank": fabric.global_rank,
        "losses": losses,
        "accuracies": accuracies,
        "weights": [p.flatten().tolist() for p in model.parameters()],
    }


# %%
run(hparams)
