"""The options of a run, whatever its backend: the model that the flags, the form and the checks come from."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from .cluster_form import Form
from .flags import shown
from .option_fields import flag
from .search.early_stopping import ALONE, WRITTEN, read_policy
from .search.notation import as_text, read_dimension
from .search.spec import Strategy, read_objective, read_parent
from .text.format import parse_duration
from .text.labels import read_name, read_note, read_tags

__all__ = ["NOT_SAVED", "OF_NAMES", "OF_TUNING", "Host", "RunOptions", "parse_hosts", "read_hostfile"]

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOST = re.compile(r"((?:[\w.-]+@)?(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]))(?::(\d+))?")
_HOST_LINE = re.compile(r"(\S+)(?:\s+slots\s*=\s*(\d+))?(?:\s+max[_-]slots\s*=\s*\d+)?")
_METRIC_NAME = re.compile(r"[^\W\d][\w./ -]{0,99}")
_SET_FOR_RANKS = frozenset(
    ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TF_CONFIG"]
)


def _variable(value: str) -> str:
    if not value.isidentifier() or keyword.iskeyword(value):
        raise ValueError(f"needs the name of a variable, got {shown(value)}")
    return value


def _environment(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not _ENV_NAME.fullmatch(name):
            raise ValueError(
                f"needs NAME=VALUE with a name of letters, digits and _, got the name {shown(name)}"
            )
        if name in _SET_FOR_RANKS or name.startswith("JUPYTER_DIST_"):
            raise ValueError(f"cannot set {name}: jupyter-dist sets it on every rank. Use another name")
        if "\0" in text:
            raise ValueError(f"cannot set {name}: its value contains a NUL character. Remove that character")
    return value


def _patterns(value: dict[str, str]) -> dict[str, str]:
    for name, pattern in value.items():
        if not _METRIC_NAME.fullmatch(name):
            raise ValueError(
                f"needs NAME=REGEX with a name that begins with a letter, got the name {shown(name)}"
            )
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise ValueError(
                f"{name!r}: {shown(pattern)} is not a regular expression ({error.msg})"
            ) from None
        if "value" not in compiled.groupindex and compiled.groups != 1:
            raise ValueError(
                f"{name!r}: {shown(pattern)} has {compiled.groups} groups. Put exactly one group "
                "around the number, as in 'loss=loss: ([0-9.]+)', or name one (?P<value>…)"
            )
    return value


@dataclass(frozen=True)
class Host:
    """A machine and how many workers it takes."""

    name: str
    slots: int


def parse_hosts(text: str) -> tuple[Host, ...]:
    """Hosts from `a:4,me@b:4,[fd00::1]:4`; without a number a host takes one worker."""
    found = []
    for part in text.split(","):
        match = _HOST.fullmatch(part.strip())
        if match is None or match[2] == "0" or match[1].startswith("-"):
            raise ValueError(f"needs hosts such as node1:4,node2:4, got {shown(text)}")
        found.append(Host(match[1], int(match[2] or 1)))
    names = [host.name for host in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"names the host {name!r} twice. Write each host once, with all its slots")
    return tuple(found)


def read_hostfile(path: str) -> tuple[Host, ...]:
    """Hosts from a file as mpirun and horovodrun read it: `NAME slots=N` or `NAME:N`, one per line.

    A host that stands there several times has the slots of all its lines, as in a scheduler's node file."""
    try:
        lines = Path(path).expanduser().read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise ValueError(f"cannot read {shown(path)}: {reason}") from None
    found: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = _HOST_LINE.fullmatch(text)
        try:
            (host,) = parse_hosts(":".join(filter(None, match.groups())) if match else "")
        except ValueError:
            raise ValueError(
                f"{shown(path)}, line {number}: expected `NAME slots=N`, got {shown(line.strip())}"
            ) from None
        found[host.name] = found.get(host.name, 0) + host.slots
    if not found:
        raise ValueError(f"{shown(path)} names no host. Add lines such as `node1 slots=4`")
    return tuple(Host(name, slots) for name, slots in found.items())


def _hosts(value: str) -> str:
    parse_hosts(value)
    return value


def _modules(value: str) -> str:
    if value not in ("auto", "none") and not all(
        re.fullmatch(r"\s*[^\W\d]\w*(\.[^\W\d]\w*)*\s*", part) for part in value.split(",")
    ):
        raise ValueError(f"needs auto, none or names of modules such as model,data, got {shown(value)}")
    return value


