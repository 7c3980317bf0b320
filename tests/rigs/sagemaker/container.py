"""What an image of AWS's for training starts: AWS's own toolkit, with this machine's Python.

    python container.py IMAGE

Which of AWS's images it is like, its name tells: `pytorch-training`, `tensorflow-training`, or another one,
which has the toolkit alone. Only its long waits are short here: mpirun's end is waited for half a minute.
"""

from __future__ import annotations

import os
import sys
import time
from types import SimpleNamespace
from typing import Any

__all__ = ["main"]

_LONG_S = 10.0
_MODULES = {kind: f"sagemaker_{kind}_container.training" for kind in ("pytorch", "tensorflow")}


def _sleep(seconds: float) -> None:
    time.sleep(seconds if seconds < _LONG_S else seconds / 60)


def main(image: str) -> None:
    """Returns when the training is over; exits with its code."""
    kind = next((kind for kind in _MODULES if f"{kind}-training" in image), None)
    if kind != "tensorflow":
        sys.modules["tensorflow"] = None  # type: ignore[assignment]  # the others' images have none
    if kind is not None:
        os.environ["SAGEMAKER_TRAINING_MODULE"] = f"{_MODULES[kind]}:main"
    if os.environ.get("JUPYTER_DIST_TEST_WAITS") != "whole":
        _hurry("sagemaker_training.mpi")
        if kind == "tensorflow":
            _hurry(_MODULES[kind])
    from sagemaker_training.cli.train import main as train

    train()


def _hurry(name: str) -> None:
    import importlib

    module: Any = importlib.import_module(name)
    module.time = SimpleNamespace(time=time.time, sleep=_sleep)


if __name__ == "__main__":
    del sys.path[0]  # the toolkit hands its path on to what it starts
    main(sys.argv[1])
