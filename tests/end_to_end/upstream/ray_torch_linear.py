"""Ray's example of TorchTrainer for a linear model: its own training function, imported from Ray.

source: https://github.com/ray-project/ray/blob/master/python/ray/train/examples/pytorch/torch_linear_example.py
group: ray
notebook: --backend ray -np 2
plain: python TORCH_TRAINER
compared: losses, weights of the last checkpoint, exactly
changed: nothing
"""

# %%
import os

import torch
from ray import train
from ray.train.examples.pytorch.torch_linear_example import train_func

# %%
config = {"lr": 1e-2, "hidden_size": 1, "batch_size": 4, "epochs": 3, "data_size": 200, "val_size": 80}


def weights():
    with train.get_checkpoint().as_directory() as folder:
        state = torch.load(os.path.join(folder, "model.pt"))
    return {name: value.tolist() for name, value in state.items()}


# %%
torch.manual_seed(0)
losses = train_func(config)
{"rank": train.get_context().get_world_rank(), "losses": losses, "weights": weights()}