def _texts(value: object) -> object:
    if not isinstance(value, dict):
        return value
    return {name: as_text(one) for name, one in value.items()}


def _space(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not name.isidentifier() or keyword.iskeyword(name):
            raise ValueError(f"needs NAME=RANGE with the name of a variable, got the name {shown(name)}")
        try:
            read_dimension(text)
        except ValueError as error:
            raise ValueError(f"{shown(f'{name}={text}')}: {error}") from None
    return value


def _objective(value: str) -> str:
    read_objective(value)
    return value


def _parent(value: str) -> str:
    read_parent(value)
    return value


def _stopping(value: object) -> object:
    """True and False are good for Python."""
    if isinstance(value, bool):
        return ALONE if value else None
    if isinstance(value, str) and value != ALONE:
        read_policy(value)
    return value


def _tags(value: object) -> str:
    return ",".join(read_tags(value if isinstance(value, str | list | tuple) else str(value)))


Seconds = Annotated[float, BeforeValidator(parse_duration)]
OF_TUNING = ("objective", "max_jobs", "parallel", "strategy", "early_stopping", "warm_start", "seed")
"""What says something about a tuning, and nothing without `tune`."""
OF_NAMES = ("name", "run_tags", "note")
"""How the run is told apart from others."""
NOT_SAVED = ("backend", "cluster", "out", "detach", "dry_run", *OF_NAMES, "tune", *OF_TUNING)
"""What belongs to one cell and not to a cluster (a cluster's backend stands beside its options)."""


class RunOptions(BaseModel):
    """How to run a cell, whatever the backend."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    form: ClassVar[Form] = Form(
        sections={
            "Hosts": ("np", "hosts", "hostfile"),
            "Environment": ("env", "ship_modules"),
            "Run": (
                "timeout",
                "stop_grace",
                "max_restarts",
                "stall_timeout",
                "metric",
                "kept_displays",
                "cold",
            ),
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
    hosts: Annotated[str, AfterValidator(_hosts)] | None = flag(
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
    out: Annotated[str, AfterValidator(_variable)] | None = flag(
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
    env: Annotated[dict[str, str], AfterValidator(_environment)] = flag(
        {},
        "Environment",
        "Set an environment variable on every rank. Repeatable. The value is never written to disk",
        secrets=True,
    )
    dry_run: bool = flag(False, "Dry run", "Show what the run would start, but start nothing")
    metric: Annotated[dict[str, str], AfterValidator(_patterns)] = flag(
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
    ship_modules: Annotated[str, AfterValidator(_modules)] = flag(
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
    cold: bool = flag(False, "Cold start", "Start new processes instead of forks of a warm process")
    name: Annotated[str, AfterValidator(read_name)] | None = flag(
        None, "Name", "The name of the run in lists. Default: the label of its cell", wanted="a text"
    )
    run_tags: Annotated[str, BeforeValidator(_tags)] | None = flag(
        None,
        "Tags",
        "Tags to find the run and to group runs",
        value=("A,B", "words such as baseline,large"),
    )
    note: Annotated[str, AfterValidator(read_note)] | None = flag(
        None, "Note", "A comment on the run", wanted="a text"
    )
    tune: Annotated[dict[str, str], BeforeValidator(_texts), AfterValidator(_space)] = flag(
        {},
        "Tune",
        "Try several values of a variable, as in 'lr=loguniform(1e-5,1e-1)' or "
        "'batch=choice(32,64)'. Repeatable. Each trial is a separate run",
        value=("NAME=RANGE", "NAME=RANGE"),
    )
    objective: Annotated[str, AfterValidator(_objective)] | None = flag(
        None,
        "Objective",
        "The metric to optimize, as in max:val_accuracy or min:loss. The ranks must log this metric",
        value=("max|min:METRIC", "max:METRIC or min:METRIC"),
    )
    max_jobs: int | None = flag(
        None,
        "Trials",
        "The number of trials. Default: 10, or every point of the grid",
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
    early_stopping: Annotated[str | None, BeforeValidator(_stopping)] = flag(
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
    warm_start: Annotated[str, AfterValidator(_parent)] | None = flag(
        None,
        "Begin with",
        "Start the search with the results of an earlier tuning run. Add :transfer if that "
        "run has another search space",
        value=("RUN[:identical|transfer]", "the id of a tuning run, optionally with :transfer"),
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
