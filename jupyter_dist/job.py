"""Frozen data of a run: job, status and poll. They are JSON on disk."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "Job",
    "Poll",
    "RankState",
    "Stall",
    "State",
    "Status",
    "Supervisor",
    "Verdict",
    "Wait",
    "rank_count",
]


class State(str, enum.Enum):
    """State of a run or a rank."""

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
    """Description of a run. It is written once as `job.json`, without values of environment variables.

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
    """Path of the notebook, if the front-end sends it."""
    label: str = ""
    """Name of the cell in tracebacks, such as `In[7]`."""
    line: str | None = None
    """For a cell: the flags of `%%distribute` as the user typed them, without possible secrets."""
    parameters: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """The small values that the cell uses (capture/parameters.py)."""
    cluster: str | None = None
    """The saved cluster on which the run was started."""
    options: Mapping[str, Any] = field(default_factory=dict)
    env_names: tuple[str, ...] = ()
    """Names of the --env variables. Their values are only in processes' environments, never on disk."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Metric name → regular expression over the log with one group."""
    max_restarts: int = 0
    timeout_s: float | None = None
    stop_grace_s: float | None = None
    """Seconds from a request to end to SIGKILL; None: the backend's default, or more for ranks that save."""
    stall_timeout_s: float | None = 300.0
    payload_bytes: int = 0
    kept_displays: str = "first"
    """Which ranks' displays are saved in the notebook: `first`, `all` or `none`."""
    notes: tuple[str, ...] = ()
    purpose: Mapping[str, Any] | None = None
    """For a run that jupyter-dist has started for itself: what it does, as JSON. None for a user's cell."""
    tuning: Mapping[str, Any] | None = None
    """For a tuning run: its search (search/spec.py), and under `trial` the job of each trial.

    A tuning run has no ranks of its own.
    """
    trial: Mapping[str, Any] | None = None
    """For a trial: `of` (the tuning run's id), `number` (from 0), `parameters`, and two more keys.

    `parallel`: how many trials run at once. `handle`: present if a service started the trial by itself.
    """

    session: Mapping[str, Any] | None = None
    """For a cell of a session: the session's `name`, and how the cell uses it.

    `ranks`: the ranks that run the cell, or None for all. `restart`: what replaces a rank that has ended:
    `never`, `rank` or `all`. `idle_timeout_s`: of the session, as its first cell says.
    """

    @property
    def at_once(self) -> int:
        """Return how many runs share a machine: the parallel trials of a tuning run, else 1."""
        return 1 if self.trial is None else int(self.trial.get("parallel", 1))

    @property
    def where(self) -> str:
        """Return the backend of the ranks. For a tuning run this is the backend of its trials."""
        return self.backend if self.tuning is None else str(self.tuning["trial"]["backend"])

    @property
    def params(self) -> dict[str, Any]:
        """Return the parameters that distinguish runs of the same code, including those of a trial."""
        return {**self.parameters, **({} if self.trial is None else self.trial.get("parameters", {}))}

    def to_json(self) -> dict[str, Any]:
        return vars(self).copy()  # every value is JSON already, and `asdict` would copy each of them

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Job:
        kept = {k: v for k, v in data.items() if k in _OF_JOB}
        for name in ("env_names", "notes"):
            kept[name] = tuple(kept.get(name, ()))
        return cls(**kept)


@dataclass(frozen=True)
class RankState:
    """One rank of the current attempt.

    `state` is FAILED if the rank failed by itself. It is STOPPED if the supervisor ended the rank, because of
    a stop or another rank's failure.
    """

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
    def all(cls, world_size: int, state: State = State.PENDING) -> tuple[RankState, ...]:
        """Return every rank of a run, all in the same state."""
        return tuple(cls(rank, state) for rank in range(world_size))

    def over(self, state: State, when: float) -> RankState:
        """Return the rank with this end, unless it has ended before. `when`: seconds since the epoch."""
        return self if self.state.ended else dataclasses.replace(self, state=state, ended=when)

    @staticmethod
    def overall(ranks: Sequence[RankState]) -> State:
        """Return the state of an attempt with these ranks."""
        states = {rank.state for rank in ranks}
        if State.RUNNING in states or State.PENDING in states:
            return State.RUNNING
        if states == {State.SUCCEEDED}:
            return State.SUCCEEDED
        return State.FAILED if State.FAILED in states or State.LOST in states else State.STOPPED

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RankState:
        kept = {k: v for k, v in data.items() if k in cls.__dataclass_fields__}
        kept["state"] = State(kept.get("state", "pending"))
        return cls(**kept)


@dataclass(frozen=True)
class Supervisor:
    """The supervisor's process, with which a reader checks whether the supervisor still runs."""

    pid: int
    start_ticks: int
    """Field 22 of /proc/PID/stat. It distinguishes the supervisor from a later process with the same pid."""
    host: str
    boot_id: str


@dataclass(frozen=True)
class Stall:
    """A silence of all ranks: no rank has printed or logged since `since`. Times are seconds since the epoch.

    The supervisor noticed the silence at `noticed`, and then asked the ranks for their stacks. The run
    continues. A rank's next line or metric ends the stall.
    """

    since: float
    noticed: float


@dataclass(frozen=True)
class Wait:
    """A rank that waits for its user, since when by the clock of the driver."""

    rank: int
    why: str
    """`breakpoint`, `error` (with --pdb) or `input`."""
    place: str
    """Where, as in `In[4], line 14` or `train.py:14`."""
    text: str
    """The error, or the prompt of `input()`."""
    since: float


