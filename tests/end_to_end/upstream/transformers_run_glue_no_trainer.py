"""Transformers' GLUE example without the trainer: the accelerator, model and loaders at the top level.

source: https://github.com/huggingface/transformers/blob/main/examples/pytorch/text-classification/run_glue_no_trainer.py
group: trainers
notebook: -np 2
plain: torchrun --standalone --nproc-per-node 2 SCRIPT
compared: losses, accuracy and weights, exactly
changed: nothing
"""

# %%
import logging
import math

import torch
import transformers
from accelerate import Accelerator
from accelerate.logging import get_logger
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    SchedulerType,
    default_data_collator,
    get_scheduler,
)

logger = get_logger(__name__)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
logging.basicConfig(format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", level=logging.INFO)
transformers.utils.logging.set_verbosity_error()

# %%
set_seed(5)
config = BertConfig(
    vocab_size=40,
    hidden_size=16,
    intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    max_position_embeddings=8,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    num_labels=2,
)
model = AutoModelForSequenceClassification.from_config(config)


def rows(count, seed):
    ids = torch.randint(1, 40, (count, 8), generator=torch.Generator().manual_seed(seed))
    return [{"input_ids": row, "labels": int(row.sum()) % 2} for row in ids]


train_dataloader = DataLoader(rows(64, 0), collate_fn=default_data_collator, batch_size=4)
eval_dataloader = DataLoader(rows(24, 1), collate_fn=default_data_collator, batch_size=4)
no_decay = ["bias", "LayerNorm.weight"]
optimizer_grouped_parameters = [
    {
        "params": [p for n, p in model.named_parameters() if not any(nd in n for nd in no_decay)],
        "weight_decay": 0.01,
    },
    {
        "params": [p for n, p in model.named_parameters() if any(nd in n for nd in no_decay)],
        "weight_decay": 0.0,
    },
]
optimizer = torch.optim.AdamW(optimizer_grouped_parameters, lr=2e-3)
num_train_epochs = 2

# %%
lr_scheduler = get_scheduler(
    name=SchedulerType.LINEAR, optimizer=optimizer, num_warmup_steps=0, num_training_steps=32
)
model, optimizer, train_dataloader, eval_dataloader, lr_scheduler = accelerator.prepare(
    model, optimizer, train_dataloader, eval_dataloader, lr_scheduler
)
steps = math.ceil(len(train_dataloader) / accelerator.gradient_accumulation_steps)
logger.info(f"  Num optimization steps = {steps * num_train_epochs}")
losses, right = [], []
for epoch in range(num_train_epochs):
    model.train()
    for batch in train_dataloader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            lr_scheduler.step()
            optimizer.zero_grad()
        losses.append(loss.detach().item())
    model.eval()
    for batch in eval_dataloader:
        with torch.no_grad():
            predictions = model(**batch).logits.argmax(dim=-1)
        predictions, references = accelerator.gather((predictions, batch["labels"]))
        right.append(int((predictions == references).sum()))
{
    "rank": accelerator.process_index,
    "size": accelerator.num_processes,
    "losses": losses,
    "right": right,
    "weights": [p.sum().item() for p in model.parameters()],
}
