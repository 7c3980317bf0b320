"""The copy of a job's output in a run's folder, from the blobs that its run history names.

The run's details name each log with an address in the workspace's store. The address has a signature that is
valid for some hours, so the details are requested repeatedly. A log's blob only grows at its end. The
position in a log is therefore a number of bytes: nothing is repeated, and nothing is lost. Azure's SDK reads
the same blobs. https://github.com/Azure/azure-sdk-for-python, azure-ai-ml: stream_logs_until_completion
"""

from __future__ import annotations

import email.utils
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import DistError, Unreachable
from ...folder import RunFolder
from ...worker import layout
from ..attached_job import AttachedLog, seconds
from .log_owners import logs_of
from .workspace import MlWorkspace, NotAllowed

__all__ = ["JobLogs"]

_LIST_EVERY_S = 4.0
_TURN_S = 10.0
"""Longest time of one turn in seconds. Long logs need several turns."""
_MOST_TROUBLES = 3
"""Number of errors after which a turn ends. A store that does not answer would fail for every log."""
_TIMES = (5.0, 30.0)
_PIECE = 4 << 20
_AGAIN = 64
"""Bytes before the position that are read again. The log is the same one if these bytes are equal."""
_ANEW = b"\n[jupyter_dist: Azure ML has begun this log anew]\n"


class _Refused(Exception):
    """The store rejects the address. Contains the service's error code."""


@dataclass(frozen=True)
class _Piece:
    data: bytes
    size: int
    """Size of the whole blob at that time."""
    when: float
    """Time of the blob's last change."""


_Get = Callable[[str, int], "_Piece | None"]


class _OneLog:
    """The log of one speaker: one blob, or several in turn. `known`: the `position` of another process."""

    def __init__(self, path: Path, known: Mapping[str, Any]) -> None:
        self._path, self._file = path, AttachedLog(path, int(known.get("size", 0)))
        self._turn, self._at = int(known.get("turn", 0)), int(known.get("at", 0))

    @property
    def position(self) -> dict[str, int]:
        """The position: `size` of our file, `at` in the blob of that `turn`."""
        return {"size": self._file.size, "turn": self._turn, "at": self._at}

    @property
    def began(self) -> bool:
        return self._file.size > 0

    def read(self, logs: Sequence[tuple[int, str]], get: _Get, until: float) -> bool:
        """Read on. Returns whether there is no more for now. Raises what `get` raises."""
        for turn, name in logs:
            if turn > self._turn:
                self._turn, self._at = turn, 0
            while turn == self._turn:
                if self._read_piece(name, get):
                    break
                if time.monotonic() > until:
                    return False
        return True

    def _read_piece(self, name: str, get: _Get) -> bool:
        before = self._before()
        piece = get(name, self._at - len(before))
        if piece is None:
            return True
        if not piece.data.startswith(before):
            self._file.append([(piece.when, _ANEW)])
            self._at = 0
            return False
        new = piece.data[len(before) :]
        if new:
            self._file.append([(piece.when, new)])
            self._at += len(new)
        return self._at >= piece.size

    def _before(self) -> bytes:
        """Return the last bytes that were read, from our file."""
        if not self._at:
            return b""
        with open(self._path, "rb") as file:
            size = min(_AGAIN, self._at)
            return os.pread(file.fileno(), size, self._file.size - size)


