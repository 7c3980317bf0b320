"""Prompts at which ranks wait for their user. The ranks write them (worker/debugger/channel.py)."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from ..folder import RunFolder
from ..job import Wait
from ..text.fold import named
from ..text.safe import one_line
from ..worker import layout
from ..worker.debugger.channel import ERROR, INPUT
from .growing_file import GrowingFile

__all__ = ["RankPrompts", "sentence"]

_MOST = 200


class RankPrompts:
    """The prompts of one rank up to the last `read`."""

    def __init__(self, folder: RunFolder, attempt: int, rank: int) -> None:
        self.rank = rank
        self._file = GrowingFile(os.path.join(layout.rank_path(folder.path, attempt, rank), layout.PROMPTS))
        self._stop: dict[str, Any] | None = None
        """Where the rank has stopped; None while it runs."""
        self.prompt: str | None = None
        """The id of the prompt that has no answer; None while the rank works on one, and while it runs."""
        self.prompt_text = ""
        self.steps = False
        """Whether the rank runs, and will stop again at one of the next lines."""
        self.ends = False
        """Whether the rank ends, because the user has left the debugger with `q` or after an error."""
        self._is_read = False

    @property
    def stopped(self) -> bool:
        return self._stop is not None

    @property
    def why(self) -> str:
        return "" if self._stop is None else str(self._stop.get("why"))

    @property
    def wait(self) -> Wait | None:
        """Return where the rank has stopped; None while it runs. A rank that works on a line has stopped."""
        stop = self._stop
        if stop is None:
            return None
        text = self.prompt_text if self.why == INPUT else str(stop.get("error", ""))
        place = one_line(str(stop.get("place", "")), _MOST)
        return Wait(self.rank, self.why, place, one_line(text, _MOST), float(stop["time"]))

    def read(self) -> list[str]:
        """Read what the rank has written since the last call. Returns the texts of its debugger.

        The first call leaves out the texts of earlier stops.
        """
        texts: list[str] = []
        while data := self._file.read():
            for line in data.splitlines():
                try:
                    event = json.loads(line)
                    self._take(event, texts)
                except (ValueError, KeyError, TypeError, AttributeError):  # not whole, or not ours
                    continue
        self._is_read = True
        return texts

    def _take(self, event: dict[str, Any], texts: list[str]) -> None:
        kind = event["kind"]
        if kind == "stop":
            float(event["time"])
            self._stop, self.prompt, self.steps = event, None, False
        elif kind == "text":
            texts.append(_printable(event["text"]))
        elif kind == "prompt":
            self.prompt, self.prompt_text = str(event["id"]), _printable(event["text"])
        elif kind == "taken":
            self.prompt = None
        elif kind == "go":
            if not self._is_read:
                texts.clear()
            self._stop = self.prompt = None
            self.steps, self.ends = bool(event["steps"]), bool(event["ends"])


def _printable(text: object) -> str:
    """Replace halves of characters, which no stream accepts."""
    return str(text).encode(errors="replace").decode()


def sentence(waits: Sequence[Wait]) -> str:
    """Return `rank 1 waits at In[4], line 14`. Ranks at the same place are one part. Empty if none waits."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for wait in waits:
        place = "" if wait.why == INPUT else wait.place
        groups.setdefault((wait.why, place, wait.text), []).append(wait.rank)
    return "; ".join(_said(named(ranks), len(ranks) == 1, *key) for key, ranks in groups.items())


def _said(who: str, one: bool, why: str, place: str, text: str) -> str:
    waits = "waits" if one else "wait"
    if why == INPUT:
        return f"{who} {waits} for input{f': {text!r}' if text else ''}"
    if why == ERROR:
        return f"{who} {waits} at an error in {place} ({text})"
    return f"{who} {waits} at {place}"
