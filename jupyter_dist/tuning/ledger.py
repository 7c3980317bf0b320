"""Writer of the trial ledger: one line and one write for each entry, before its step is taken or shown."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Mapping
from typing import Any

from ..folder import RunFolder
from ..record.trials import Trial
from ..worker.line_file import LineFile

__all__ = ["Ledger"]


class Ledger:
    """Writer of `trials.jsonl`, whose format is in record/trials.py. Raises OSError if the disk is full."""

    def __init__(self, folder: RunFolder) -> None:
        self._file = LineFile(folder.trials)

    def begun(self, trial: Trial) -> None:
        """Write that a trial has begun: at `trial.started`, or now if that is 0."""
        more = {
            "handle": None if trial.handle is None else dict(trial.handle),
            "source": None if trial.source is None else dataclasses.asdict(trial.source),
            "until": trial.until,
        }
        told = {name: value for name, value in more.items() if value is not None}
        line = {"number": trial.number, "parameters": dict(trial.parameters), **told}
        self._write({**line, "time": trial.started or time.time()})

    def ended(self, trial: Trial, measured: Mapping[str, Any] | None = None) -> None:
        """Write that a trial has ended: at `trial.ended`, or now. `measured`: its measurement, as JSON."""
        told = [[step, value if math.isfinite(value) else _word(value)] for step, value in trial.steps]
        self._write(
            {
                "number": trial.number,
                "state": trial.state,
                "value": trial.value,
                "steps": told,
                "reason": trial.reason,
                "time": trial.ended or time.time(),
                **({} if measured is None else {"measured": dict(measured)}),
                **({"paused": True} if trial.paused else {}),
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
