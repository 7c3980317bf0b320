"""The owners of the logs in a job's run history. Pure.

The service has a file for each process (PyTorch, MPI) or for each task (TensorFlow). A job without a
distribution has one file. Older jobs had the files of the second pattern.
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
    """A rank, or another process by its name, such as mpirun."""

    of: int | str
    turn: int = 0
    """Index of the file.

    A job that the service has restarted has further files, which continue the earlier ones.
    """
    old: bool = False


def speaker(name: str, workers: int) -> Speaker | None:
    """Return the writer of the log with that name. None: the service itself writes it.

    `workers`: their number beside parameter servers, whose ranks follow the workers'.
    """
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
    """Return the logs of each speaker with their turns, in the order in which they form one log."""
    known = [(found, name) for name in names if (found := speaker(name, workers)) is not None]
    if any(isinstance(found.of, int) and not found.old for found, _ in known):
        known = [(found, name) for found, name in known if not found.old]
    logs: dict[int | str, list[tuple[int, str]]] = {}
    for found, name in sorted(known, key=lambda each: (each[0].turn, each[1])):
        logs.setdefault(found.of, []).append((found.turn, name))
    return logs


def ranks_asked_for(about: Mapping[str, Any]) -> int:
    """Return the number of a job's processes, from the properties of its resource."""
    spread = about.get("distribution") or {}
    kind = str(spread.get("distributionType") or "").lower()
    if kind == "tensorflow":
        return workers_of(about) + int(spread.get("parameterServerCount") or 0)
    if kind in ("pytorch", "mpi"):
        count = int((about.get("resources") or {}).get("instanceCount") or 1)
        return count * int(spread.get("processCountPerInstance") or 1)
    return 1


def workers_of(about: Mapping[str, Any]) -> int:
    """Return how many of the processes are TensorFlow's workers, if the job has such roles."""
    return int((about.get("distribution") or {}).get("workerCount") or 1)
