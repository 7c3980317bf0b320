"""The folder of the rank that the environment describes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .. import layout

__all__ = ["FOLDER", "rank_folder"]


FOLDER = "JUPYTER_DIST_RANK_FOLDER"
"""The name of the rank's folder, if it differs from the rank: elastic ranks change, folders do not."""


def rank_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of the rank that these variables describe."""
    attempt, rank = environ["JUPYTER_DIST_ATTEMPT"], environ.get(FOLDER) or environ["RANK"]
    return Path(layout.rank_path(environ["JUPYTER_DIST_RUN"], attempt, rank))
