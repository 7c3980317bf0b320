"""Labels that people give a run: a name, tags and a note, in a file of their own.

The kernel writes `about.json` at the start, and the server writes it when somebody types into the sidebar.
So the supervisor stays the only writer of the run's state.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import InputError
from ..folder import RunFolder, unwritable, write_json
from ..text.labels import read_name, read_note, read_tags
from ..worker.file_locks import locked

__all__ = ["About", "change", "read"]


@dataclass(frozen=True)
class About:
    """Labels of a run. A run without a name is listed under its cell's label."""

    name: str = ""
    tags: tuple[str, ...] = ()
    note: str = ""


def read(folder: RunFolder) -> About:
    """Read the labels of a run. Empty if there are none, or the file is invalid."""
    try:
        data = json.loads(folder.about.read_bytes())
        return About(read_name(str(data["name"])), read_tags(data["tags"]), read_note(str(data["note"])))
    except (OSError, ValueError, TypeError, KeyError):
        return About()


def change(
    folder: RunFolder,
    name: str | None = None,
    tags: str | Iterable[str] | None = None,
    note: str | None = None,
) -> About:
    """Change the labels of a run. None leaves a label as it is, and an empty text removes it.

    Changes at the same time by other threads and processes are kept. Raises InputError, and LaunchError if
    the folder cannot be written.
    """
    try:
        with locked(folder.about_lock):
            known = read(folder)
            try:
                said = About(
                    known.name if name is None else read_name(name),
                    known.tags if tags is None else read_tags(tags),
                    known.note if note is None else read_note(note),
                )
            except ValueError as error:
                raise InputError(f"a run's name, tags or note {error}") from None
            write_json(folder.about, {"name": said.name, "tags": list(said.tags), "note": said.note})
        os.utime(folder.path.parent)  # so that lists of runs are read again
    except OSError as error:
        raise unwritable(folder.path, error) from error
    return said
