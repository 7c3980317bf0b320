"""Folders that a platform's job has on its machine: its inputs, its model, its checkpoints."""

from __future__ import annotations

import os
import re
from pathlib import Path

from .. import layout

__all__ = ["checkpoint_dir", "checkpoints_elsewhere", "input", "model_dir"]


_INPUTS = "/opt/ml/input/data"


def input(name: str = "training") -> Path:
    """Where an input of the job lies, as `--input training=s3://…` names it: a folder, with this host's share
    of the files where those are shared out; with Pipe, the FIFO of the first epoch. On `azureml` what is
    mounted or downloaded, a file where the input is one, or the address itself with mode=direct.

    Raises KeyError, naming those there are, for another name, and where the platform has no inputs.
    https://github.com/aws/sagemaker-training-toolkit/blob/master/ENVIRONMENT_VARIABLES.md
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
    """A folder whose files are kept as the run's model, made if need be; `run.model` is where they are found.

    On `sagemaker` they become model.tar.gz in S3. Elsewhere it is `model` in `dist.checkpoint_dir()`, with
    which it comes home from other hosts.
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
    """The folder that the platform itself keeps, where it keeps one. None: the run's own is sent home."""
    told = os.environ.get("JUPYTER_DIST_CHECKPOINTS")
    if not told:
        return None
    path = Path(told)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def checkpoint_dir() -> Path:
    """A folder for checkpoints, made if need be: the same for all ranks and all attempts of the run.

    A cell that looks there first goes on where the attempt before was ended. Over several hosts each has
    its own, and at the run's end their files come together in the run's folder: on which host rank 0 runs
    does not change between attempts, unless that host is lost. Where the platform keeps such a folder itself
    (`--checkpoint-s3`), it is that one. Outside a run it is `checkpoints` in the working directory.
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
