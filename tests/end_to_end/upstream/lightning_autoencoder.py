"""Lightning's autoencoder: the module, the data module and the trainer in earlier cells.

source: https://github.com/Lightning-AI/pytorch-lightning/blob/master/examples/pytorch/basics/autoencoder.py
group: trainers
notebook: -np 2
plain: torchrun --standalone --nproc-per-node 2 SCRIPT
compared: logged losses and weights, exactly
changed: nothing
"""

# %%
import lightning as L
import torch
import torch.nn.functional as F
import torch.utils.data as data
from torch import nn

# %%
encoder = nn.Sequential(nn.Linear(8 * 8, 16), nn.ReLU(), nn.Linear(16, 3))
decoder = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 8 * 8))
for number, parameter in enumerate([*encoder.parameters(), *decoder.parameters()]):
    nn.init.constant_(parameter, 0.01 * (number + 1))


class LitAutoEncoder(L.LightningModule):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.losses = []

    def training_step(self, batch, batch_idx):
        return self._prepare_batch_and_step(batch, "train")

    def validation_step(self, batch, batch_idx):
        self._prepare_batch_and_step(batch, "val")

    def _prepare_batch_and_step(self, batch, stage_name):
        x = batch[0].view(batch[0].size(0), -1)
        loss = F.mse_loss(self.decoder(self.encoder(x)), x)
        self.log(f"{stage_name}_loss", loss, sync_dist=stage_name == "val")
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class MyDataModule(L.LightningDataModule):
    def __init__(self, batch_size: int = 8):
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        dataset = data.TensorDataset(torch.rand(96, 1, 8, 8, generator=draw))
        self.train, self.val = data.random_split(dataset, [64, 32], generator=draw)
        self.batch_size = batch_size

    def train_dataloader(self):
        return data.DataLoader(self.train, batch_size=self.batch_size)

    def val_dataloader(self):
        return data.DataLoader(self.val, batch_size=self.batch_size)


# %%
autoencoder = LitAutoEncoder(encoder, decoder)
datamodule = MyDataModule()
trainer = L.Trainer(
    accelerator="cpu",
    devices=2,
    max_epochs=2,
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)

# %%
trainer.fit(autoencoder, datamodule=datamodule)
{
    "rank": trainer.global_rank,
    "size": trainer.world_size,
    "losses": autoencoder.losses,
    "validation": trainer.callback_metrics["val_loss"].item(),
    "weights": [p.flatten().tolist() for p in autoencoder.parameters()],
}
