"""What people say of a run: its name, its tags and a note, in a file of its own.

Whoever names a run writes the file `about.json` in its folder: the kernel at the start, the server when
somebody types into the sidebar. So the supervisor stays the only writer of how the run stands.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import InputError
from ..folder import RunFolder, unwritable, write_json
from ..text.labels import read_name, read_note, read_tags

__all__ = ["About", "change", "read"]


@dataclass(frozen=True)
class About:
    """A run without a name of its own is called by its cell."""

    name: str = ""
    tags: tuple[str, ...] = ()
    note: str = ""


def read(folder: RunFolder) -> About:
    """What is said of a run; nothing where nobody has said anything, or the file is not ours."""
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
    """Say something else of a run; what is None stays. An empty text takes back what was said.

    Raises InputError, and LaunchError where the folder cannot be written.
    """
    known = read(folder)
    try:
        said = About(
            known.name if name is None else read_name(name),
            known.tags if tags is None else read_tags(tags),
            known.note if note is None else read_note(note),
        )
    except ValueError as error:
        raise InputError(f"a run's name, tags or note {error}") from None
    try:
        write_json(folder.about, {"name": said.name, "tags": list(said.tags), "note": said.note})
        os.utime(folder.path.parent)  # so that lists are read anew
    except OSError as error:
        raise unwritable(folder.path, error) from error
    return said
