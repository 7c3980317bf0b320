"""Answers about runs: list, info, labels, surroundings, tuning, changes.

Times are seconds since the epoch, by the clock of the machine that answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

from .logs import LogChange, LogPage
from .media import Displays, DisplaysChange, KeptMedia
from .metrics import Curves, CurvesChange, StepProfile, UsageChange
from .ranks import FailureCard, Progress, RankError, RankProgress, Result, Stacks
from .sessions import SessionInfo

if TYPE_CHECKING:
    from typing_extensions import NotRequired

__all__ = [
    "About",
    "Cleaned",
    "DiskSize",
    "Environment",
    "GitState",
    "Gone",
    "Parameter",
    "RankInfo",
    "Removed",
    "RunChanged",
    "RunFile",
    "RunInfo",
    "RunList",
    "RunSummary",
    "RunsChange",
    "SavedOutput",
    "Scaling",
    "ScalingLaw",
    "ScalingRow",
    "Snapshot",
    "Stall",
    "Stopped",
    "ToldApart",
    "TrialInfo",
    "TrialOf",
    "TrialSource",
    "Tuning",
]


StateName = str
"""One of the values of `job.State`."""


class ToldApart(TypedDict):
    """What tells a run from others of the same notebook."""

    named: NotRequired[bool]
    """Somebody has given it its name; else it is called by its cell."""
    tags: NotRequired[list[str]]
    note: NotRequired[str]
    parameters: NotRequired[dict[str, bool | float | str]]
    """The small values that its cell uses; of a trial, with what it tries."""
    final: NotRequired[dict[str, float]]
    """By metric: the mean of all ranks at the last step that all have reached."""
    extremes: NotRequired[dict[str, list[float]]]
    """By metric: the lowest and the highest value of all ranks and steps."""


class Stall(TypedDict):
    """No rank prints or logs any more."""

    since: float
    noticed: float


class RankInfo(TypedDict):
    """How one rank of the current attempt stands."""

    rank: int
    state: StateName
    pid: int | None
    host: str | None
    local_rank: int
    exit_code: int | None
    signal_name: str | None
    started: float | None
    ended: float | None
    peak_memory_bytes: int | None


class RunSummary(ToldApart):
    """One run as lists show it. Times are by the clock of `host_time`."""

    id: str
    name: str
    backend: str
    world_size: int
    state: StateName
    attempt: int
    created: float
    started: float | None
    ended: float | None
    reason: str | None
    notebook: str | None
    label: str
    cluster: NotRequired[str | None]
    """The saved cluster that was chosen for it."""
    warm: bool
    stall: Stall | None
    waiting: NotRequired[list[int]]
    """The ranks that wait for their user, in a debugger or in `input()`. Missing if none waits."""
    progress: Progress | None
    """That of the slowest rank."""
    host_time: float
    """What the other side's clock said when it answered."""
    max_restarts: int
    path: str
    """The folder that holds the run's logs."""


class RunFile(TypedDict):
    """A file for the user, such as a timeline of a launcher or a trace, to be downloaded."""

    name: str
    bytes: int


class RunInfo(RunSummary):
    """All there is to say about a run but its logs, metrics and results."""

    ranks: list[RankInfo]
    progress_by_rank: list[RankProgress]
    notes: list[str]
    source: str
    attempts: NotRequired[list[int]]
    launchers: NotRequired[list[str]]
    """The launchers that have a log: `launcher`, or `launcher-HOST` for each host."""
    tuning: NotRequired[Tuning]
    """Of a tuning run, which has no ranks."""
    trial: NotRequired[TrialOf]
    """Of a trial."""
    files: NotRequired[list[RunFile]]
    line: NotRequired[str | None]
    """The flags that its cell was started with, as they were typed, without what may be secret; null where
    no cell was run but a function or a script."""


class RunList(TypedDict):
    """A page of the list of runs, newest first."""

    runs: list[RunSummary]
    total: int
    """How many runs fit, on this page or another."""
    notebooks: list[str]
    """The notebooks of all runs, whatever was asked for."""
    root: str
    """The folder that the server reads."""
    host: NotRequired[str]
    """The machine whose clock and folders are meant."""
    hint: str | None
    """Where runs are looked for, when there are none at all."""
    sessions: list[SessionInfo]


class DiskSize(TypedDict):
    """What a run takes on the disk."""

    id: str
    bytes: int


class Stopped(TypedDict):
    """The state of a run just after it was asked to end."""

    id: str
    state: StateName


class Removed(TypedDict):
    """A run that is no more."""

    id: str
    freed_bytes: int


class Cleaned(TypedDict):
    """The runs that were removed because they are old."""

    removed: list[str]
    freed_bytes: int
    skipped: NotRequired[bool]
    """Nothing was done: it was done a short while ago, for this page or another."""


