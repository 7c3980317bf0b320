"""A machine with GPUs, as far as nvidia-smi tells: a fake of it on PATH."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_dist.worker.gpus import devices as _gpus

__all__ = ["FakeGpus", "fake_gpus"]


class FakeGpus:
    """`fake_gpus.are(4)`: GPUs 0-3, whose UUIDs are `GPU-fake-0` to `GPU-fake-3`."""

    def __init__(self, folder: Path) -> None:
        self._list = folder / "list"
        self.calls = folder / "calls"
        self.are(0)

    def are(self, count: int) -> None:
        self.say("".join(f"GPU {at}: A fake (UUID: GPU-fake-{at})\n" for at in range(count)))

    def say(self, text: str) -> None:
        """What `nvidia-smi -L` prints."""
        self._list.write_text(text)
        _gpus._visible.cache_clear()


@pytest.fixture
def fake_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpus]:
    """This machine has the GPUs that the test says, for its own process and all it starts."""
    folder = tmp_path / "nvidia"
    folder.mkdir()
    made = FakeGpus(folder)
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho \"$@\" >> '{made.calls}'\ncat '{folder}/list'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    yield made
    _gpus._visible.cache_clear()
