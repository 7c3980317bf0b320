"""The shapes of the answers about runs that a view gets (form_answers.py: about backends and clusters).

These two modules tell them, and nothing else does: `tools/answers.py` writes from them the schemas in
server/openapi.json and the TypeScript types in labextension/src/answers.ts, and a test says when those are
old. A class is an object; the text below a field says what the field means. `NotRequired` is what an answer
may lack, or what notebooks lack that were saved before the field was there.

Times are seconds since the epoch, by the clock of the machine that answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired

__all__ = [
    *("Band", "Cleaned", "Curve", "Curves", "CurvesChange", "CurvesUnchanged", "DiskSize", "Frame"),
    *("Gone", "LogChange", "LogLine", "LogPage", "PartialLine", "Progress", "RankCurve", "RankError"),
    *("RankInfo", "RankProgress", "Removed", "Result", "RunChanged", "RunFile", "RunInfo", "RunList"),
    *("RunSummary", "RunsChange", "SearchResult", "Snapshot", "SpecialValue"),
    *("StackGroup", "Stacks", "Stall", "Stopped"),
]

StateName = str
"""One of the values of `job.State`."""


class Progress(TypedDict):
    """How far a progress bar is."""

    n: float
    total: float | None
    desc: str
    rate: float | None
    """Steps a second; null while unknown."""


class RankProgress(Progress):
    """The bar that a rank shows."""

    rank: int
    id: NotRequired[int]
    """Tells apart the bars of one rank."""


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


class RunSummary(TypedDict):
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
    warm: bool
    stall: Stall | None
    progress: Progress | None
    """That of the slowest rank."""
    host_time: float
    """What the other side's clock said when it answered."""
    max_restarts: int
    path: str
    """The folder that holds the run's logs."""


class RunFile(TypedDict):
    """A file that a launcher wrote for the user, to be downloaded."""

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
    files: NotRequired[list[RunFile]]


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


class PartialLine(TypedDict):
    """The last line of a log, which has no newline yet, such as a progress bar."""

    rank: int | None
    time: float
    text: str
    cut: NotRequired[bool]


class LogLine(TypedDict):
    """One line of a log."""

    n: int
    """Index in this view of the log, from 0."""
    rank: int | None
    """null for a launcher's line."""
    ranks: NotRequired[list[int]]
    """The ranks that wrote this line, folded; only where all ranks are shown."""
    time: float
    text: str
    cut: NotRequired[bool]
    """A part of the line was left out because it is very long."""


class LogPage(TypedDict):
    """Lines of a log, one after the other."""

    attempt: NotRequired[int]
    start: int
    total: int
    settled: NotRequired[int]
    """Rows before this one are final; later ones may still gain `ranks`, nothing else."""
    complete: bool
    """Whether the log grows no more."""
    lines: list[LogLine]
    partial: NotRequired[list[PartialLine]]
    """Where the page reaches the end: the last lines that are not finished, such as progress bars."""


class SearchResult(TypedDict):
    """Which lines of a log hold what was searched for."""

    count: int
    hits: list[int]
    """Line indexes, ascending; fewer than `count` when `truncated`."""
    truncated: bool


class SpecialValue(TypedDict):
    """A value of a metric that is no finite number."""

    step: float
    value: str
    """NaN, Infinity or -Infinity."""


class RankCurve(TypedDict):
    """A metric of one rank, thinned."""

    rank: int
    steps: list[float]
    values: list[float | None]
    """null where the value was not a finite number."""
    times: list[float | None]
    """null where no time is known."""
    count: NotRequired[int]
    """How many values were logged."""
    special: NotRequired[list[SpecialValue]]
    """The first values that were no finite numbers."""


class Band(TypedDict):
    """What the ranks' values lie between, by step."""

    steps: list[float]
    mean: list[float | None]
    min: list[float | None]
    max: list[float | None]


class Curve(TypedDict):
    """One metric."""

    name: str
    ranks: list[RankCurve]
    band: Band | None
    """Where ranks are too many to be told apart."""


class Curves(TypedDict):
    """Metrics to draw."""

    version: NotRequired[str]
    """Names this answer, for the next question."""
    attempt: NotRequired[int]
    names: list[str]
    curves: list[Curve]
    problem: NotRequired[str | None]
    """Why --metric finds no more."""


class CurvesUnchanged(TypedDict):
    """The answer of that version still holds."""

    version: str
    unchanged: Literal[True]


class Frame(TypedDict):
    """One call in a traceback or in a stack."""

    file: NotRequired[str]
    label: str
    line: int | None
    function: str
    source: str


class RankError(TypedDict):
    """How one rank failed."""

    rank: int
    time: NotRequired[float]
    kind: Literal["exception", "exit", "signal", "lost"]
    type: str
    message: str
    text: str
    frames: list[Frame]
    exit_code: int | None
    signal_name: str | None
    peak_memory_bytes: int | None
    collateral: bool
    """Whether it failed because another rank did."""
    host: str | None


class Result(TypedDict):
    """What the result of some ranks looks like."""

    ranks: list[int]
    repr: str
    error: str | None
    bytes: float | None


class StackGroup(TypedDict):
    """Ranks that are at the same place of their code."""

    ranks: list[int]
    frames: list[Frame]


class Stacks(TypedDict):
    """Where the ranks are in their code."""

    groups: list[StackGroup]
    silent: list[int]
    """Ranks that gave no stack."""
    hint: NotRequired[str]
    """Says which ranks are elsewhere than most; empty where none is."""


class RunChanged(TypedDict):
    """How a run stands has changed."""

    kind: Literal["run"]
    run: RunInfo


class LogChange(TypedDict):
    """A log has grown; `ranks`, `launchers` and `all` are numbers of lines."""

    kind: Literal["log"]
    id: str
    attempt: NotRequired[int]
    ranks: dict[str, int]
    launchers: NotRequired[dict[str, int]]
    all: int
    complete: NotRequired[bool]


class CurvesChange(TypedDict):
    """There are new metrics."""

    kind: Literal["curves"]
    id: str


class Gone(TypedDict):
    """A run was removed."""

    kind: Literal["gone"]
    id: str


class RunsChange(TypedDict):
    """The list of runs has changed."""

    kind: Literal["runs"]


Change = RunChanged | LogChange | CurvesChange | Gone | RunsChange
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
    errors: list[RankError]
    results: list[Result]
