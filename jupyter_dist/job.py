"""What a run is made of, as frozen data that is JSON on disk."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Job", "Poll", "RankState", "Stall", "State", "Status", "Supervisor", "Verdict", "rank_count"]


class State(str, enum.Enum):
    """Where a run, or a rank of it, stands."""

    PENDING = "pending"
    RUNNING = "running"
    UNWATCHED = "unwatched"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"

    @property
    def ended(self) -> bool:
        return self not in (State.PENDING, State.RUNNING, State.UNWATCHED)

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Job:
    """What to run. Written once as `job.json`; holds no value of an environment variable.

    `options` is the backend's options model as JSON. Times are seconds since the epoch.
    """

    id: str
    backend: str
    world_size: int
    created: float
    cwd: str
    python: str
    source: str
    """The cell as the user wrote it (for a call: the function's name)."""
    notebook: str | None = None
    """Path of the notebook, where the front-end tells it."""
    label: str = ""
    """How the cell is called in tracebacks, such as `In[7]`."""
    line: str | None = None
    """Of a cell: the flags of `%%distribute` as they were typed, without what may be secret in them."""
    parameters: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """The small values that the cell uses (capture/parameters.py)."""
    cluster: str | None = None
    """The saved cluster that it was started on."""
    options: Mapping[str, Any] = field(default_factory=dict)
    env_names: tuple[str, ...] = ()
    """Names given with --env; the values travel with the process and are never written."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Metric name → regular expression over the log with one group."""
    max_restarts: int = 0
    timeout_s: float | None = None
    stall_timeout_s: float | None = 300.0
    payload_bytes: int = 0
    kept_displays: str = "first"
    """Whose displays a saved notebook holds: `first`, `all` or `none`."""
    notes: tuple[str, ...] = ()
    tuning: Mapping[str, Any] | None = None
    """Of a tuning run, which has no ranks of its own: its search (search/spec.py), and under `trial` the job
    that each of its trials is."""
    trial: Mapping[str, Any] | None = None
    """Of a trial: `of` (the tuning run's id), its `number` there, from 0, its `parameters`, how many run at
    once (`parallel`), and the `handle` of one that a service has started by itself."""

    @property
    def at_once(self) -> int:
        """How many runs like this one share a machine: the trials of a tuning."""
        return 1 if self.trial is None else int(self.trial.get("parallel", 1))

    @property
    def where(self) -> str:
        """The backend that ranks run on: of a tuning run, that of its trials."""
        return self.backend if self.tuning is None else str(self.tuning["trial"]["backend"])

    @property
    def params(self) -> dict[str, Any]:
        """What tells this run from others of the same code: of a trial, with what it tries."""
        return {**self.parameters, **({} if self.trial is None else self.trial.get("parameters", {}))}

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Job:
        known = {f.name for f in dataclasses.fields(cls)}
        kept = {k: v for k, v in data.items() if k in known}
        for name in ("env_names", "notes"):
            kept[name] = tuple(kept.get(name, ()))
        return cls(**kept)


@dataclass(frozen=True)
class RankState:
    """One rank of the current attempt. `state` is FAILED when the rank failed by itself,
    STOPPED when the supervisor ended it (a stop, or another rank's failure)."""

    rank: int
    state: State = State.PENDING
    pid: int | None = None
    host: str | None = None
    local_rank: int = 0
    exit_code: int | None = None
    signal: int | None = None
    started: float | None = None
    ended: float | None = None
    peak_memory_bytes: int | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RankState:
        known = {f.name for f in dataclasses.fields(cls)}
        kept = {k: v for k, v in data.items() if k in known}
        kept["state"] = State(kept.get("state", "pending"))
        return cls(**kept)


@dataclass(frozen=True)
class Supervisor:
    """The supervisor's process, so that a reader can tell whether it still lives."""

    pid: int
    start_ticks: int
    """Field 22 of /proc/PID/stat: tells a reused pid from the supervisor."""
    host: str
    boot_id: str


@dataclass(frozen=True)
class Stall:
    """The run is silent: no rank has printed or logged since `since`, which the supervisor saw at `noticed`.

    The supervisor then asks the ranks for their stacks. The run goes on; a rank's next line or metric ends
    the stall. Both are seconds since the epoch.
    """

    since: float
    noticed: float


@dataclass(frozen=True)
class Verdict:
    """How a run has ended, before its final state can be written."""

    state: State
    reason: str | None
    keeps_handle: bool = False
    """Whether the handle stays in the final state, for somebody to look for what it names."""


@dataclass(frozen=True)
class Status:
    """`state.json`: how a run stands. Only the supervisor writes it."""

    id: str
    state: State
    attempt: int = 0
    created: float = 0.0
    started: float | None = None
    ended: float | None = None
    heartbeat: float = 0.0
    warm: bool = False
    reason: str | None = None
    """One line for the user: why it failed, stopped, was restarted, or counts as lost."""
    stall: Stall | None = None
    supervisor: Supervisor | None = None
    ranks: tuple[RankState, ...] = ()
    oom_killer: bool = False
    """Whether the kernel's out-of-memory killer ran on this machine during the run."""
    handle: Mapping[str, Any] | None = None
    """With which a new supervisor finds the ranks again, where they go on without one."""
    cursor: Any = None
    """Up to where the backend has read what the ranks tell; for a new supervisor as well."""
    carrier: tuple[int, int] | None = None
    """Pid and start of the process that the backend lives in, where it is not the supervisor's. It has to be
    gone before a new supervisor asks what came of a submission."""
    port_retries: int = 0
    """How many attempts were made only because a port was taken before the cell began: nobody asked for
    those, and --max-restarts does not count them."""
    restarts: int = 0
    """How many of --max-restarts are used up."""
    submitting: float | None = None
    """Since when the current attempt is being submitted, where its ranks would go on without a supervisor.
    With it and without a handle, nobody knows whether the attempt runs: the backend's `find` tells."""

    told: str | None = None
    """Of a run that has ended: what it has come to beside its results, such as what is billed for it, in one
    line of the backend's for the user."""

    verdict: Verdict | None = None
    """How the run has ended, where only its hosts are still to be given back. Once they are gone nobody can
    ask them again, so a new supervisor takes it from here."""

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Status:
        known = {f.name for f in dataclasses.fields(cls)}
        kept = {k: v for k, v in data.items() if k in known}
        kept["state"] = State(kept["state"])
        kept["ranks"] = tuple(RankState.from_json(r) for r in kept.get("ranks", ()))
        if kept.get("carrier"):
            kept["carrier"] = tuple(kept["carrier"])
        if kept.get("supervisor"):
            kept["supervisor"] = Supervisor(**kept["supervisor"])
        if kept.get("stall"):
            kept["stall"] = Stall(**kept["stall"])
        if kept.get("verdict"):
            kept["verdict"] = Verdict(**{**kept["verdict"], "state": State(kept["verdict"]["state"])})
        return cls(**kept)


def rank_count(job: Job, status: Status) -> int:
    """How many ranks there are to show: an elastic run may have more than were asked for."""
    return max(job.world_size, len(status.ranks))


@dataclass(frozen=True)
class Poll:
    """What a backend's `poll` saw. `ranks` holds every rank in order, in an elastic run more than
    `world_size` of them. While `state` is PENDING the run is: it waits for what `detail` says (a place in a
    queue, an image, an upload), and --timeout and the watch for silence have not begun.

    `chunks` and `cursor` serve backends where only text travels; a backend whose ranks
    write their own files leaves them empty."""

    state: State
    ranks: tuple[RankState, ...] = ()
    pids: tuple[int, ...] = ()
    """The process groups on this machine that are to be killed if the supervisor dies."""
    attempt: int | None = None
    """The newest attempt, where the launcher starts its ranks again by itself."""
    replaces: bool = False
    """Whether the launcher answers a rank's failure (replaces it, starts all again); if not,
    the supervisor ends the attempt."""
    final: bool = False
    """With FAILED: another attempt would end like this one, such as where a host has not the right Python.
    With STOPPED: somebody has stopped it where it runs, and not here."""
    chunks: tuple[Mapping[str, Any], ...] = ()
    cursor: Any = None
    detail: str | None = None
    """One line for the user: what hinders the run at the moment, or, with a final state, why it came to it
    where no rank tells."""

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Poll:
        ranks = tuple(RankState.from_json(rank) for rank in data.get("ranks", ()))
        lists = {name: tuple(data.get(name, ())) for name in ("pids", "chunks")}
        return cls(**{**data, **lists, "ranks": ranks, "state": State(data["state"])})
