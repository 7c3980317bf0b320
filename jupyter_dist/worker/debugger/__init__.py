"""Prompts of a rank: pdb at `breakpoint()` or after an error, and `input()`. The user answers elsewhere.

A rank has no terminal. It writes a prompt to a file in its folder, and reads the answer from a file in the
run's requests (channel.py). So a prompt works on each backend, without a port, and with any kernel of the
same user.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from ..output import events
from . import channel, typed_input

__all__ = ["Prompting", "failed", "failed_at", "forget", "quit_text"]

_OF_A_TRIAL = (
    "Nobody can answer this rank, because it belongs to a trial of a tuning run. Run the cell without --tune "
    "or --scaling, or remove the question."
)


class Prompting:
    """Context in which the code of one cell may ask the user. Tracing by pdb ends with it."""

    def __init__(self, run_folder: Path, rank_folder: Path, header: Mapping[str, Any]) -> None:
        self._rank, self._debugpy = rank_folder.name, bool(header.get("debugpy"))
        self._channel = channel.Channel(
            run_folder,
            rank_folder,
            header["labels"],
            holds_errors=bool(header.get("pdb")),
            nobody=_OF_A_TRIAL if header.get("is_trial") else "",
        )

    def __enter__(self) -> None:
        channel.use(self._channel)
        typed_input.install()
        if self._debugpy:
            from . import editor

            editor.listen(self._rank)

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        # After `next` on the last line, pdb would stop in our own code.
        # Nothing may be imported here: pdb would stop in the import.
        self._channel.end_tracing()


def forget() -> bool:
    """Free what pdb refers to, for a rank that stays. Returns whether pdb has stopped the cell.

    pdb leaves its trace function in every frame below the cell. It refers to the variables of the cell.
    """
    found = channel.current()
    if found is None or not found.used:
        return False
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        frame.f_trace = None
        frame = frame.f_back
    return True


def failed(error: BaseException) -> None:
    """Prepare the report of an error: leave out the calls of pdb that an error at a prompt passes.

    With `--pdb`, let the user look at the error before the rank reports it. Blocks until then.
    """
    found = channel.current()
    if found is None:
        return
    if found.used:
        from . import pdb_prompts

        pdb_prompts.trim(error)
    if _is_quit(error):
        error.args = error.args or ("you ended this rank with `q` in the debugger",)
    elif found.holds_errors and not isinstance(error, KeyboardInterrupt):
        from . import pdb_prompts

        found.failed_at = events.now()
        pdb_prompts.hold(found, error)


def failed_at() -> float:
    """Return when the error was raised that the rank reports now. With `--pdb` that can be long ago."""
    found = channel.current()
    return found.failed_at if found is not None and found.failed_at else events.now()


def quit_text(error: BaseException) -> str | None:
    """Return the report of a rank that the user has ended with `q`: one line. None for any other error."""
    found = channel.current()
    if found is None or not _is_quit(error):
        return None
    return f"bdb.BdbQuit: {error} at {found.place}\n"


def _is_quit(error: BaseException) -> bool:
    bdb = sys.modules.get("bdb")
    return bdb is not None and isinstance(error, bdb.BdbQuit)
