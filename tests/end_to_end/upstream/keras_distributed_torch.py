"""Keras' guide to distributed training with PyTorch: a Keras model in DDP, with Keras' torch backend.

source: https://keras.io/guides/distributed_training_with_torch/
group: keras-torch
notebook: -np 2
plain: torchrun --standalone --nproc-per-node 2 SCRIPT
compared: losses, weights and moving statistics, to 1e-6
changed: nothing
"""

# %%
import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch

# %%
num_epochs = 2
batch_size = 16


def get_model():
    inputs = keras.Input(shape=(8, 8, 1))
    x = keras.layers.Rescaling(1.0 / 255.0)(inputs)
    x = keras.layers.Conv2D(filters=4, kernel_size=3, padding="same", use_bias=False)(x)
    x = keras.layers.BatchNormalization(scale=False, center=True)(x)
    x = keras.layers.ReLU()(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    outputs = keras.layers.Dense(10)(x)
    return keras.Model(inputs, outputs)


def get_dataset():
    draw = np.random.default_rng(0)
    x_train = draw.integers(0, 256, (64, 8, 8, 1)).astype("float32")
    y_train = x_train.sum((1, 2, 3)).astype("int64") % 10
    return torch.utils.data.TensorDataset(torch.from_numpy(x_train), torch.from_numpy(y_train))


keras.utils.set_random_seed(0)
model = get_model()
dataset = get_dataset()


# %%
def train_model(model, dataloader, num_epochs, optimizer, loss_fn):
    averages = []
    for epoch in range(num_epochs):
        running_loss = 0.0
        running_loss_count = 0
        for inputs, targets in dataloader:
            outputs = model(inputs)
            loss = loss_fn(outputs, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
            running_loss_count += 1
        averages.append(running_loss / running_loss_count)
        print(f"Epoch {epoch + 1}/{num_epochs}, Loss: {averages[-1]}")
    return averages


def prepare_dataloader(dataset, rank, world_size, batch_size):
    sampler = torch.utils.data.distributed.DistributedSampler(
        dataset, num_replicas=world_size, rank=rank, shuffle=False
    )
    return torch.utils.data.DataLoader(dataset, sampler=sampler, batch_size=batch_size, shuffle=False)


# %%
def per_device_launch_fn(rank, world_size):
    torch.distributed.init_process_group(backend="gloo", init_method="env://")
    dataloader = prepare_dataloader(dataset, rank, world_size, batch_size)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_fn = torch.nn.CrossEntropyLoss()
    ddp_model = torch.nn.parallel.DistributedDataParallel(model)
    losses = train_model(ddp_model, dataloader, num_epochs, optimizer, loss_fn)
    weights = [np.asarray(w).flatten().tolist() for w in model.get_weights()]
    return {"rank": rank, "losses": losses, "weights": weights}


# %%
per_device_launch_fn(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
