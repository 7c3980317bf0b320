"""Whose log it is that a job's run history names. Pure.

The service has a file for each process (PyTorch, MPI) or each task (TensorFlow), or one for a job without a
distribution. Jobs of the years before had the files of the second pattern.
https://learn.microsoft.com/azure/machine-learning/how-to-log-view-metrics#view-and-download-log-files-for-a-job
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Speaker", "logs_of", "ranks_asked_for", "speaker", "workers_of"]

_NEW = re.compile(
    r"user_logs/(?:retry_(\d+)/)?std_log(?:_(?:process|node)_(\d+))?(?:_(worker|ps|chief|master))?\.txt"
)
_OLD = re.compile(r"azureml-logs/()70_driver_log(?:[_-](?:(worker|ps)-)?(\d+))?\.txt")
_OF_NOBODY = re.compile(r"(?:user_logs/(?:retry_(\d+)/)?(mpi_log)|azureml-logs/()20_(image_build)_log)\.txt")
_MOST_RANKS = 10_000


@dataclass(frozen=True)
class Speaker:
    """A rank; or what is none, such as mpirun, by its name."""

    of: int | str
    turn: int = 0
    """A job that the service has started again has further files, which go on where these end."""
    old: bool = False


def speaker(name: str, workers: int) -> Speaker | None:
    """Who prints into the log of that name; None for what the service itself writes. `workers`: how many
    there are beside parameter servers, which have the ranks behind them."""
    if found := _NEW.fullmatch(name):
        turn, number, role = found.groups()
        old = False
    elif found := _OLD.fullmatch(name):
        turn, role, number = found.groups()
        old = True
    elif found := _OF_NOBODY.fullmatch(name):
        return Speaker((found[2] or found[4]).replace("_", "-"), _turn(found[1]))
    else:
        return None
    rank = int(number or 0) + (workers if role == "ps" else 0)
    return Speaker(rank, _turn(turn), old) if rank < _MOST_RANKS else None


def _turn(text: str | None) -> int:
    return int(text) + 1 if text else 0


def logs_of(names: Iterable[str], workers: int) -> dict[int | str, list[tuple[int, str]]]:
    """The logs of each who speaks, each with its turn, in the order in which they are one log."""
    known = [(found, name) for name in names if (found := speaker(name, workers)) is not None]
    if any(isinstance(found.of, int) and not found.old for found, _ in known):
        known = [(found, name) for found, name in known if not found.old]
    logs: dict[int | str, list[tuple[int, str]]] = {}
    for found, name in sorted(known, key=lambda each: (each[0].turn, each[1])):
        logs.setdefault(found.of, []).append((found.turn, name))
    return logs


def ranks_asked_for(about: Mapping[str, Any]) -> int:
    """How many processes a job has, of the properties of its resource."""
    spread = about.get("distribution") or {}
    kind = str(spread.get("distributionType") or "").lower()
    if kind == "tensorflow":
        return workers_of(about) + int(spread.get("parameterServerCount") or 0)
    if kind in ("pytorch", "mpi"):
        count = int((about.get("resources") or {}).get("instanceCount") or 1)
        return count * int(spread.get("processCountPerInstance") or 1)
    return 1


def workers_of(about: Mapping[str, Any]) -> int:
    """How many of them are TensorFlow's workers, where they have such roles."""
    return int((about.get("distribution") or {}).get("workerCount") or 1)
