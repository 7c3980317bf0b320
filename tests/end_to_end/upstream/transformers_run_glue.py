"""Transformers' GLUE example: arguments, model and `Trainer` in earlier cells, `train()` and `evaluate()` here.

source: https://github.com/huggingface/transformers/blob/main/examples/pytorch/text-classification/run_glue.py
group: trainers
notebook: -np 2
plain: torchrun --standalone --nproc-per-node 2 SCRIPT
compared: steps, the loss of training, evaluation and weights, to 1e-6
changed: nothing
"""

# %%
import logging
from dataclasses import dataclass, field
from typing import Optional

import numpy as np
import torch
import transformers
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    EvalPrediction,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

logger = logging.getLogger(__name__)


# %%
@dataclass
class DataTrainingArguments:
    task_name: Optional[str] = field(default="mrpc", metadata={"help": "The name of the task."})
    max_seq_length: int = field(default=8)


data_args = DataTrainingArguments()
training_args = TrainingArguments(
    output_dir="glue",
    per_device_train_batch_size=4,
    per_device_eval_batch_size=4,
    num_train_epochs=2,
    learning_rate=1e-3,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
)
transformers.utils.logging.set_verbosity_error()
set_seed(training_args.seed)


# %%
class Rows(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        draw = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(1, 40, (count, data_args.max_seq_length), generator=draw)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": int(self.ids[index].sum()) % 2}


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
    finetuning_task=data_args.task_name,
)
model = AutoModelForSequenceClassification.from_config(config)


def compute_metrics(p: EvalPrediction):
    preds = np.argmax(p.predictions, axis=1)
    return {"accuracy": float((preds == p.label_ids).mean()), "combined_score": float(preds.mean())}


trainer = Trainer(
    model=model,
    args=training_args,
    train_dataset=Rows(64, 0),
    eval_dataset=Rows(24, 1),
    compute_metrics=compute_metrics,
    data_collator=default_data_collator,
)

# %%
train_result = trainer.train()
metrics = trainer.evaluate()
logger.warning(f"Training arguments {trainer.args.world_size}")
{
    "rank": trainer.args.process_index,
    "size": trainer.args.world_size,
    "steps": trainer.state.global_step,
    "loss": train_result.training_loss,
    "evaluated": [metrics["eval_loss"], metrics["eval_accuracy"], metrics["eval_combined_score"]],
    "weights": [p.sum().item() for p in trainer.model.parameters()],
}
