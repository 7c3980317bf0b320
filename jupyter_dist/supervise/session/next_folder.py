"""The folder for the run of a session's next cell, with the files that the kernel and all ranks open at once.

To make a file takes a multiple of the time of a write, and is slow on a busy disk. So the supervisor makes
them between cells. Hidden files are renamed when they are complete. A cell of some ranks does not use the
folder.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ...folder import RunFolder, open_private, prepare
from ...worker import layout
from ...worker.session import place

__all__ = ["NextFolder"]

_OF_THE_KERNEL = (layout.RESUME_LOCK, layout.hidden(layout.PAYLOAD), layout.hidden(layout.JOB))
_OF_A_RANK = (layout.OUTPUT, layout.EVENTS, layout.STACKS, layout.hidden(layout.ERROR))


class NextFolder:
    """`path`: the session's folder. `here`: whether its ranks write into the run's folder themselves."""

    def __init__(self, path: Path, world_size: int, here: bool) -> None:
        self._path, self._world_size, self._here = path / place.NEXT, world_size, here
        self._incomplete = RunFolder(path / f".{place.NEXT}")
        self.remove()  # that of an earlier session with other ranks

    def make(self) -> None:
        """Make the folder, unless it exists. On a full disk, the kernel makes its own."""
        if os.path.isdir(self._path):
            return
        try:
            prepare(self._incomplete, self._world_size)
            paths = [self._incomplete.path / name for name in _OF_THE_KERNEL]
            for rank in range(self._world_size if self._here else 0):
                paths += [self._incomplete.rank(0, rank).path / name for name in _OF_A_RANK]
            for path in paths:
                os.close(open_private(path, os.O_WRONLY))
            os.rename(self._incomplete.path, self._path)  # a kernel sees the whole folder or none
        except OSError:
            shutil.rmtree(self._incomplete.path, ignore_errors=True)

    def remove(self) -> None:
        for path in (self._path, self._incomplete.path):
            shutil.rmtree(path, ignore_errors=True)
