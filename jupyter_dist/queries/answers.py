"""The shapes of the answers about runs that a view gets. Beside it: about_answers.py, what tells runs apart;
failure_answers.py, why one failed and where its ranks are; form_answers.py, backends and clusters;
media_answers.py, what ranks show besides text; said_answers.py, how far ranks are and their results;
tuning_answers.py, what a tuning run has tried; usage_answers.py, what ranks take of their hosts.

These modules tell them, and nothing else does: `tools/answers.py` writes from them the schemas in
server/openapi.json and the TypeScript types in labextension/src/answers.ts, and a test says when those are
old. A class is an object; the text below a field says what the field means. `NotRequired` is what an answer
may lack, or what notebooks lack that were saved before the field was there.

Times are seconds since the epoch, by the clock of the machine that answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

from .about_answers import ToldApart
from .failure_answers import RankError, Stacks
from .media_answers import Displays, DisplaysChange, KeptMedia
from .said_answers import Progress, RankProgress, Result
from .tuning_answers import TrialOf, Tuning
from .usage_answers import UsageChange

if TYPE_CHECKING:
    from typing_extensions import NotRequired

__all__ = [
    *("Band", "Cleaned", "Curve", "Curves", "CurvesChange", "CurvesUnchanged", "DiskSize"),
    *("Gone", "LogChange", "LogLine", "LogPage", "LogTail", "PartialLine", "RankCurve"),
    *("RankInfo", "Removed", "RunChanged", "RunFile", "RunInfo", "RunList"),
    *("RunSummary", "RunsChange", "SearchResult", "Snapshot", "SpecialValue"),
    *("SavedOutput", "Stall", "Stopped"),
]

StateName = str
"""One of the values of `job.State`."""


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


class LogTail(TypedDict):
    """What is new among the last lines of a log that a page reads along."""

    rank: int | None
    """Null for the log of all ranks, and for that of a launcher."""
    launcher: str | None
    page: LogPage


class LogChange(TypedDict):
    """A log has grown; `ranks`, `launchers` and `all` are numbers of lines."""

    kind: Literal["log"]
    id: str
    attempt: NotRequired[int]
    ranks: dict[str, int]
    launchers: NotRequired[dict[str, int]]
    all: int
    complete: NotRequired[bool]
    tails: NotRequired[list[LogTail]]
    """Of the logs that the page reads along; what is left out has to be asked for."""
    push: NotRequired[int]
    """Comes with `tails`: the page says when it has got this one."""


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
    errors: list[RankError]
    results: list[Result]
    stacks: NotRequired[Stacks]
    """Those that were taken while it ran."""
    displays: NotRequired[Displays]
    """What the ranks show, of a run that has ended: with its bytes, as far as there is room."""
    media: NotRequired[KeptMedia]
    """In the same way the last that they have logged besides numbers."""