@dataclass(frozen=True)
class Verdict:
    """Outcome of a run, before its final state can be written."""

    state: State
    reason: str | None
    keeps_handle: bool = False
    """Whether the handle stays in the final state, so that a user can find the backend's resources."""


@dataclass(frozen=True)
class Status:
    """Status of a run, in `state.json`. Only the supervisor writes it."""

    id: str
    state: State
    attempt: int = 0
    created: float = 0.0
    started: float | None = None
    ended: float | None = None
    heartbeat: float = 0.0
    warm: bool = False
    reason: str | None = None
    """One line for the user: why the run failed, stopped, was restarted, or counts as lost."""
    stall: Stall | None = None
    waits: tuple[Wait, ...] = ()
    """The ranks that wait for their user. Time limits stand still meanwhile."""
    held_s: float = 0.0
    """How long ranks have waited for their user so far, which no time limit counts."""
    supervisor: Supervisor | None = None
    ranks: tuple[RankState, ...] = ()
    oom_killer: bool = False
    """Whether the kernel's out-of-memory killer ran on this machine during the run."""
    handle: Mapping[str, Any] | None = None
    """Handle with which a new supervisor finds the ranks, if they continue without a supervisor."""
    cursor: Any = None
    """Position up to which the backend has read the ranks' output, also for a new supervisor."""
    carrier: tuple[int, int] | None = None
    """Pid and start time (ticks) of the backend process, if there is one.

    A new supervisor must end this process before it searches for a submission.
    """
    port_retries: int = 0
    """Number of attempts that were made because another process used a port before the cell began.

    --max-restarts does not count these attempts.
    """
    restarts: int = 0
    """Number of restarts that count for --max-restarts."""
    submitting: float | None = None
    """Since when the current attempt is being submitted, if its ranks would continue without a supervisor.

    If this is set and there is no handle, the attempt may run: the backend's `find` searches for it.
    """

    told: str | None = None
    """For a run that has ended: one line of the backend for the user, such as the billed time."""

    verdict: Verdict | None = None
    """Outcome of a run that must still release its hosts.

    Released hosts cannot report the outcome again, so a new supervisor reads it here.
    """

    def to_json(self) -> dict[str, Any]:
        # `asdict` copies each value, which is slow for thousands of ranks.
        told = {name: _plain(value) for name, value in vars(self).items() if name != "ranks"}
        told["waits"] = [_plain(wait) for wait in self.waits]
        # The ranks are the last key, because record/stored_status.py compares the end of the file.
        return {**told, "ranks": [vars(rank) for rank in self.ranks]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], ranks: tuple[RankState, ...] | None = None) -> Status:
        """Return the status. `ranks`: the ranks of `data`, if the caller has parsed them."""
        kept = {k: v for k, v in data.items() if k in _OF_STATUS}
        kept["state"] = State(kept["state"])
        kept["ranks"] = tuple(map(RankState.from_json, kept.get("ranks", ()))) if ranks is None else ranks
        if kept.get("carrier"):
            kept["carrier"] = tuple(kept["carrier"])
        if kept.get("supervisor"):
            kept["supervisor"] = Supervisor(**kept["supervisor"])
        if kept.get("stall"):
            kept["stall"] = Stall(**kept["stall"])
        kept["waits"] = tuple(Wait(**wait) for wait in kept.get("waits", ()))
        if kept.get("verdict"):
            kept["verdict"] = Verdict(**{**kept["verdict"], "state": State(kept["verdict"]["state"])})
        return cls(**kept)


_OF_JOB = frozenset(one.name for one in dataclasses.fields(Job))
_OF_STATUS = frozenset(one.name for one in dataclasses.fields(Status))


def _plain(value: Any) -> Any:
    """Return a part of a status as JSON."""
    is_object = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return dataclasses.asdict(value) if is_object else value


def rank_count(job: Job, status: Status) -> int:
    """Return the number of ranks to show. An elastic run may have more ranks than requested."""
    return max(job.world_size, len(status.ranks))


@dataclass(frozen=True)
class Poll:
    """Result of a backend's `poll`.

    `ranks` has every rank in order. In an elastic run they may be more than `world_size`.
    While `state` is PENDING, the run is pending too. `detail` names what it waits for: a queue, an image,
    an upload. --timeout and the check for silence have not begun then.

    `chunks` and `cursor` are for backends that transfer only text. They are empty if the ranks write their
    own files."""

    state: State
    ranks: tuple[RankState, ...] = ()
    pids: tuple[int, ...] = ()
    """The process groups on this machine that the guard kills if the supervisor dies."""
    attempt: int | None = None
    """The newest attempt, if the launcher itself restarts its ranks."""
    replaces: bool = False
    """Whether the launcher replaces a failed rank or restarts all ranks. If not, the supervisor ends the
    attempt after a failure."""
    final: bool = False
    """With FAILED: another attempt would fail too, for example because a host lacks the right Python.
    With STOPPED: somebody has stopped the run in the service, not with jupyter-dist."""
    chunks: tuple[Mapping[str, Any], ...] = ()
    cursor: Any = None
    detail: str | None = None
    """One line for the user: what delays the run now.

    With a final state, this is the reason, if no rank reports one."""

    @property
    def has_begun(self) -> bool:
        """Return whether ranks run or have run. A job that was cancelled in its queue has not begun."""
        if self.state.ended:
            return any(rank.started is not None or rank.state is not State.STOPPED for rank in self.ranks)
        return self.state is State.RUNNING

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Poll:
        ranks = tuple(RankState.from_json(rank) for rank in data.get("ranks", ()))
        lists = {name: tuple(data.get(name, ())) for name in ("pids", "chunks")}
        return cls(**{**data, **lists, "ranks": ranks, "state": State(data["state"])})
