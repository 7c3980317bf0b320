"""Model of a run: the files that its ranks have put into `dist.model_dir()`.

If a platform keeps them, they are downloaded.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .. import backends
from ..errors import DistError
from ..folder import RunFolder, make_private
from ..record import reader
from ..text.format import attach_call
from ..worker import layout

__all__ = ["model"]


def model(folder: RunFolder) -> Path:
    """Return the folder with the files. The backend downloads them once if its platform keeps them.

    Blocks during the download. Raises DistError.
    """
    status, job = reader.status(folder), reader.job(folder)
    if job.tuning is not None:
        raise DistError(
            f"Run {folder.id} is a tuning run. Only its trials have models. Use "
            f"{attach_call(folder.id)}.best.model"
        )
    if not status.state.ended:
        raise DistError(
            f"Run {folder.id} is still {status.state}. Its model is ready when it has ended. Wait "
            f"with {attach_call(folder.id)}.wait()"
        )
    if folder.model.is_dir():
        return folder.model
    fetch = backends.extensions_of(backends.declared(job.backend)).fetch_model
    if fetch is None:
        found = folder.checkpoints / layout.MODEL  # dist.model_dir() of worker/api/folders.py
        if not _has_files(found):
            raise _none(folder)
        return found
    unpacked = folder.path / layout.hidden(f"{layout.MODEL}-{os.getpid()}")
    shutil.rmtree(unpacked, ignore_errors=True)
    try:
        make_private(unpacked)
        fetch(job, folder, unpacked)
        if not _has_files(unpacked):
            raise _none(folder)
        if not folder.model.is_dir():
            unpacked.rename(folder.model)
    except OSError as error:
        raise DistError(f"the model of run {folder.id} cannot be written: {error}") from error
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
    return folder.model


def _has_files(place: Path) -> bool:
    return any(names for _, _, names in os.walk(place))


def _none(folder: RunFolder) -> DistError:
    return DistError(
        f"Run {folder.id} has no model, because no rank saved a file in dist.model_dir(). "
        'Save one there, as in torch.save(model.state_dict(), dist.model_dir() / "model.pt")'
    )
