"""Writer of the trial ledger: one line and one write for each entry, before its step is taken or shown."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..folder import RunFolder, open_private

__all__ = ["Ledger"]


class Ledger:
    """Writer of `trials.jsonl`, whose format is in record/trials.py. Raises OSError if the disk is full."""

    def __init__(self, folder: RunFolder) -> None:
        self._fd = open_private(folder.trials, os.O_RDWR | os.O_APPEND)
        # A full disk or a crash may have torn the last line. End it here.
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            os.write(self._fd, b"\n")

    def begun(self, number: int, parameters: Mapping[str, Any], handle: Mapping[str, Any] | None) -> None:
        found_by = {} if handle is None else {"handle": dict(handle)}
        self._write({"number": number, "parameters": dict(parameters), **found_by, "time": time.time()})

    def ended(
        self,
        number: int,
        state: str,
        value: float | None,
        steps: Sequence[tuple[int, float]],
        reason: str | None,
    ) -> None:
        told = [[step, at if math.isfinite(at) else _word(at)] for step, at in steps]
        self._write(
            {
                "number": number,
                "state": state,
                "value": value,
                "steps": told,
                "reason": reason,
                "time": time.time(),
            }
        )

    def importance(self, found: Mapping[str, float]) -> None:
        self._write({"importance": dict(found)})

    def close(self) -> None:
        os.close(self._fd)

    def _write(self, line: Mapping[str, Any]) -> None:
        os.write(self._fd, json.dumps(line, ensure_ascii=True).encode() + b"\n")


def _word(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