class JobLogs:
    """The logs of one job. Not for several threads at once."""

    def __init__(
        self, workspace: MlWorkspace, job: str, folder: RunFolder, workers: int, known: Mapping[str, Any]
    ) -> None:
        """`workers`: as in `speaker`. `known`: the `positions` of another process."""
        import requests

        self._workspace, self._job, self._folder, self._workers = workspace, job, folder, workers
        self._known = dict(known)
        self._http = requests.Session()
        self._addresses: dict[str, str] = {}
        self._logs: dict[int | str, list[tuple[int, str]]] = {}
        self._files: dict[int | str, _OneLog] = {}
        self._listed = -_LIST_EVERY_S
        self.began: float | None = None
        """When the job's processes have begun."""
        self.over: float | None = None
        """When the job has ended."""

    @property
    def ranks(self) -> list[int]:
        """The ranks whose log is not empty, in rising order."""
        return sorted(of for of, file in self._files.items() if isinstance(of, int) and file.began)

    @property
    def positions(self) -> dict[str, Any]:
        """The position in each log, as JSON."""
        return self._known | {str(of): file.position for of, file in self._files.items()}

    def close(self) -> None:
        self._http.close()

    def read(self, *, ended: bool) -> bool:
        """Read the new output. Returns whether there is no more for now. Blocks.

        `ended`: whether the job will print no more. Raises DistError after everything readable was read.
        """
        until = time.monotonic() + _TURN_S
        if ended or time.monotonic() - self._listed >= _LIST_EVERY_S:
            self._list()
        whole, troubles = True, list[DistError]()
        for of, logs in self._logs.items():
            try:
                whole &= self._file(of).read(logs, self._get, until)
            except DistError as error:
                troubles.append(error)
                if len(troubles) == _MOST_TROUBLES:
                    break
        if troubles:
            raise troubles[0]
        return whole

    def _list(self) -> None:
        told = self._workspace.history(f"runs/{self._job}/details", f"read the log of the job {self._job!r}")
        self._listed = time.monotonic()
        self._addresses = dict(told.get("logFiles") or {})
        self._logs = logs_of(self._addresses, self._workers)
        self.began, self.over = seconds(told.get("startTimeUtc")), seconds(told.get("endTimeUtc"))

    def _file(self, of: int | str) -> _OneLog:
        if of not in self._files:
            path = (
                self._folder.rank(0, of).output
                if isinstance(of, int)
                else self._folder.attempt(0) / layout.launcher_log(of)
            )
            self._files[of] = _OneLog(path, self._known.get(str(of), {}))
        return self._files[of]

    def _get(self, name: str, begin: int) -> _Piece | None:
        """Return the blob from that byte on, or None if it does not exist yet.

        Raises Unreachable, and NotAllowed if the store also rejects a new address.
        """
        try:
            return self._ask(name, begin)
        except _Refused:
            self._list()  # its signature has expired
        try:
            return self._ask(name, begin)
        except _Refused as refused:
            raise NotAllowed(
                f"cannot read the log of the job {self._job!r}: the workspace's store refuses it "
                f"({refused}). May this machine reach the store, by the rules of its network?"
            ) from None

    def _ask(self, name: str, begin: int) -> _Piece | None:
        import requests

        asked = {"range": f"bytes={begin}-{begin + _PIECE - 1}", "accept-encoding": "identity"}
        try:
            answer = self._http.get(self._addresses.get(name, ""), headers=asked, timeout=_TIMES)
        except requests.RequestException as error:
            # The error's own text has the address, with the signature.
            raise Unreachable(f"the workspace's store does not answer: {type(error).__name__}") from None
        code = answer.headers.get("x-ms-error-code") or answer.status_code
        if answer.status_code == 403:
            raise _Refused(str(code))
        if answer.status_code == 404:
            return None
        changed = _changed(answer.headers.get("last-modified", ""))
        if answer.status_code == 416:  # the blob has no bytes from there on
            return _Piece(b"", 0, changed)
        if answer.status_code not in (200, 206):
            raise Unreachable(f"the workspace's store cannot return the log now: {code}")
        if answer.status_code == 200:  # the answer is the whole blob, in spite of the range
            return _Piece(answer.content[begin:], len(answer.content), changed)
        size = re.search(r"/(\d+)$", answer.headers.get("content-range", ""))
        found = answer.content
        return _Piece(found, int(size[1]) if size else begin + len(found), changed)


def _changed(stamp: str) -> float:
    """Return the time of a blob's last change: its content was printed by then."""
    try:
        return min(email.utils.parsedate_to_datetime(stamp).timestamp(), time.time())
    except (TypeError, ValueError):
        return time.time()
