"""Lightning's boring model under DDP: loaders and module at the top level, a callback of one's own.

source: https://github.com/Lightning-AI/pytorch-lightning/blob/master/examples/pytorch/bug_report/bug_report_model.py
group: trainers
notebook: --backend torchrun -np 2
plain: torchrun --standalone --nproc-per-node 2 SCRIPT
compared: losses, test results and weights, exactly
changed: nothing
"""

# %%
import os

import lightning as L
import torch
from lightning import Trainer
from torch.utils.data import DataLoader, Dataset


# %%
class RandomDataset(Dataset):
    def __init__(self, size, length, seed):
        self.len = length
        self.data = torch.randn(length, size, generator=torch.Generator().manual_seed(seed))

    def __getitem__(self, index):
        return self.data[index]

    def __len__(self):
        return self.len


class BoringModel(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(32, 2)

    def forward(self, x):
        return self.layer(x)

    def training_step(self, batch, batch_idx):
        loss = self(batch).sum()
        self.log("train_loss", loss)
        return {"loss": loss}

    def validation_step(self, batch, batch_idx):
        self.log("valid_loss", self(batch).sum())

    def test_step(self, batch, batch_idx):
        self.log("test_loss", self(batch).sum(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.layer.parameters(), lr=0.1)


class Losses(L.Callback):
    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.seen.append(outputs["loss"].item())


train_data = DataLoader(RandomDataset(32, 16, 0), batch_size=2)
val_data = DataLoader(RandomDataset(32, 8, 1), batch_size=2)
test_data = DataLoader(RandomDataset(32, 8, 2), batch_size=2)
L.seed_everything(11)
model = BoringModel()


# %%
def run():
    losses = Losses()
    trainer = Trainer(
        default_root_dir=os.getcwd(),
        accelerator="cpu",
        strategy="ddp",
        devices=2,
        limit_val_batches=1,
        num_sanity_val_steps=0,
        max_epochs=2,
        logger=False,
        callbacks=[losses],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, train_dataloaders=train_data, val_dataloaders=val_data)
    tested = trainer.test(model, dataloaders=test_data, verbose=False)
    weights = [p.flatten().tolist() for p in model.parameters()]
    return {"rank": trainer.global_rank, "losses": losses.seen, "tested": tested, "weights": weights}


# %%
run()
