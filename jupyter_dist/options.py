"""The options of a run, whatever its backend: the model that the flags, the form and the checks come from."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from . import option_values
from .cluster_form import Form
from .debug_options import DEBUGPY, OF_DEBUGGER, PDB
from .option_fields import check_conflicts, flag
from .search.early_stopping import ALONE, WRITTEN
from .search.schedulers import read_conditions, read_scheduler
from .search.spec import Strategy, read_objective, read_parents
from .text.format import parse_duration
from .text.labels import read_name, read_note
from .worker.hints import NAMES
from .worker.session import place

__all__ = ["NOT_IN_SESSION", "NOT_SAVED", "OF_NAMES", "OF_SESSION", "OF_TUNING", "RunOptions"]


Seconds = Annotated[float, BeforeValidator(parse_duration)]
OF_TUNING = (
    *("objective", "max_jobs", "parallel", "strategy", "early_stopping", "scheduler", "stop_when"),
    *("warm_start", "seed"),
)
"""What says something about a tuning, and nothing without `tune`."""
OF_NAMES = ("name", "run_tags", "note")
"""How the run is told apart from others."""
OF_SESSION = ("session", "ranks", "session_restart", "idle_timeout")
"""How the cell uses a session."""
NOT_IN_SESSION = ("tune", "scaling", "steps", "max_restarts", "session")
"""Flags with which a cell is not for a session."""
_OF_ONE_CELL = (*OF_SESSION, *OF_NAMES, *OF_DEBUGGER, "tune", *OF_TUNING, "scaling", "steps")
NOT_SAVED = ("backend", "cluster", "out", "detach", "dry_run", *_OF_ONE_CELL)
"""What belongs to one cell and not to a cluster (a cluster's backend stands beside its options)."""


class RunOptions(BaseModel):
    """How to run a cell, whatever the backend."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    form: ClassVar[Form] = Form(
        sections={
            "Hosts": "np hosts hostfile",
            "Environment": "env ship_modules",
            "Run": "timeout stop_grace max_restarts stall_timeout metric kept_displays no_hint cold",
        },
    )

    backend: str | None = flag(
        None,
        "Backend",
        "The backend that starts the ranks. `%dist backends` lists all backends. Default: local",
        wanted="the name of a backend, as `%dist backends` lists them",
    )
    cluster: str | None = flag(
        None,
        "Cluster",
        "A saved backend with its flags. `%dist clusters` lists the saved clusters. Flags in "
        "the cell override saved flags",
        value=("NAME", "the name of a cluster or of a backend"),
    )
    np: int | None = flag(
        None,
        "Workers",
        "The number of workers (ranks). Default: one per GPU of this machine, or 2 without a "
        "GPU. With hosts: all their slots. On most clusters: 1",
        "-np",
        "--num-proc",
        "-n",
        "--np",
        ge=1,
        le=65536,
        wanted="a whole number of at least 1",
    )
    hosts: Annotated[str, AfterValidator(option_values.hosts)] | None = flag(
        None,
        "Hosts",
        "The hosts, and the number of workers on each host",
        "-H",
        "--hosts",
        value=("A:4,B:4", "hosts such as node1:4,node2:4"),
    )
    hostfile: str | None = flag(
        None,
        "Host file",
        "A file with one host per line, written as `NAME slots=N`",
        "--hostfile",
        "-hostfile",
        value=("FILE", "the path of a file"),
    )
    out: Annotated[str, AfterValidator(option_values.variable)] | None = flag(
        None,
        "Variable",
        "Save the Run in this notebook variable, even if the run fails",
        value=("VAR", "the name of a variable"),
    )
    detach: bool = flag(False, "Detach", "Return at once. The run continues in the background")
    timeout: Annotated[Seconds, Field(gt=0)] | None = flag(
        None,
        "Timeout",
        "Stop the run after this time: 90, 90s, 10m, 2h",
        value=("TIME", "a time above 0 such as 90s, 10m or 2h"),
    )
    stop_grace: Annotated[Seconds, Field(ge=0)] | None = flag(
        None,
        "Time to save",
        "The time that ranks have to save after a stop or --timeout, before they are killed. "
        "Default: 5s, or 30s if a rank has its own handler for SIGTERM or you interrupt the cell",
        value=("TIME", "a time such as 0, 30s or 2m"),
    )
    max_restarts: int = flag(0, "Restarts", "Restart all ranks, up to N times, if a rank fails", ge=0)
    env: Annotated[dict[str, str], AfterValidator(option_values.environment)] = flag(
        {},
        "Environment",
        "Set an environment variable on every rank. Repeatable. The value is never written to disk",
        secrets=True,
    )
    dry_run: bool = flag(False, "Dry run", "Show what the run would start, but start nothing")
    metric: Annotated[dict[str, str], AfterValidator(option_values.patterns)] = flag(
        {},
        "Metrics from the log",
        "Read a metric from the output of the ranks, as in 'loss=loss: ([0-9.]+)'. Repeatable",
        value=("NAME=REGEX", "NAME=REGEX"),
        verbatim=True,
    )
    stall_timeout: Annotated[Seconds, Field(ge=0)] = flag(
        300.0,
        "Stall timeout",
        "Show the stack of every rank if no rank prints or logs for this time. 0: never. Default: 300",
        value=("TIME", "a time such as 0, 300, 90s or 10m"),
    )
    ship_modules: Annotated[str, AfterValidator(option_values.modules)] = flag(
        "auto",
        "Modules to send along",
        "The modules to send to the ranks: auto (modules beside the notebook), none, or their names",
        value=("auto|none|A,B", "auto, none or names of modules"),
    )
    kept_displays: Literal["first", "all", "none"] = flag(
        "first",
        "Displays in the file",
        "The displays that a saved notebook contains: first (only the first rank's if ranks "
        "differ), all, or none",
    )
    no_hint: Annotated[str, AfterValidator(option_values.hints)] | None = flag(
        None,
        "Hints to hide",
        f"Do not look for these mistakes, and write no note on them: {', '.join(NAMES)}",
        value=("NAME,…", "names of hints"),
    )
    cold: bool = flag(False, "Cold start", "Start new processes instead of forks of a warm process")
    pdb: bool = PDB
    debugpy: bool = DEBUGPY
    name: Annotated[str, AfterValidator(read_name)] | None = flag(
        None, "Name", "The name of the run in lists. Default: the label of its cell", wanted="a text"
    )
    run_tags: Annotated[str, BeforeValidator(option_values.tags)] | None = flag(
        None,
        "Tags",
        "Tags to find the run and to group runs",
        value=("A,B", "words such as baseline,large"),
    )
    note: Annotated[str, AfterValidator(read_note)] | None = flag(
        None, "Note", "A comment on the run", wanted="a text"
    )
    session: Annotated[str, AfterValidator(option_values.session_name)] | None = flag(
        None,
        "Session",
        "Run the cell on the ranks of a session, which stay until the next cell. The first cell "
        "starts the session. Default name: main",
        value=("[NAME]", "the name of a session"),
        alone=place.DEFAULT,
        value_like=r"[^-].*",
        excludes={
            **dict.fromkeys(("tune", "scaling", "steps"), "The ranks of a session run one cell at a time"),
            "max_restarts": "--session-restart says what replaces a rank that has ended",
        },
    )
    ranks: Annotated[str, BeforeValidator(option_values.ranks)] | None = flag(
        None,
        "Ranks of the session",
        "Run the cell on these ranks of the session only, as in 0,2-3",
        value=("RANKS", "ranks such as 0 or 0,2-3"),
        needs=["session"],
    )
    session_restart: Literal["never", "rank", "all"] | None = flag(
        None,
        "Restart in the session",
        "What to start again if a rank of the session has ended: nothing (never), that rank "
        "(rank), or all ranks (all). Default: that of the session's first cell, else rank",
        needs=["session"],
    )
    idle_timeout: Annotated[Seconds, Field(gt=0)] | None = flag(
        None,
        "Idle timeout",
        "End the session after this time without a cell. Default: a day with local and ssh, else an hour. "
        "Only the cell that starts the session may say it",
        value=("TIME", "a time such as 30m or 2h"),
        needs=["session"],
    )
    tune: Annotated[
        dict[str, str], BeforeValidator(option_values.texts), AfterValidator(option_values.space)
    ] = flag(
        {},
        "Tune",
        "Try several values of a variable, as in 'lr=loguniform(1e-5,1e-1)' or "
        "'batch=choice(32,64)'. Repeatable. Each trial is a separate run",
        value=("NAME=RANGE", "NAME=RANGE"),
    )
    objective: Annotated[str, option_values.checked(read_objective)] | None = flag(
        None,
        "Objective",
        "The metric to optimize, as in max:val_accuracy or min:loss. The ranks must log this metric",
        value=("max|min:METRIC", "max:METRIC or min:METRIC"),
    )
    max_jobs: int | None = flag(
        None,
        "Trials",
        "The number of trials. Default: 10, or every point of the grid. With --scheduler pbt or bohb, "
        "trials that continue from another one do not count",
        ge=1,
        le=100_000,
        wanted="a whole number of at least 1",
    )
    parallel: int | None = flag(
        None,
        "Trials at once",
        "The number of trials that run at the same time. Default: 1",
        ge=1,
        le=1000,
        wanted="a whole number of at least 1",
    )
    strategy: Strategy | None = flag(
        None, "Strategy", "The search algorithm. Default: bayesian. hyperband also ends weak trials early"
    )
    early_stopping: Annotated[str | None, BeforeValidator(option_values.stopping)] = flag(
        None,
        "Early stopping",
        "End a trial if it does worse than other trials did at the same step. On azureml you "
        "can choose the rule: bandit(slack_factor=0.1), median or "
        "truncation(truncation_percentage=20). Each rule also accepts evaluation_interval=N "
        "and delay_evaluation=N",
        value=("bandit|median|truncation", "a policy"),
        alone=ALONE,
        value_like=WRITTEN,
    )
    scheduler: Annotated[str, option_values.checked(read_scheduler)] | None = flag(
        None,
        "Scheduler",
        "End weak trials as this scheduler of Ray Tune does: asha(max_t=100,grace_period=1,"
        "reduction_factor=4), hyperband(max_t=81,reduction_factor=3) or median(grace_period=1). "
        "bohb(max_t=81) pauses trials, and pbt(perturbation_interval=5,max_t=20) lets weak ones continue "
        "from checkpoints of better ones. A trial succeeds after max_t values of the objective",
        value=("asha|hyperband|median|pbt|bohb", "a scheduler"),
        excludes={"early_stopping": "A scheduler is the rule that ends trials early"},
    )
    stop_when: Annotated[str, option_values.checked(read_conditions)] | None = flag(
        None,
        "Stop when",
        "End a trial as succeeded when one of these conditions is true, as in "
        "'val_accuracy>=0.98,training_iteration>=100'. training_iteration counts the values of the objective",
        value=("METRIC>=N,…", "conditions"),
    )
    warm_start: Annotated[str, option_values.checked(read_parents)] | None = flag(
        None,
        "Begin with",
        "Start the search with the results of earlier tuning runs, with commas between. Add :transfer if "
        "they have another search space. On sagemaker, sagemaker:JOB is a tuning job that was started "
        "elsewhere",
        value=("RUN,…[:identical|transfer]", "the id of a tuning run, optionally with :transfer"),
    )
    seed: int | None = flag(
        None,
        "Seed",
        "Make the search repeatable. The same seed proposes the same values if trials run "
        "one at a time and return the same results",
        ge=0,
        lt=1 << 32,
        value=("N", "a whole number from 0"),
    )
    scaling: Annotated[str, BeforeValidator(option_values.sizes)] | None = flag(
        None,
        "Scaling",
        "Run the cell with each of these numbers of ranks, one after the other, and report how it scales",
        value=("N,N,…", "numbers of ranks such as 1,2,4"),
    )
    steps: int | None = flag(
        None,
        "Steps of each size",
        "End each run of --scaling after this number of training steps. Default: at the cell's end",
        ge=1,
        wanted="a whole number of at least 1",
    )

    @model_validator(mode="after")
    def _check_conflicts(self) -> RunOptions:
        check_conflicts(self)
        return self
