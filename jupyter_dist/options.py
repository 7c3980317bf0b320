"""The options of a run, whatever its backend: the model that the flags, the form and the checks come from."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from .cluster_form import Form
from .flags import shown
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
            raise ValueError(f"cannot set {name}: every rank gets its own")
        if "\0" in text:
            raise ValueError(f"cannot set {name}: its value holds a NUL character")
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
                f"{name!r}: {shown(pattern)} has {compiled.groups} groups; it needs exactly one, around the "
                "number, as in 'loss=loss: ([0-9.]+)', or one named (?P<value>…)"
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
            raise ValueError(f"names {name!r} twice")
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
        raise ValueError(f"{shown(path)} names no host")
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


def _extra(*flags: str, **more: Any) -> dict[str, Any]:
    return {"flags": list(flags), **more} if flags else dict(more)


class RunOptions(BaseModel):
    """How to run a cell, whatever the backend."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    form: ClassVar[Form] = Form(
        sections={
            "Hosts": ("np", "hosts", "hostfile"),
            "Environment": ("env", "ship_modules"),
            "Run": ("timeout", "max_restarts", "stall_timeout", "metric", "kept_displays", "cold"),
        },
    )

    backend: str | None = Field(
        None,
        title="Backend",
        description="Where the cell runs; `%dist backends` lists them. Default: local",
        json_schema_extra=_extra(wanted="the name of a backend, as `%dist backends` lists them"),
    )
    cluster: str | None = Field(
        None,
        title="Cluster",
        description="A saved choice of backend and flags (`%dist clusters`); flags given here win",
        json_schema_extra=_extra(metavar="NAME", wanted="the name of a cluster or of a backend"),
    )
    np: int | None = Field(
        None,
        ge=1,
        le=65536,
        title="Workers",
        description="How many workers. Default: on this machine one per GPU, or 2 without; with hosts, their "
        "slots; on most clusters 1",
        json_schema_extra=_extra("-np", "--num-proc", "-n", "--np", wanted="a whole number of at least 1"),
    )
    hosts: Annotated[str, AfterValidator(_hosts)] | None = Field(
        None,
        title="Hosts",
        description="The machines, and how many workers each takes",
        json_schema_extra=_extra("-H", "--hosts", metavar="A:4,B:4", wanted="hosts such as node1:4,node2:4"),
    )
    hostfile: str | None = Field(
        None,
        title="Host file",
        description="A file that lists the machines as `NAME slots=N`",
        json_schema_extra=_extra("--hostfile", "-hostfile", metavar="FILE", wanted="the path of a file"),
    )
    out: Annotated[str, AfterValidator(_variable)] | None = Field(
        None,
        title="Variable",
        description="Give the Run to this notebook variable, also when the run fails",
        json_schema_extra=_extra(metavar="VAR", wanted="the name of a variable"),
    )
    detach: bool = Field(False, title="Detach", description="Return at once; the run goes on")
    timeout: Annotated[Seconds, Field(gt=0)] | None = Field(
        None,
        title="Timeout",
        description="Stop the run after this time: 90, 90s, 10m, 2h",
        json_schema_extra=_extra(metavar="TIME", wanted="a time above 0 such as 90s, 10m or 2h"),
    )
    max_restarts: int = Field(
        0, ge=0, title="Restarts", description="Start all ranks again, up to N times, when one fails"
    )
    env: Annotated[dict[str, str], AfterValidator(_environment)] = Field(
        default_factory=dict,
        title="Environment",
        description="An environment variable for the ranks; repeatable. No file of a run holds its value",
        json_schema_extra=_extra(secrets=True),
    )
    dry_run: bool = Field(False, title="Dry run", description="Show what would be started, start nothing")
    metric: Annotated[dict[str, str], AfterValidator(_patterns)] = Field(
        default_factory=dict,
        title="Metrics from the log",
        description="Take a metric from what ranks print, as in 'loss=loss: ([0-9.]+)'; repeatable",
        json_schema_extra=_extra(metavar="NAME=REGEX", wanted="NAME=REGEX", verbatim=True),
    )
    stall_timeout: Annotated[Seconds, Field(ge=0)] = Field(
        300.0,
        title="Stall timeout",
        description="Show the stacks when no rank prints or logs for this time; 0: never. Default: 300",
        json_schema_extra=_extra(metavar="TIME", wanted="a time such as 0, 300, 90s or 10m"),
    )
    ship_modules: Annotated[str, AfterValidator(_modules)] = Field(
        "auto",
        title="Modules to send along",
        description="auto (those beside the notebook), none, or their names",
        json_schema_extra=_extra(metavar="auto|none|A,B", wanted="auto, none or names of modules"),
    )
    kept_displays: Literal["first", "all", "none"] = Field(
        "first",
        title="Displays in the file",
        description="Whose displays a saved notebook holds: the first rank's where they differ, all, or none",
    )
    cold: bool = Field(False, title="Cold start", description="Start new processes, no forks of a warm one")
    name: Annotated[str, AfterValidator(read_name)] | None = Field(
        None,
        title="Name",
        description="What the run is called in lists; without it, by its cell",
        json_schema_extra=_extra(wanted="a text"),
    )
    run_tags: Annotated[str, BeforeValidator(_tags)] | None = Field(
        None,
        title="Tags",
        description="Words to find the run by and to group runs with",
        json_schema_extra=_extra(metavar="A,B", wanted="words such as baseline,large"),
    )
    note: Annotated[str, AfterValidator(read_note)] | None = Field(
        None,
        title="Note",
        description="What is worth knowing of the run",
        json_schema_extra=_extra(wanted="a text"),
    )
    tune: Annotated[dict[str, str], BeforeValidator(_texts), AfterValidator(_space)] = Field(
        default_factory=dict,
        title="Tune",
        description="Try values of a variable, as in 'lr=loguniform(1e-5,1e-1)' or 'batch=choice(32,64)'; "
        "repeatable. Each trial is a run of its own",
        json_schema_extra=_extra(metavar="NAME=RANGE", wanted="NAME=RANGE"),
    )
    objective: Annotated[str, AfterValidator(_objective)] | None = Field(
        None,
        title="Objective",
        description="The metric to tune for, as in max:val_accuracy or min:loss; ranks log it",
        json_schema_extra=_extra(metavar="max|min:METRIC", wanted="max:METRIC or min:METRIC"),
    )
    max_jobs: int | None = Field(
        None,
        ge=1,
        le=100_000,
        title="Trials",
        description="How many trials. Default: 10, or each point of the grid",
        json_schema_extra=_extra(wanted="a whole number of at least 1"),
    )
    parallel: int | None = Field(
        None,
        ge=1,
        le=1000,
        title="Trials at once",
        description="How many trials run at once. Default: 1",
        json_schema_extra=_extra(wanted="a whole number of at least 1"),
    )
    strategy: Strategy | None = Field(
        None,
        title="Strategy",
        description="How values are chosen. Default: bayesian. hyperband also ends trials early",
    )
    early_stopping: Annotated[str | None, BeforeValidator(_stopping)] = Field(
        None,
        title="Early stopping",
        description="End a trial that does worse than the others did at the same step. Which rule is for "
        "azureml to be told: bandit(slack_factor=0.1), median or truncation(truncation_percentage=20), each "
        "with evaluation_interval=N and delay_evaluation=N",
        json_schema_extra=_extra(
            metavar="bandit|median|truncation", wanted="a policy", alone=ALONE, value_like=WRITTEN
        ),
    )
    warm_start: Annotated[str, AfterValidator(_parent)] | None = Field(
        None,
        title="Begin with",
        description="Begin with what the trials of an earlier tuning run have shown; transfer: of one with "
        "another space",
        json_schema_extra=_extra(
            metavar="RUN[:identical|transfer]", wanted="the id of a tuning run, which :transfer may follow"
        ),
    )
    seed: int | None = Field(
        None,
        ge=0,
        lt=1 << 32,
        title="Seed",
        description="Choose the same values again, where trials come to the same; one at a time",
        json_schema_extra=_extra(metavar="N", wanted="a whole number from 0"),
    )
