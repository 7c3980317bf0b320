"""Accelerate's first example: one training function, prepared loaders, a gathered metric.

source: https://github.com/huggingface/accelerate/blob/main/examples/nlp_example.py
group: trainers
notebook: -np 2
plain: torchrun --standalone --nproc-per-node 2 SCRIPT
compared: losses, accuracy and weights, exactly
changed: nothing
"""

# %%
import argparse

import torch
from accelerate import Accelerator, DistributedType
from torch.optim import AdamW
from torch.utils.data import DataLoader
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    get_linear_schedule_with_warmup,
    set_seed,
)

MAX_GPU_BATCH_SIZE = 16
EVAL_BATCH_SIZE = 8


# %%
def sentences(count, seed):
    draw = torch.Generator().manual_seed(seed)
    ids = [
        torch.randint(1, 40, (int(torch.randint(4, 9, (), generator=draw)),), generator=draw)
        for _ in range(count)
    ]
    return [{"input_ids": one, "labels": int(one.sum()) % 2} for one in ids]


def get_dataloaders(accelerator: Accelerator, batch_size: int = 16):
    def collate_fn(examples):
        multiple = 8 if accelerator.mixed_precision != "no" else 1
        longest = max(len(one["input_ids"]) for one in examples)
        longest += -longest % multiple
        ids = torch.zeros(len(examples), longest, dtype=torch.long)
        for row, one in enumerate(examples):
            ids[row, : len(one["input_ids"])] = one["input_ids"]
        labels = torch.tensor([one["labels"] for one in examples])
        return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": labels}

    with accelerator.main_process_first():
        train, validation = sentences(64, 0), sentences(24, 1)
    train_dataloader = DataLoader(
        train, shuffle=True, collate_fn=collate_fn, batch_size=batch_size, drop_last=True
    )
    eval_dataloader = DataLoader(validation, shuffle=False, collate_fn=collate_fn, batch_size=EVAL_BATCH_SIZE)
    return train_dataloader, eval_dataloader


# %%
def training_function(config, args):
    accelerator = Accelerator(cpu=args.cpu, mixed_precision=args.mixed_precision)
    lr, num_epochs, seed, batch_size = (config[k] for k in ("lr", "num_epochs", "seed", "batch_size"))
    gradient_accumulation_steps = 1
    if batch_size > MAX_GPU_BATCH_SIZE and accelerator.distributed_type != DistributedType.XLA:
        gradient_accumulation_steps = batch_size // MAX_GPU_BATCH_SIZE
        batch_size = MAX_GPU_BATCH_SIZE
    set_seed(seed)
    train_dataloader, eval_dataloader = get_dataloaders(accelerator, batch_size)
    small = dict.fromkeys(("hidden_size", "intermediate_size"), 16)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=40, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=16, **small
        )
    )
    model = model.to(accelerator.device)
    optimizer = AdamW(params=model.parameters(), lr=lr)
    lr_scheduler = get_linear_schedule_with_warmup(
        optimizer=optimizer, num_warmup_steps=2, num_training_steps=len(train_dataloader) * num_epochs
    )
    model, optimizer, train_dataloader, eval_dataloader, lr_scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader, lr_scheduler
    )
    losses, accuracies = [], []
    for epoch in range(num_epochs):
        model.train()
        for step, batch in enumerate(train_dataloader):
            loss = model(**batch).loss / gradient_accumulation_steps
            losses.append(loss.item())
            accelerator.backward(loss)
            if step % gradient_accumulation_steps == 0:
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()
        model.eval()
        right = total = 0
        for batch in eval_dataloader:
            with torch.no_grad():
                outputs = model(**batch)
            predictions = outputs.logits.argmax(dim=-1)
            predictions, references = accelerator.gather_for_metrics((predictions, batch["labels"]))
            right, total = right + int((predictions == references).sum()), total + len(references)
        accuracies.append([right, total])
        accelerator.print(f"epoch {epoch}:", right / total)
    weights = [p.sum().item() for p in model.parameters()]
    rank, size = accelerator.process_index, accelerator.num_processes
    return {"rank": rank, "size": size, "losses": losses, "accuracies": accuracies, "weights": weights}


# %%
parser = argparse.ArgumentParser(description="Simple example of training script.")
parser.add_argument("--mixed_precision", type=str, default=None, choices=["no", "fp16", "bf16", "fp8"])
parser.add_argument("--cpu", action="store_true")
args = parser.parse_args(["--cpu"])
config = {"lr": 2e-3, "num_epochs": 2, "seed": 42, "batch_size": 8}

# %%
training_function(config, args)
