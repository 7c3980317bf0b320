"""Folders of a job on its machine: its inputs, its model, its checkpoints."""

from __future__ import annotations

import json
import operator
import os
import re
import time
from pathlib import Path

from .. import layout

__all__ = ["checkpoint_dir", "checkpoints_elsewhere", "input", "model_dir"]


_INPUTS = "/opt/ml/input/data"
_NEXT_EPOCH_S = 60.0
"""Time limit for the FIFO of the next epoch. SageMaker makes it when the one before was read."""


def input(name: str = "training", epoch: int = 0) -> Path:
    """Return the path of an input of the job, by its name in `--input training=s3://…`.

    On `sagemaker`, the path is a folder. If the files are shared out among hosts, it has this host's share.
    With Pipe, the path is the FIFO of that epoch. SageMaker makes the FIFOs one after the other, so the call
    waits until the FIFO of the epoch before was read. Other inputs are the same in each epoch. On `azureml`,
    the path is the mounted or downloaded folder, or a file if the input is a file. With mode=direct, it is
    the address itself.

    Raises KeyError for another name, with the existing names, and if the platform has no inputs. Raises
    TimeoutError if the FIFO is not there in time.
    Source: https://github.com/aws/sagemaker-training-toolkit/blob/master/ENVIRONMENT_VARIABLES.md
    """
    found = {
        key.removeprefix(kind).lower(): value
        for key, value in os.environ.items()
        for kind in ("SM_CHANNEL_", "JUPYTER_DIST_INPUT_")
        if key.startswith(kind)
    }
    path = found.get(re.sub(r"[^a-z0-9_]", "_", name.lower()), found.get(name.lower()))
    if path is None:
        there = f"; there are: {', '.join(sorted(found))}" if found else ""
        raise KeyError(
            f"the run has no input {name!r}{there}. Add it with --input {name}=URL, on sagemaker or azureml"
        )
    if epoch < 0:
        raise ValueError(f"the epochs of an input count from 0, got epoch={epoch}")
    if not _is_pipe(path):
        return Path(path)
    fifo, until = Path(f"{path}_{operator.index(epoch)}"), time.monotonic() + _NEXT_EPOCH_S
    while not fifo.exists():
        if time.monotonic() > until:
            raise TimeoutError(
                f"{fifo} does not exist after {_NEXT_EPOCH_S:g} s. SageMaker makes it when the FIFO of the "
                f"epoch before was read to its end. Read dist.input({name!r}, epoch={epoch - 1}) first"
            )
        time.sleep(0.01)
    return fifo


def _is_pipe(path: str) -> bool:
    """Return whether the input has a FIFO for each epoch. The container's toolkit says the modes."""
    modes = json.loads(os.environ.get("SM_INPUT_DATA_CONFIG") or "{}")
    mode = (modes.get(Path(path).name) or {}).get("TrainingInputMode")
    return mode == "Pipe" or (Path(f"{path}_0").exists() and not Path(path).exists())


def model_dir() -> Path:
    """Return a folder whose files are kept as the run's model. The folder is made if it is missing.

    `run.model` names their location. On `sagemaker` they become model.tar.gz in S3. On other backends the
    folder is `model` in `dist.checkpoint_dir()`. It is copied back from other hosts with the checkpoints.
    """
    told = os.environ.get("SM_MODEL_DIR")
    if told:
        path = Path(told)
    else:
        from .folders import checkpoint_dir

        path = checkpoint_dir() / layout.MODEL
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def checkpoints_elsewhere() -> Path | None:
    """Return the checkpoint folder that the platform itself keeps, if there is one.

    None means that the agent sends the run's own folder back.
    """
    told = os.environ.get("JUPYTER_DIST_CHECKPOINTS")
    if not told:
        return None
    path = Path(told)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def checkpoint_dir() -> Path:
    """Return a folder for checkpoints, the same for all ranks and all attempts of the run.

    The folder is made if it is missing. A cell that first loads a checkpoint from the folder continues the
    work of the previous attempt. On several hosts, each host has its own folder. At the run's end
    jupyter-dist copies the files of all hosts into the run's folder. The host of rank 0 does not change
    between attempts, unless that host is lost. If the platform keeps such a folder itself
    (`--checkpoint-s3`), the function returns that folder. Outside a run it is `checkpoints` in the working
    directory.
    """
    run, kept = os.environ.get("JUPYTER_DIST_RUN"), checkpoints_elsewhere()
    if kept is not None:
        return kept
    if run is None:
        path = Path.cwd() / layout.CHECKPOINTS
        path.mkdir(exist_ok=True)
        return path
    path = Path(run) / layout.CHECKPOINTS
    try:
        path.mkdir(0o700)
    except FileExistsError:
        return path
    path.chmod(0o700)
    return path
