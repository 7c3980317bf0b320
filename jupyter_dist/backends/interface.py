"""The contract of every backend: a few blocking calls over JSON, and declarations of its capabilities.

Any of the calls may raise. A transient error is retried, and is shown under the cell meanwhile. The options'
field `grace` limits the retries. Without that field the limit is 300 s. Transient errors are
`errors.Unreachable`, a lost connection, a timeout, and HTTP 408, 429 and 5xx (supervise/backend_calls.py).
Any other error ends the attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict, model_validator

from ..cluster_form import Form
from ..folder import RunFolder
from ..job import Job, Poll
from ..option_fields import check_conflicts
from ..search.spec import Search, Strategy

__all__ = [
    "Backend",
    "Capabilities",
    "Extensions",
    "Form",
    "Handle",
    "Options",
    "PlatformSearch",
    "extensions_of",
]

Handle = Mapping[str, Any]
"""JSON with which a backend finds its run again."""


class Options(BaseModel):
    """Base of every backend's options: the only source of its flags, form and checks."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    form: ClassVar[Form] = Form()
    """Fields that a cluster's form shows at once, and the titles under which the others are folded."""

    @property
    def ranks(self) -> int | None:
        """Return how many ranks these options ask for if the user gives no -np.

        None: they do not determine it.
        """
        return None

    @classmethod
    def instead_of(cls, flag: str) -> str | None:
        """Return what to use instead of a flag that the launcher has and these options lack.

        The sentence continues after the flag's name. None: there is no advice for this flag.
        """
        return None

    @property
    def no_session(self) -> str | None:
        """Return which of the flags does not work with --session, and why. None: all of them do."""
        return None

    @model_validator(mode="after")
    def _check_conflicts(self) -> Options:
        check_conflicts(self)
        return self

    @classmethod
    def meant_by(cls, np: int) -> dict[str, Any] | None:
        """Return the meaning of a number of ranks below 1: a value of `np`, and values of options.

        None: no meaning.
        """
        return None

    @classmethod
    def named_by(cls, name: str) -> dict[str, Any]:
        """Return the values of options that follow from the run's --name, if the user gives no others."""
        return {}


@dataclass(frozen=True)
class Capabilities:
    """What only some backends can do. The views hide what a backend cannot do."""

    hosts: bool = False
    """Accepts -H and --hostfile."""
    restarts: bool = True
    """Can start all ranks again as a new attempt."""
    own_restarts: bool = False
    """The launcher implements --max-restarts: it restarts the ranks by itself."""
    outlives: bool = False
    """The ranks survive the end of their supervisor for a while. A new supervisor finds them again."""
    apart: bool = False
    """Runs in a backend process, because its calls block or its client library needs that.

    Such a client library starts threads, handles signals, or takes seconds to import. The process may die and
    be restarted: a new object must then work with handle and cursor alone. Several threads make the calls,
    and `stop` may overlap with a `poll`. The supervisor imports the class as well, so only the calls may
    import the client library.
    """
    client: tuple[str, ...] = ()
    """With `apart`: the modules of its client library whose import starts no thread.

    The template imports the modules, so that the backend process can be a fork.
    """
    visible: bool = True
    """This machine's /proc shows the ranks' processes, by the pids that `poll` returns."""
    stacks: bool = True
    """Running ranks can write their stacks on request."""
    interrupts: bool = False
    """`ask` with the verb `interrupt` raises KeyboardInterrupt in the ranks.

    Without this capability, an interrupt of the cell ends the ranks with SIGTERM.
    """
    warm: bool = False
    """The template process can fork its supervisor and its ranks."""
    sessions: bool = False
    """Its ranks can stay between cells.

    With `exchanges`, it then also has `exchange`, as `Hosted.exchange`. Else it also has `replace`, which
    starts one rank again.
    """
    sites: bool = False
    """`detect` lists under "sites" what there is to run on, such as running clusters.

    Each site has the options that select it (queries/answers/forms.py: Site). If there is none, "no_site" has
    the reason.
    """
    settle_s: float = 0.3
    """Time in seconds that the other ranks get after a failure to report their own errors."""
    failure_grace_s: float = 1.0
    """Seconds from SIGTERM to SIGKILL if another rank failed: a rank may wait in a collective for ever.

    If all ranks that still run have reported errors, they get `stop_grace_s`: they show their figures.
    """
    stop_grace_s: float = 5.0
    """Seconds from SIGTERM to SIGKILL if the user stops the run: time for a checkpoint.

    `Job.stop_grace_s` replaces this value. It is at least 30 s if a rank has its own handler for SIGTERM.
    """
    submit_limit_s: float = 120.0
    """With `apart`: how long the supervisor waits for a cancelled submission, in seconds.

    After that, the supervisor ends the backend process and calls `find`.
    """

    @property
    def exchanges(self) -> bool:
        """Whether agents on hosts have the ranks of a session."""
        return self.outlives or self.apart


