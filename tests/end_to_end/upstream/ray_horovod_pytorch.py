"""Ray's example of HorovodTrainer: its own training function, imported from Ray, with other digits.

source: https://github.com/ray-project/ray/blob/master/python/ray/train/examples/horovod/horovod_pytorch_example.py
group: ray
notebook: --backend ray -np 2
plain: env RAY_TRAIN_V2_ENABLED=0 python HOROVOD_TRAINER
compared: losses, exactly
changed: the module torchvision, which downloads MNIST, is one with digits that are here
"""

# %%
from pathlib import Path

Path("torchvision.py").write_text(
    """
import torch
from sklearn.datasets import load_digits


class datasets:
    @staticmethod
    def MNIST(*args, **kwargs):
        pixels, digits = load_digits(return_X_y=True)
        images = torch.tensor(pixels[:512] / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
        images = torch.nn.functional.interpolate(images, (28, 28))
        return torch.utils.data.TensorDataset(images, torch.tensor(digits[:512]))


class transforms:
    Compose = ToTensor = Normalize = staticmethod(lambda *args: None)
"""
)

# %%
import torchvision
from ray import train
from ray.train.examples.horovod.horovod_pytorch_example import train_func

# %%
config = {"num_epochs": 2, "lr": 0.05, "seed": 1}

# %%
assert hasattr(torchvision, "datasets")
losses = train_func(config)
{"rank": train.get_context().get_world_rank(), "losses": losses}