class SavedOutput(TypedDict):
    """What a saved notebook shows of a run."""

    id: str
    ended: bool
    """Whether it stays as it is."""
    html: str
    text: str


class RunChanged(TypedDict):
    """How a run stands has changed."""

    kind: Literal["run"]
    run: RunInfo


class Gone(TypedDict):
    """A run was removed."""

    kind: Literal["gone"]
    id: str


class RunsChange(TypedDict):
    """The list of runs has changed."""

    kind: Literal["runs"]


Change = RunChanged | LogChange | CurvesChange | DisplaysChange | UsageChange | Gone | RunsChange
"""What a watch tells."""


class Snapshot(TypedDict):
    """A run in one value of bounded size, for where nobody can be asked."""

    final: bool
    """The run has ended, and nothing more will come."""
    told: NotRequired[bool]
    """It was made while the kernel could not be asked."""
    run: RunInfo
    log: LogPage
    """The last lines of all ranks."""
    totals: dict[str, int]
    """How many lines each rank has."""
    curves: Curves
    profile: NotRequired[StepProfile]
    """Of a run whose ranks have recorded steps."""
    errors: list[RankError]
    card: NotRequired[FailureCard]
    """Of a run that failed or was stopped."""
    results: list[Result]
    stacks: NotRequired[Stacks]
    """Those that were taken while it ran."""
    displays: NotRequired[Displays]
    """What the ranks show, of a run that has ended: with its bytes, as far as there is room."""
    media: NotRequired[KeptMedia]
    """In the same way the last that they have logged besides numbers."""


class About(TypedDict):
    """What people say of a run."""

    id: str
    name: str
    tags: list[str]
    note: str


class GitState(TypedDict):
    """The commit that a run's notebook was at."""

    commit: str
    branch: str | None
    dirty: bool | None
    """Whether files that git knows had been changed; null where git has not said it."""
    changed: list[str]


class Environment(TypedDict):
    """What a run was started with; empty where nobody wrote it down."""

    python: NotRequired[str]
    platform: NotRequired[str]
    used: NotRequired[list[str]]
    """The installed modules that its code imports."""
    packages: NotRequired[dict[str, str]]
    git: NotRequired[GitState | None]


class Parameter(TypedDict):
    """One dimension of what a tuning run tries."""

    name: str
    kind: Literal["real", "whole", "choice"]
    low: float | None
    """null for a choice."""
    high: float | None
    log: bool
    values: list[Any]
    """What there is to choose from; empty for a range."""


class TrialSource(TypedDict):
    """The checkpoint from which a trial continues."""

    trial: int
    values: int
    """The number of values of the objective until then."""


class TrialInfo(TypedDict):
    """One trial of a tuning run, which is a run of its own."""

    number: int
    id: str
    """Of its run."""
    state: str
    """running, succeeded, pruned, failed or stopped."""
    value: float | None
    """Of the objective; there only where the trial has succeeded."""
    parameters: dict[str, Any]
    reason: str | None
    started: float
    ended: float | None
    source: NotRequired[TrialSource]
    """Of a trial that continues from another one."""


class ScalingRow(TypedDict):
    """One number of ranks, measured or projected."""

    id: str | None
    """The run that was measured; null for a projection."""
    ranks: int
    throughput: float
    speedup: float
    """Against the smallest size."""
    efficiency: float
    low: float
    high: float
    """The range of the efficiency: of eight of ten steps, or what two laws say."""
    limit: str
    """data, compute, communication, straggler or unknown; empty for a projection."""
    why: str
    projected: bool
    usd_per_hour: float | None
    """The list price, if the backend knows it."""
    usd_per_million: float | None
    """The price of a million samples or steps."""


class ScalingLaw(TypedDict):
    """A law that was fitted to the measured sizes."""

    name: str
    serial: float
    """The part of the work that more ranks do not speed up."""
    error: float | None
    """The mean relative error; null if two sizes fit exactly."""


class Scaling(TypedDict):
    """How a cell scales, so far."""

    unit: Literal["samples/s", "steps/s"]
    rows: list[ScalingRow]
    laws: list[ScalingLaw]
    best: str | None
    """The law that the projection follows."""


class Tuning(TypedDict):
    """What a tuning run looks for, and what it has tried."""

    metric: str
    goal: Literal["max", "min"]
    strategy: str
    max_jobs: int
    parallel: int
    parameters: list[Parameter]
    trials: list[TrialInfo]
    best: int | None
    """The number of the best trial so far."""
    scaling: NotRequired[Scaling]
    """Of a run with --scaling, whose trials are numbers of ranks."""
    importance: dict[str, float]
    """How much of the differences between trials each parameter explains; empty while nobody can tell."""


class TrialOf(TypedDict):
    """What a run is that is a trial."""

    of: str
    """The tuning run's id."""
    number: int
    parameters: dict[str, Any]
