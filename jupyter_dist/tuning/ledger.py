"""Writer of the trial ledger: one line and one write for each entry, before its step is taken or shown."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..folder import RunFolder
from ..record.trials import Source
from ..worker.line_file import LineFile

__all__ = ["Ledger"]


class Ledger:
    """Writer of `trials.jsonl`, whose format is in record/trials.py. Raises OSError if the disk is full."""

    def __init__(self, folder: RunFolder) -> None:
        self._file = LineFile(folder.trials)

    def begun(
        self,
        number: int,
        parameters: Mapping[str, Any],
        handle: Mapping[str, Any] | None,
        at: float | None = None,
        *,
        source: Source | None = None,
        until: int | None = None,
    ) -> None:
        """`at`: when the trial began, in seconds since the epoch. None: now."""
        more = {
            "handle": None if handle is None else dict(handle),
            "source": None if source is None else dataclasses.asdict(source),
            "until": until,
        }
        told = {name: value for name, value in more.items() if value is not None}
        self._write({"number": number, "parameters": dict(parameters), **told, "time": at or time.time()})

    def ended(
        self,
        number: int,
        state: str,
        value: float | None,
        steps: Sequence[tuple[int, float]],
        reason: str | None,
        measured: Mapping[str, Any] | None = None,
        at: float | None = None,
        *,
        paused: bool = False,
    ) -> None:
        """`at`: when the trial ended, in seconds since the epoch. None: now."""
        told = [[step, at if math.isfinite(at) else _word(at)] for step, at in steps]
        self._write(
            {
                "number": number,
                "state": state,
                "value": value,
                "steps": told,
                "reason": reason,
                "time": at or time.time(),
                **({} if measured is None else {"measured": dict(measured)}),
                **({"paused": True} if paused else {}),
            }
        )

    def importance(self, found: Mapping[str, float]) -> None:
        self._write({"importance": dict(found)})

    def close(self) -> None:
        self._file.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.append(json.dumps(line, ensure_ascii=True).encode() + b"\n")


def _word(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
