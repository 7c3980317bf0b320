"""A file that exists once the hosts may have been asked to start the ranks of an attempt."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from ...folder import write_bytes
from ...hosts.start import Start
from ...worker import layout

__all__ = ["StartRecord"]


class StartRecord:
    """The record of one attempt, which a new supervisor reads. `attempt`: the attempt's folder."""

    def __init__(self, attempt: Path) -> None:
        self._path = attempt / layout.hidden("started")

    def exists(self) -> bool:
        return self._path.exists()

    def write(self, starts: Sequence[Start]) -> None:
        """Write the start of each rank. Give none if the run has values of --env: no file contains them."""
        told = json.dumps([dataclasses.asdict(start) for start in starts]) if starts else ""
        write_bytes(self._path, told.encode())

    def read(self) -> list[Start] | None:
        """Return the start of each rank; None if they are not recorded."""
        try:
            known = json.loads(self._path.read_bytes())
            return [Start(**{**each, "argv": tuple(each["argv"])}) for each in known]
        except (OSError, ValueError):
            return None
