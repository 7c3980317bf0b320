"""Errors that the surroundings of a rank explain: the card says which folder, disk, worker or parameter."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_dist.record.failures.card import card
from tests.rigs.launching import ended, launch_cell

pytestmark = pytest.mark.usefixtures("warm")

WORKER = """
import os
import torch
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        block = bytearray(b"1" * 300_000_000)
        os.kill(os.getpid(), 9)

for batch in DataLoader(Data(), num_workers=1):
    pass
"""
UNUSED = """
import torch
from torch import nn
import jupyter_dist as dist

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)
    def forward(self, x):
        return self.used(x)

dist.init()
model = nn.parallel.DistributedDataParallel(Net())
for _ in range(2):
    model(torch.ones(2, 2)).sum().backward()
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "small", place]).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield place
    subprocess.run(["umount", place], check=True)


def hint(source: str) -> str:
    folder = launch_cell("local", source, np=1)
    ended(folder)
    found = card(folder)
    assert found is not None
    return found.hints[0]


def test_a_missing_file(own_folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    where = f"rank 0 runs in '{tmp_path}' on host {socket.gethostname()}"
    told = f"{where}, and 'data/train.csv' is relative to that folder. Use an absolute path"
    assert hint("import pathlib\npathlib.Path('data/train.csv').read_text()") == told
    (tmp_path / "train.csv").touch()
    moved = hint("import os\nos.chdir('/')\nopen('train.csv')")
    assert moved.startswith("rank 0 runs in '/' on host")
    assert f"The file is on this machine: '{tmp_path}/train.csv'" in moved


def test_a_full_disk(own_folders: Path, small_disk: Path) -> None:
    told = hint(f"with open('{small_disk}/model.bin', 'wb') as file:\n    file.write(bytes(2_000_000))")
    assert f"'{small_disk}' has 0 B free of 1.05 MB" in told
    assert f"a disk of host {socket.gethostname()} is full" in told


@pytest.mark.needs("torch")
def test_a_dataloaders_worker_that_was_killed(own_folders: Path) -> None:
    told = hint(WORKER)
    assert "a worker process of the DataLoader was killed" in told
    assert "The largest worker had" in told
    assert "num_workers" in told


@pytest.mark.needs("torch")
def test_unused_parameters_of_ddp(own_folders: Path) -> None:
    assert "find_unused_parameters=True" in hint(UNUSED)
