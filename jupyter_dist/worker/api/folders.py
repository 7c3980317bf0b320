"""Folders of a job on its machine: its inputs, its model, its checkpoints."""

from __future__ import annotations

import os
import re
from pathlib import Path

from .. import layout

__all__ = ["checkpoint_dir", "checkpoints_elsewhere", "input", "model_dir"]


_INPUTS = "/opt/ml/input/data"


def input(name: str = "training") -> Path:
    """Return the path of an input of the job, by its name in `--input training=s3://…`.

    On `sagemaker`, the path is a folder. If the files are shared out among hosts, it has this host's share.
    With Pipe, the path is the FIFO of the first epoch. On `azureml`, the path is the mounted or downloaded
    folder, or a file if the input is a file. With mode=direct, it is the address itself.

    Raises KeyError for another name, with the existing names, and if the platform has no inputs.
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
    fifo = Path(f"{path}_0")
    return fifo if fifo.exists() and not Path(path).exists() else Path(path)


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
