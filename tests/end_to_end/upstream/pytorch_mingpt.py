"""minGPT under DDP: configurations as dataclasses, a model and an optimizer made before the trainer.

source: https://github.com/pytorch/examples/blob/main/distributed/minGPT-ddp/mingpt/main.py
group: torch
notebook: --backend torchrun -np 2
plain: torchrun --standalone --nproc-per-node 2 SCRIPT
compared: losses and weights, exactly
changed: nothing
"""

# %%
import math
import os
from dataclasses import asdict, dataclass
from typing import Any, Dict, Optional

import torch
import torch.nn as nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, random_split
from torch.utils.data.distributed import DistributedSampler


# %%
@dataclass
class GPTConfig:
    n_layer: int = 2
    n_head: int = 2
    n_embd: int = 16
    vocab_size: Optional[int] = None
    block_size: Optional[int] = None


@dataclass
class TrainerConfig:
    max_epochs: int = 2
    batch_size: int = 16
    grad_norm_clip: float = 1.0
    snapshot_path: Optional[str] = "gpt_snapshot.pt"


@dataclass
class Snapshot:
    model_state: Dict[str, torch.Tensor]
    optimizer_state: Dict[str, Any]
    finished_epoch: int


# %%
class CharDataset(Dataset):
    def __init__(self, text, block_size):
        chars = sorted(set(text))
        self.stoi = {ch: i for i, ch in enumerate(chars)}
        self.block_size = block_size
        self.vocab_size = len(chars)
        self.data = text

    def __len__(self):
        return len(self.data) - self.block_size

    def __getitem__(self, idx):
        dix = torch.tensor([self.stoi[s] for s in self.data[idx : idx + self.block_size + 1]])
        return dix[:-1], dix[1:]


class SelfAttention(nn.Module):
    def __init__(self, config: GPTConfig):
        super().__init__()
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.out = nn.Linear(config.n_embd, config.n_embd)
        self.n_head = config.n_head
        mask = torch.tril(torch.ones(config.block_size, config.block_size))
        self.register_buffer("mask", mask.view(1, 1, config.block_size, config.block_size))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.n_head, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, dim=-1))
        weight = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        weight = weight.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf")).softmax(-1)
        return self.out((weight @ v).transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, config: GPTConfig):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.attn = SelfAttention(config)
        self.mlp = nn.Sequential(
            nn.Linear(config.n_embd, 2 * config.n_embd),
            nn.GELU(),
            nn.Linear(2 * config.n_embd, config.n_embd),
        )

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, config: GPTConfig):
        super().__init__()
        self.tok_emb = nn.Embedding(config.vocab_size, config.n_embd)
        self.pos_emb = nn.Parameter(torch.zeros(1, config.block_size, config.n_embd))
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=False)

    def forward(self, idx, targets=None):
        x = self.tok_emb(idx) + self.pos_emb[:, : idx.size(1)]
        for block in self.blocks:
            x = block(x)
        logits = self.head(x)
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
        return logits, loss


# %%
class Trainer:
    def __init__(self, config: TrainerConfig, model, optimizer, train_dataset, test_dataset):
        self.config = config
        self.rank = int(os.environ["RANK"])
        self.train_loader = self._loader(train_dataset)
        self.test_loader = self._loader(test_dataset)
        self.model = model
        self.optimizer = optimizer
        self.losses = []

    def _loader(self, dataset):
        return DataLoader(
            dataset, batch_size=self.config.batch_size, shuffle=False, sampler=DistributedSampler(dataset)
        )

    def _run_batch(self, source, targets, train):
        with torch.set_grad_enabled(train):
            _, loss = self.model(source, targets)
        if train:
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_norm_clip)
            self.optimizer.step()
        return loss.item()

    def _save_snapshot(self, epoch):
        snapshot = Snapshot(self.model.module.state_dict(), self.optimizer.state_dict(), epoch)
        torch.save(asdict(snapshot), self.config.snapshot_path)

    def train(self):
        self.model = DDP(self.model)
        for epoch in range(self.config.max_epochs):
            for loader, train in ((self.train_loader, True), (self.test_loader, False)):
                loader.sampler.set_epoch(epoch)
                self.losses += [self._run_batch(source, targets, train) for source, targets in loader]
            if self.rank == 0:
                self._save_snapshot(epoch)


# %%
text = "the quick brown fox jumps over the lazy dog. " * 6
dataset = CharDataset(text, block_size=12)
torch.manual_seed(1)
train_len = int(len(dataset) * 0.9)
train_set, test_set = random_split(dataset, [train_len, len(dataset) - train_len])
gpt_cfg = GPTConfig(vocab_size=dataset.vocab_size, block_size=dataset.block_size)
model = GPT(gpt_cfg)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)

# %%
init_process_group(backend="gloo")
trainer = Trainer(TrainerConfig(), model, optimizer, train_set, test_set)
trainer.train()
found = {
    "rank": trainer.rank,
    "losses": trainer.losses,
    "weights": [p.flatten().tolist() for p in model.parameters()],
}
del trainer
destroy_process_group()
found
