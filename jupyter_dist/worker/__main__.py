"""A rank's whole life: `python -m jupyter_dist.worker`, told what it is by its environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from . import _boot, _cell

__all__ = ["main"]


def main() -> NoReturn:
    """Be the rank that the environment describes; ends the process."""
    run_folder = Path(os.environ["JUPYTER_DIST_RUN"])
    rank = int(os.environ["RANK"])
    rank_folder = run_folder / "attempts" / os.environ["JUPYTER_DIST_ATTEMPT"] / "ranks" / str(rank)
    parent = os.environ.pop("JUPYTER_DIST_PARENT", None)
    if parent is not None:
        _boot.die_with_parent(int(parent))
    _boot.start(rank_folder, rank)
    cwd = os.environ.pop("JUPYTER_DIST_CWD", None)
    if cwd is not None:
        os.chdir(cwd)
    code, orderly = _cell.run(run_folder, rank_folder)
    _boot.end(code, orderly=orderly)


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        # Nothing above is the user's code; what breaks here must still reach the log.
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        os._exit(70)
