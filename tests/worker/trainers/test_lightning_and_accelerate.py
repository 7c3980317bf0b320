"""Lightning and accelerate on the ranks of a run: one model over all, with no line for it in the cell."""

from __future__ import annotations

from typing import Any

import pytest

import jupyter_dist
from jupyter_dist.record import reader


def lightning() -> dict[str, Any]:
    import lightning as L
    import torch
    from lightning.fabric import Fabric

    import jupyter_dist as dist

    class Model(L.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            return self.layer(batch[0]).pow(2).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    torch.manual_seed(dist.rank())  # each rank begins with weights and data of its own
    data = torch.utils.data.TensorDataset(torch.randn(32, 4))

    def fitted(**arguments: Any) -> tuple[int, int, list[float]]:
        quiet = dict.fromkeys(("enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
        trainer = L.Trainer(max_epochs=1, logger=False, **quiet, **arguments)
        model = Model()
        trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=4))
        return trainer.world_size, trainer.num_training_batches, model.layer.weight.flatten().tolist()

    found: dict[str, Any] = {
        "alone": fitted(devices=1),
        "as it is": fitted(),
        "again": fitted(strategy="ddp"),
        "for the kernel": fitted(strategy="ddp_notebook", devices=2),
        "by hosts": fitted(strategy="ddp", devices=1, num_nodes=2),
    }
    fabric = Fabric()
    fabric.launch()
    found["fabric"] = (fabric.world_size, fabric.setup(torch.nn.Linear(4, 1)).weight.flatten().tolist())
    try:
        L.Trainer(devices=3, logger=False)
    except ValueError as error:
        found["refused"] = str(error)
    found["world size"] = dist.world_size()
    return found


@pytest.mark.needs("torch", "lightning")
def test_lightning_trains_one_model_over_all_ranks() -> None:
    run = jupyter_dist.run(lightning, np=2, options={"gpus_per_worker": 0})
    first, second = run.results
    for way in ("as it is", "again", "for the kernel", "by hosts"):
        assert first[way] == second[way], "equal weights"
        assert first[way][:2] == (2, 4), "each rank takes half of the batches"
    assert first["fabric"] == second["fabric"]
    assert first["fabric"][0] == 2
    assert first["alone"][:2] == (1, 8)
    assert first["alone"] != second["alone"]
    assert first["refused"] == (
        "Lightning was asked for 3 processes (devices=3, num_nodes=1), but this run has 2 ranks. "
        "Leave both out, or start the cell with -np 3"
    )
    assert first["world size"] == 2, "Lightning's own environment takes WORLD_SIZE away after a fit"
    notes = [event.data["text"] for event in reader.events(run.folder) if event.kind == "note"]
    assert notes == [
        "Lightning: with devices=1 each of the 2 ranks trains for itself. "
        "Without it they train one model together"
    ]


def hugging_face() -> dict[str, Any]:
    import torch
    from accelerate import Accelerator
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    import jupyter_dist as dist

    torch.manual_seed(dist.rank())
    rows = [{"input_ids": torch.randint(0, 32, (6,)), "labels": torch.tensor(i % 2)} for i in range(16)]
    small = dict.fromkeys(("hidden_size", "intermediate_size"), 8)
    config = BertConfig(vocab_size=32, num_hidden_layers=1, num_attention_heads=1, **small)
    arguments = TrainingArguments(
        output_dir=str(dist.checkpoint_dir()),
        per_device_train_batch_size=4,
        num_train_epochs=1,
        save_strategy="no",
        disable_tqdm=True,
        report_to="none",
    )
    trainer = Trainer(BertForSequenceClassification(config), arguments, train_dataset=rows)
    trainer.train()
    accelerator = Accelerator()
    layer = accelerator.prepare(torch.nn.Linear(4, 1))
    return {
        "trainer": (trainer.state.global_step, [p.sum().item() for p in trainer.model.parameters()]),
        "accelerate": (accelerator.num_processes, [p.tolist() for p in layer.parameters()]),
    }


@pytest.mark.needs("torch", "transformers", "accelerate")
def test_hugging_face_trains_one_model_over_all_ranks() -> None:
    """Without a GPU too, where accelerate by itself has each rank train its own."""
    run = jupyter_dist.run(hugging_face, np=2, options={"gpus_per_worker": 0})
    first, second = run.results
    assert first == second
    assert first["trainer"][0] == 2, "each rank takes half of the batches"
    assert first["accelerate"][0] == 2
