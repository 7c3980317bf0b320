"""The failure of every rank of a run, the root cause first."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from ...folder import RunFolder
from ...job import RankState, State
from .. import reader
from . import stacks
from .places import may_be_of_a_rank

__all__ = ["RankError", "failures", "is_symptom", "pruning", "root_cause", "traceback_of"]

# A rank reports one of these errors if another rank has ended. Any other failure is the root cause.
_COLLATERAL = re.compile(
    r"remote process exited|NCCL communicator was aborted|ncclRemoteError|ncclSystemError|"
    r"Connecting to .*failed|store.*(timed out|timeout)|"
    r"timed out waiting .*(recv|send|clients)|cannot arrive at this barrier|Horovod has been shut down|"
    r"stopped sending heartbeats|received errors while waiting for send/recv from rank",
    re.IGNORECASE,
)
_CONNECTION = re.compile(
    r"connection (was )?(reset|closed|refused|aborted)|broken pipe|closed by peer|socket closed|"
    r"UNAVAILABLE:|CANCELLED:|ABORTED:",
    re.IGNORECASE,
)
"""Messages of a connection to another rank, and of one to anything else, such as a database."""
_OF_PYTHON = frozenset(
    {"BrokenPipeError", "ConnectionAbortedError", "ConnectionRefusedError", "ConnectionResetError"}
)
"""Errors of Python's own sockets. Collectives are C++ code, and raise other errors."""


@dataclass(frozen=True)
class RankError:
    """Failure of one rank.

    `kind` is "exception", "exit" (a non-zero exit code, with the text of `sys.exit` in `message` if there is
    one), "signal" or "lost" (with its host). `text` is the traceback with the source lines of the cell, or
    Python's report of a crash. It may be empty. `collateral` is true if the rank failed, or was stopped,
    because another rank had failed.
    """

    rank: int
    time: float
    kind: Literal["exception", "exit", "signal", "lost"]
    type: str
    message: str
    text: str = ""
    frames: tuple[Mapping[str, Any], ...] = ()
    exit_code: int | None = None
    signal: int | None = None
    peak_memory_bytes: int | None = None
    host: str | None = None
    collateral: bool = False
    around: Mapping[str, Any] = field(default_factory=dict)
    """What the rank reported of its surroundings (worker/rank/surroundings.py)."""


def failures(
    folder: RunFolder, attempt: int | None = None, ranks: Sequence[RankState] | None = None
) -> list[RankError]:
    """Return the failures of an attempt: root cause first, then by time, collateral failures last.

    Args:
        attempt: the newest attempt by default.
        ranks: the attempt's ranks, from a caller that has newer states than state.json. Then state.json is
            not read.
    """
    alone = True
    if ranks is None or attempt is None:
        status = reader.status(folder)
        attempt = status.attempt if attempt is None else attempt
        ranks, alone = reader.ranks(folder, attempt), status.state is not State.LOST
    found = []
    asked: set[int] = set()
    for rank in ranks:
        error = _of_rank(folder, attempt, rank, asked, alone=alone)
        if error is not None:
            found.append(error)
    if any(not error.collateral for error in found):
        # A message alone marks a failure as collateral only if another rank has a failure of its own. A lost
        # connection of the rank's own code is one if no other rank has another failure.
        for blames_another in (_tells_of_a_connection, _blames_another):
            marked = [
                replace(e, collateral=e.collateral or e.rank in asked or blames_another(e)) for e in found
            ]
            if any(not error.collateral for error in marked):
                return sorted(marked, key=_order)
    return sorted(found, key=_order)


def _order(error: RankError) -> tuple[bool, float, int]:
    return error.collateral, error.time, error.rank


def traceback_of(folder: RunFolder, attempt: int, rank: int) -> str:
    """Return the traceback that a rank has written, which also ends its log. Empty if there is none yet."""
    written = _error_file(folder, attempt, rank)
    return "" if written is None else str(written["text"])


def root_cause(errors: Sequence[RankError]) -> RankError | None:
    """Return the failure that others followed from. None if no rank failed by itself."""
    return errors[0] if errors and not errors[0].collateral else None


def pruning(errors: Sequence[RankError]) -> RankError | None:
    """Return the failure in which a cell has raised Optuna's TrialPruned. None if the cell has failed."""
    cause = root_cause(errors)
    return cause if cause is not None and cause.around.get("pruned") is True else None


def is_symptom(error: RankError) -> bool:
    """Return whether the failure can follow from another rank's. Gloo aborts a rank whose peer differs."""
    return _blames_another(error) or error.signal == signal.SIGABRT


def _blames_another(error: RankError) -> bool:
    of_python = error.type in _OF_PYTHON
    return _says(error, _COLLATERAL) or (
        _says(error, _CONNECTION) and may_be_of_a_rank(error.frames, of_python)
    )


def _tells_of_a_connection(error: RankError) -> bool:
    return _says(error, _COLLATERAL) or _says(error, _CONNECTION)


def _says(error: RankError, pattern: re.Pattern[str]) -> bool:
    return error.kind == "exception" and bool(pattern.search(f"{error.type}: {error.message}"))


def _of_rank(
    folder: RunFolder, attempt: int, rank: RankState, asked: set[int], *, alone: bool
) -> RankError | None:
    """Return the failure of a rank, or None.

    Args:
        asked: the function adds the rank here if it raised after a request to end.
        alone: a lost rank was lost by itself, and not with the whole run.
    """
    stopped = rank.state is State.STOPPED
    common: dict[str, Any] = {
        "rank": rank.rank,
        "exit_code": rank.exit_code,
        "signal": rank.signal,
        "peak_memory_bytes": rank.peak_memory_bytes,
        "host": rank.host,
        "collateral": stopped,
    }
    written = _error_file(folder, attempt, rank.rank)
    if written is not None:
        if written.pop("asked_to_end"):
            asked.add(rank.rank)
        if written["type"] != "SystemExit":
            return RankError(kind="exception", **{**common, **written})
        if rank.state is State.FAILED:
            if not written["message"]:
                written |= {"type": "", "message": f"exit code {rank.exit_code}"}
            return RankError(kind="exit", **{**common, **written})
    when = rank.ended or 0.0
    if rank.state is State.LOST and alone:
        message = f"nothing more was heard of it on host {rank.host}"
        return RankError(time=when, kind="lost", type="", message=message, **common)
    if rank.state is not State.FAILED:
        return None
    if rank.signal is not None:
        message = f"ended by signal {rank.signal}"
        text, where = stacks.of_crash(folder, folder.rank(attempt, rank.rank).output)
        frames = tuple(map(asdict, where))
        return RankError(
            time=when, kind="signal", type="", message=message, text=text, frames=frames, **common
        )
    return RankError(time=when, kind="exit", type="", message=f"exit code {rank.exit_code}", **common)


def _error_file(folder: RunFolder, attempt: int, rank: int) -> dict[str, Any] | None:
    try:
        data = json.loads(folder.rank(attempt, rank).error.read_bytes())
        found = {
            "time": float(data["time"]),
            "type": str(data["type"]),
            "message": str(data["message"]),
            "text": str(data["text"]),
            "frames": tuple(data.get("frames", ())),
            "asked_to_end": data.get("asked_to_end") is True,
            "around": dict(data.get("around", {})),
        }
        if isinstance(data.get("exit_code"), int):
            found["exit_code"] = data["exit_code"]
        return found
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # no error, or a torn file: the exit code still shows that the rank failed