@dataclass(frozen=True)
class PlatformSearch:
    """What a backend declares if an engine of its platform does the tuning."""

    packages: Callable[[Strategy], Sequence[tuple[str, str]]] = lambda strategy: ()
    """Packages that the engine needs for a strategy, each with the command that installs it."""
    check: Callable[[Search, Mapping[str, Any]], None] = lambda search, options: None
    """Raises InputError for what the engine cannot search."""
    request: Callable[[Search, Job, float | None], Mapping[str, Any]] | None = None
    """Returns what `--dry-run` shows: of the search, a trial, and the seconds of all trials together."""
    stopping_rules: bool = False
    """`--early-stopping` may name a rule."""
    schedulers: bool = False
    """`--scheduler` and `--stop-when` work."""
    scalings: bool = False
    """The engine has the scaling ReverseLogarithmic."""
    warm_start: Callable[[Search, Mapping[str, Any], int], Search] | None = None
    """Checks the parents of a search, from the options and the number of ranks of a trial. Blocks.

    Returns the search with its `WarmStart`. Raises DistError. None: the engine gets the parents' trials.
    """


@dataclass(frozen=True)
class Extensions:
    """What only some backends add to the calls of `Backend`. None: this backend does not add it."""

    inherited: Callable[[Mapping[str, Any]], Mapping[str, str]] | None = None
    """Returns secret variables of the notebook's process, such as the way to an open session, from options.

    The environment of the run's processes on this machine contains them, but no file and no argument does.
    Keep them out of the ranks' environment. A supervisor that resumes the run later does not have them.
    """
    arguments: Callable[[Mapping[str, Any]], Sequence[str]] | None = None
    """Returns arguments that the platform itself passes to scripts, such as hyperparameters, from options.

    The ranks' `sys.argv` then contains them as well.
    """
    fetch_model: Callable[[Job, RunFolder, Path], None] | None = None
    """Writes the files of `dist.model_dir()`, which the platform keeps, into a folder. Raises DistError.

    Without it, jupyter-dist looks for the files among the run's checkpoints.
    """
    search: PlatformSearch | None = None
    experiment: Callable[[Job], Sequence[Mapping[str, Any]]] | None = None
    """Returns a row for each run of the platform's experiment that has this run. Blocks. Raises DistError."""
    price: Callable[[int, Mapping[str, Any]], float | None] | None = None
    """Returns the list price in USD per hour of this many ranks, from options. None: it is not known."""


class Backend(Protocol):
    """The way in which a run is launched.

    An object stores only the result of `submit`, and what only the parent of a process can observe. A class
    may also have `extensions`, an `Extensions`.
    """

    name: ClassVar[str]
    options: ClassVar[type[Options]]
    capabilities: ClassVar[Capabilities]
    poll_interval_s: ClassVar[float]
    """Useful interval between polls. The supervisor also polls a local backend when a child ends."""

    def default_np(self) -> int:
        """Return the number of ranks if the user gives none."""
        ...

    def check(self, world_size: int, options: Mapping[str, Any]) -> list[str]:
        """Return warnings about the request. Raises InputError if the request cannot work."""
        ...

    def detect(self) -> dict[str, Any]:
        """Return what there is to run on, for people: versions, GPUs, addresses. Never raises."""
        ...

    def request(self, job: Job, attempt: int = 0) -> dict[str, Any]:
        """Return what `submit` would start, as JSON. Pure: starts, reserves and writes nothing."""
        ...

    def submit(self, job: Job, folder: RunFolder, attempt: int) -> Handle:
        """Start all ranks of an attempt. Returns when their start is requested.

        Raises DistError if they cannot be started. Nothing runs then.
        """
        ...

    def find(self, job: Job, folder: RunFolder, attempt: int) -> Handle | None:
        """Return the handle of an attempt whose `submit` began and whose result is unknown.

        None proves that nothing of the attempt runs or will run. Called only if the backend `outlives` or
        lives `apart`: its process may die during a submission. Therefore the run's id and the attempt
        determine the name of what `submit` starts. Repeatable.
        """
        ...

    def poll(self, job: Job, folder: RunFolder, handle: Handle, cursor: Any) -> Poll:
        """Return the state of the attempt. Does not block on local processes. Repeatable.

        If the backend `outlives`, a new object must answer with the handle alone.
        """
        ...

    def stop(self, job: Job, folder: RunFolder, handle: Handle, *, kill: bool) -> None:
        """Ask all ranks to end (`kill`: end them now). Repeatable. A rank that has ended is no error."""
        ...

    def ask(self, job: Job, folder: RunFolder, handle: Handle, rank: int | None, verb: str) -> None:
        """Ask one rank, or every running rank (`rank` None), to do something.

        The verb `stacks` asks for stacks in `stacks.txt`. It is used only if `capabilities.stacks` is set.
        The verb `interrupt` sends SIGINT to the process of each rank, not to launchers. A rank that ends
        afterwards counts as stopped. It is used only if `capabilities.interrupts` is set.
        A process that is not a rank yet ignores SIGINT, and gets SIGTERM instead (`interrupt_rank`).
        Does not wait for the answer. A rank that has ended is no error. An unknown verb is ignored.
        """
        ...

    def release(self, job: Job, folder: RunFolder, handle: Handle) -> str | None:
        """Release what is reserved for the attempt, on other hosts too.

        The attempt has ended, and no other follows.

        Repeatable. Never raises. Returns a line for the user about the run's result beside its ranks, such as
        the billed time. The view shows the line from then on. None: no line.
        """
        ...


def extensions_of(backend: Backend | type[Backend]) -> Extensions:
    """Return what the backend adds to the calls of every backend."""
    found = getattr(backend, "extensions", None)
    return found if isinstance(found, Extensions) else Extensions()
