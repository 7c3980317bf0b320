"""Make run folders by hand, as a supervisor and its ranks would leave them at some moment."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jupyter_dist import folder
from jupyter_dist.folder import RankFolder, RunFolder
from jupyter_dist.job import Job, RankState, State, Status, Supervisor
from jupyter_dist.record import reader
from jupyter_dist.worker.output import time_index

__all__ = ["RunMaker"]

BEGAN = 1_700_000_000.0


class RunMaker:
    """A run of `world_size` ranks whose supervisor is this process: it runs until `end` is called."""

    def __init__(
        self, root: Path, world_size: int = 2, *, began: float = BEGAN, run_id: str = "", **job: Any
    ) -> None:
        self.folder = folder.create(root, run_id or folder.new_id(), world_size)
        self.world_size = world_size
        self.job = Job(
            id=self.folder.id,
            backend="local",
            world_size=world_size,
            created=began,
            cwd=str(root),
            python="/usr/bin/python3",
            source="train()",
            **job,
        )
        folder.write_json(self.folder.job, self.job.to_json())
        ranks = [
            RankState(rank, State.RUNNING, pid=1000 + rank, host="node1", started=began)
            for rank in range(world_size)
        ]
        own = Supervisor(
            os.getpid(), reader.start_ticks(os.getpid()) or 0, socket.gethostname(), reader.boot_id()
        )
        self.status = Status(
            id=self.folder.id,
            state=State.RUNNING,
            created=began,
            started=began,
            heartbeat=time.time(),
            supervisor=own,
            ranks=tuple(ranks),
        )
        self._seq = 0
        self.write()

    def rank(self, rank: int) -> RankFolder:
        return self.folder.rank(self.status.attempt, rank)

    def write(self, **changes: Any) -> None:
        """Replace parts of the status."""
        self.status = dataclasses.replace(self.status, **changes)
        folder.write_json(self.folder.state, self.status.to_json())

    def set_rank(self, rank: int, **changes: Any) -> None:
        ranks = list(self.status.ranks)
        ranks[rank] = dataclasses.replace(ranks[rank], **changes)
        self.write(ranks=tuple(ranks))

    def end(self, state: State = State.SUCCEEDED, *, after_s: float = 12.3, **changes: Any) -> RunFolder:
        """End the run; ranks that have not ended yet end like it."""
        ended = self.status.created + after_s
        code = 0 if state is State.SUCCEEDED else None
        ranks = tuple(
            r if r.state.ended else dataclasses.replace(r, state=state, exit_code=code, ended=ended)
            for r in self.status.ranks
        )
        self.write(state=state, ended=ended, **{"ranks": ranks, **changes})
        return self.folder

    def print(self, rank: int, text: str | bytes, when: float | None = None) -> None:
        data = text.encode() if isinstance(text, str) else text
        place = self.rank(rank)
        with place.output.open("ab") as file:
            file.write(data)
        if when is not None:
            with place.times.open("ab") as file:
                file.write(time_index.RECORD.pack(place.output.stat().st_size, when))

    def event(self, rank: int, kind: str, when: float | None = None, **data: Any) -> None:
        self._seq += 1
        event = {"seq": self._seq, "time": when or time.time(), "kind": kind, **data}
        with self.rank(rank).events.open("ab") as file:
            file.write(json.dumps(event).encode() + b"\n")

    def metric(self, rank: int, step: int | None, values: Mapping[str, float | str]) -> None:
        self.event(rank, "metric", BEGAN + (step or 0), step=step, values=dict(values))

    def result(self, rank: int, value: Any, error: str | None = None) -> None:
        """A result as the worker keeps it; with `error` one that could not be pickled."""
        from jupyter_dist.worker import payload

        size = None if error else payload.write_value(self.rank(rank).result, value)
        self.event(rank, "result", repr=repr(value), bytes=size, error=error)

    def fail(self, rank: int, kind: str, message: str, text: str, when: float = BEGAN, **more: Any) -> None:
        """A rank that raised, as the worker writes it down."""
        data = {"rank": rank, "time": when, "type": kind, "message": message, "text": text, "exit_code": 1}
        folder.write_json(self.rank(rank).error, {**data, "frames": [], **more})
        self.set_rank(rank, state=State.FAILED, exit_code=1, ended=when)

    def next_attempt(self, reason: str = "rank 1 failed") -> None:
        attempt = self.status.attempt + 1
        folder.make_attempt(self.folder, attempt, self.world_size)
        ranks: Sequence[RankState] = [
            RankState(rank, State.RUNNING, pid=2000 + rank, host="node1", started=BEGAN)
            for rank in range(self.world_size)
        ]
        self.write(attempt=attempt, reason=reason, ranks=tuple(ranks))
