"""The copy of a training job's CloudWatch log in a run's folder, with each line in its rank's log.

https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_GetLogEvents.html
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...folder import RunFolder
from ...worker import layout
from ..attached_job import AttachedLog
from ..job_watch import NotThere
from .account import AwsAccount
from .log_owners import Speakers, host_number

__all__ = ["ConsoleLogs"]

_GROUP = "/aws/sagemaker/TrainingJobs"
_TURN_S = 10.0
"""Longest time of one turn in seconds. A long log needs several turns."""
_MOST_RANKS = 10_000


class ConsoleLogs:
    """The log of one job. Not for several threads at once.

    CloudWatch's lines do not change. A new process therefore reads from the beginning, and skips what the
    files already contain. No line is repeated, and none is lost.
    """

    def __init__(self, account: AwsAccount, job: str, folder: RunFolder, speakers: Speakers) -> None:
        self._account, self._job, self._folder, self._speakers = account, job, folder, speakers
        self._tokens: dict[str, str] = {}
        self._files: dict[Path, AttachedLog] = {}
        self.ranks: dict[int, tuple[float, float]] = {}
        """The ranks that have printed something, each with the times of the first and the last line."""

    def read(self) -> bool:
        """Read the new lines. Returns whether there are no more for now. Blocks. Raises DistError."""
        until = time.monotonic() + _TURN_S
        return all(self._read_stream(stream, until) for stream in self._streams())

    def _streams(self) -> list[str]:
        """Return the streams in the order of their hosts.

        Streams of a restarted host are in the order of time.
        """
        found: list[str] = []
        more: dict[str, Any] = {}
        while True:
            try:
                with self._account.asking("look for the job's log", "logs") as logs:
                    told = logs.describe_log_streams(
                        logGroupName=_GROUP, logStreamNamePrefix=f"{self._job}/", **more
                    )
            except NotThere:
                return []  # the log does not exist before the first job has written one
            found += [str(each["logStreamName"]) for each in told["logStreams"]]
            if not told.get("nextToken"):
                known = [name for name in found if host_number(name) is not None]
                return sorted(known, key=lambda name: (host_number(name), len(name), name))
            more = {"nextToken": told["nextToken"]}

    def _read_stream(self, stream: str, until: float) -> bool:
        while True:
            token = self._tokens.get(stream)
            given = {} if token is None else {"nextToken": token}
            with self._account.asking("read the job's log", "logs") as logs:
                told = logs.get_log_events(
                    logGroupName=_GROUP, logStreamName=stream, startFromHead=True, **given
                )
            self._keep(stream, told["events"])
            self._tokens[stream] = told["nextForwardToken"]
            if not told["events"] and told["nextForwardToken"] == token:
                return True
            if time.monotonic() > until:
                return False

    def _keep(self, stream: str, events: list[Mapping[str, Any]]) -> None:
        host = host_number(stream)
        assert host is not None
        pieces: dict[Path, list[tuple[float, bytes]]] = {}
        for event in events:
            when = float(event["timestamp"]) / 1000
            lines = str(event["message"]).split("\n")
            for rank, text in (part for line in lines for part in self._speakers.take_apart(host, line)):
                if rank is not None and rank < _MOST_RANKS:
                    place = self._folder.rank(0, rank).output
                    first, last = self.ranks.get(rank, (when, when))
                    self.ranks[rank] = min(first, when), max(last, when)
                else:
                    place = self._folder.attempt(0) / layout.launcher_log(f"algo-{host + 1}")
                pieces.setdefault(place, []).append((when, text.encode() + b"\n"))
        for place, told in pieces.items():
            self._files.setdefault(place, AttachedLog(place)).append(told)
