"""Commands for runs and backends. Each converts words to what is shown."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from .. import backends, start
from ..backends import detection
from ..errors import InputError, MissingEngine
from ..flags import Flag, build, flags_of, scan, shown
from ..folder import RunFolder, find
from ..job import State
from ..manage import removal, stop, trace_request
from ..option_fields import flag
from ..options import Seconds
from ..record import reader, run_list
from ..record.logs import terminal_log
from ..record.reader import Line
from ..text.format import count, duration, size
from ..text.safe import clean, one_line
from ..text.table import Message, Table

__all__ = ["RUN_COMMANDS", "Command", "Context", "Empty", "about_site", "command"]

_SHOWN_RUNS = 20
_STOP_LIMIT_S = 15.0
_SHOWN_LINES = 200
"""Default number of log lines in a notebook, which saves its output in its file."""


@dataclass(frozen=True)
class Context:
    """Place where a command was entered."""

    terminal: bool = False


@dataclass(frozen=True)
class Command:
    """One command. `do` gets the words after its name. `usage` describes these words."""

    name: str
    usage: str
    about: str
    do: Callable[[Context, Sequence[str]], Any]
    flags: Callable[[], Sequence[tuple[str, Sequence[Flag]]]] = tuple
    children: tuple[Command, ...] = field(default=())
    terminal_only: bool = False
    verbatim: bool = False
    """`do` gets the rest of the line as one text, with its quotes and braces."""


class Empty(BaseModel):
    """Flags of a command without flags."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def command(
    name: str,
    words: str,
    about: str,
    do: Callable[[Context, Any, tuple[str, ...]], Any],
    model: type[BaseModel] = Empty,
    at_least: int = 0,
    at_most: int | None = 0,
) -> Command:
    """Create a command.

    Its flags are the fields of a model, and it takes `at_least` to `at_most` further words.
    """
    flags = flags_of(model)

    def read(context: Context, tokens: Sequence[str]) -> Any:
        found = scan(tokens, flags)
        if len(found.rest) < at_least:
            raise InputError(f"{name} needs {words}")
        if at_most is not None and len(found.rest) > at_most:
            raise InputError(f"{name} does not accept the argument {found.rest[at_most]!r}. Remove it")
        names = {flag.field: flag.names[0] for flag in flags}
        return do(context, build(model, found.values, lambda f: names.get(f, f)), found.rest)

    usage = " ".join(filter(None, [name, "[flags]" if flags else "", words]))
    return Command(name, usage, about, read, lambda: [("flags", flags)])


class _Runs(Empty):
    all: bool = Field(False, description=f"List all runs, not only the newest {_SHOWN_RUNS}")
    as_json: bool = Field(False, description="Print JSON", json_schema_extra={"flags": ["--json"]})


def _runs(context: Context, flags: _Runs, _: tuple[str, ...]) -> Table | Message:
    rows = run_list.list_runs(None if flags.all else _SHOWN_RUNS)
    if flags.as_json:
        return Message(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
    now = time.time()
    cells = [
        (
            row.id,
            str(row.state),
            row.backend,
            str(row.world_size or "?"),
            _age(now - row.created),
            duration((row.ended or now) - row.started) if row.started else "",
            " ".join(filter(None, [row.name, row.notebook, row.label])),
            size(row.size_bytes),
        )
        for row in rows
    ]
    columns = ("id", "state", "backend", "np", "age", "took", "from", "on disk")
    return Table(columns, cells, data=rows, empty="there are no runs yet")


def _age(seconds: float) -> str:
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name}"
    return f"{max(0.0, seconds):.0f} s"


class _Stop(Empty):
    kill: bool = Field(False, description="Kill the ranks at once. They cannot save a checkpoint")


def _stop(context: Context, flags: _Stop, ids: tuple[str, ...]) -> Message:
    last = start.last_run_id()
    chosen = [find(i) for i in ids] or [run_list.choose(None, running=True, last=last)]
    lines = []
    for folder in chosen:
        before = reader.status(folder).state
        after = stop.stop(folder, kill=flags.kill, wait_s=_STOP_LIMIT_S)
        # A lost run whose ranks still run ends only after another supervisor has ended them.
        if before.ended and after is before:
            lines.append(f"{folder.id} had already ended: {before}")
        elif after.ended:
            lines.append(f"{folder.id} {after}")
        else:
            lines.append(
                f"{folder.id} is stopping, but it is still {after}. To end it at once, stop it again"
            )
    return Message("\n".join(lines))


def _ranks(given: Sequence[str]) -> frozenset[int]:
    found: set[int] = set()
    for part in ",".join(given).split(","):
        match = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", part)
        between = range(int(match[1]), int(match[2] or match[1]) + 1) if match else ()
        if not between:
            raise ValueError(f"needs ranks such as 3 or 0-3,7, got {shown(part)}")
        found.update(between)
    return frozenset(found)


class _Logs(Empty):
    rank: Annotated[frozenset[int], BeforeValidator(_ranks)] | None = Field(
        None,
        description="Show only these ranks: 3 or 0-3,7. Default: all ranks, in order of time",
        json_schema_extra={"metavar": "RANKS", "wanted": "ranks such as 3 or 0-3,7"},
    )
    follow: bool = Field(False, description="Show new lines until the run ends")
    tail: int | None = Field(
        None,
        ge=1,
        description=f"Show only the last N lines. Default: all in a terminal, {_SHOWN_LINES} in a notebook",
    )


def _logs(context: Context, flags: _Logs, ids: tuple[str, ...]) -> Any:
    folder = run_list.choose(ids[0] if ids else None, last=start.last_run_id())
    alone = flags.rank is not None and len(flags.rank) == 1
    if not context.terminal:
        if flags.follow:
            raise InputError(
                f"--follow works only in a terminal. Use `%dist attach {folder.id}` in a notebook"
            )
        lines, before = terminal_log.read_log(folder, ranks=flags.rank, tail=flags.tail or _SHOWN_LINES)
        if not lines:
            return Message(
                "nothing was printed" if reader.status(folder).state.ended else "nothing was printed yet"
            )
        text = "\n".join(_line(line, not alone, colour=False) for line in lines)
        return Message(f"… {count(before, 'line')} before\n{text}" if before else text)
    if flags.follow:
        for chunk in terminal_log.follow_log(folder, ranks=flags.rank, tail=flags.tail):
            _print_lines(chunk, not alone)
        from ..showing import failure_report

        status = reader.status(folder)
        return Message(failure_report.unwatched(status)) if status.state is State.UNWATCHED else None
    else:
        _print_lines(terminal_log.read_log(folder, ranks=flags.rank, tail=flags.tail)[0], not alone)
    return None


def _line(line: Line, prefixed: bool, colour: bool) -> str:
    text = clean(line.text, limit=1 << 20, colour=colour)
    return f"[{line.rank}] {text}" if prefixed else text


def _print_lines(lines: Sequence[Line], prefixed: bool) -> None:
    colour = sys.stdout.isatty()
    for line in lines:
        sys.stdout.write(_line(line, prefixed, colour) + "\n")
    sys.stdout.flush()


_ATTACH_FIELDS: dict[str, Any] = {
    name: (str | None, flag(None, name, f"With {backend}:{shows.named}: {help}", value=(metavar, wanted)))
    for backend, shows in backends.SHOWING.items()
    for name, (help, metavar, wanted) in shows.flags.items()
}
_ATTACH = create_model("Attach", __base__=Empty, **_ATTACH_FIELDS)


def _attach(context: Context, flags: Empty, ids: tuple[str, ...]) -> Any:
    given = ids[0] if ids else start.last_run_id()
    return start.attach(given, follow=True, **flags.model_dump())


class _Rm(Empty):
    older_than: Seconds | None = Field(
        None,
        description="Remove all runs that ended longer ago than this: 12h, 30d",
        json_schema_extra={"metavar": "TIME", "wanted": "a time such as 12h or 30d"},
    )
    all_ended: bool = Field(False, description="Remove all runs that have ended")


def _rm(context: Context, flags: _Rm, ids: tuple[str, ...]) -> Message:
    if bool(ids) + (flags.older_than is not None) + flags.all_ended != 1:
        raise InputError("rm needs one of: ids, --older-than TIME, --all-ended")
    chosen: list[RunFolder] = [find(i) for i in ids]
    incomplete: list[str] = []
    freed = 0
    if not ids:
        chosen = run_list.ended_before(time.time() - (flags.older_than or 0.0))
        incomplete, freed = removal.remove_abandoned()
    freed += removal.remove(chosen)
    removed = {*incomplete, *(folder.id for folder in chosen)}
    if not removed:
        return Message("no run to remove")
    return Message(f"removed {count(len(removed), 'run')}, {size(freed)} freed")


def _backends(context: Context, _: Empty, asked: tuple[str, ...]) -> Table:
    for name in asked:
        if name not in backends.names():
            backends.declared(name)  # raises an error that lists the known backends
    rows: list[tuple[str, str, str]] = []
    data = []
    for name, found in detection.ask(asked or backends.names()).items():
        state, told = _found(found)
        rows.append((name, state, told))
        rows += [("", "", f"{site['name']}: {about_site(site)}") for site in found.sites]
        data.append({"name": name, "state": state, "found": told, "sites": found.sites})
    return Table(("backend", "state", "found"), rows, data=data)


def about_site(site: Mapping[str, Any]) -> str:
    """Return what a site of a backend has, or why it cannot be used."""
    return str(site.get("problem") or site.get("told") or "there")


def _found(found: detection.Found) -> tuple[str, str]:
    """Return whether a backend can be used, and what it has found or lacks."""
    missing = found.problem if isinstance(found.problem, MissingEngine) else found.lacks
    if missing is not None:
        return "not installed", str(missing)
    if found.problem is not None:
        return "broken", one_line(str(found.problem), 1000)
    told = ", ".join(f"{key} {value}" for key, value in found.facts.items() if key != "gpus_in_use")
    more = found.facts.get("gpus_in_use") or found.no_site  # a whole sentence
    return "ready", told if more is None else f"{told}: {more}"


def _stacks(context: Context, _: Empty, ids: tuple[str, ...]) -> Any:
    folder = run_list.choose(ids[0] if ids else None, running=not ids, last=start.last_run_id())
    from ..showing.run import Run

    return Run(folder).stacks()


class _Trace(Empty):
    steps: int | None = Field(None, ge=1, description="The number of training steps. Default: 10")
    for_s: Seconds | None = flag(
        None, "Length", "The length of the trace: 5s", "--for", value=("TIME", "a time such as 5s"), gt=0
    )


def _trace(context: Context, flags: _Trace, ids: tuple[str, ...]) -> Message:
    folder = run_list.choose(ids[0] if ids else None, running=not ids, last=start.last_run_id())
    return Message(str(trace_request.take(folder, flags.steps, flags.for_s)))


def _compare(context: Context, _: Empty, ids: tuple[str, ...]) -> Any:
    from ..showing.comparison import compare

    return compare(*ids)


_ID = "[ID]"
RUN_COMMANDS = (
    command("runs", "", "List the runs on this machine, newest first.", _runs, _Runs),
    command(
        "attach",
        "|".join(["[ID", *(f"{name}:{shows.named}" for name, shows in backends.SHOWING.items())]) + "]",
        "Show the output of a run, or of a job that others started, until it ends. "
        "Interrupting leaves it running.",
        _attach,
        _ATTACH,
        at_most=1,
    ),
    command("logs", _ID, "Show what the ranks printed.", _logs, _Logs, at_most=1),
    command(
        "stop",
        "[ID…]",
        "Stop runs: SIGTERM, and SIGKILL after a while. A second stop kills.",
        _stop,
        _Stop,
        at_most=None,
    ),
    command("stacks", _ID, "Show the stack of every rank of a running run.", _stacks, at_most=1),
    command(
        "trace",
        _ID,
        "Trace some training steps of all ranks with torch's profiler, into one file for Perfetto.",
        _trace,
        _Trace,
        at_most=1,
    ),
    command(
        "compare",
        "ID ID",
        "Show what differs between two runs: flags, code, packages, parameters, metrics, parts of a step.",
        _compare,
        at_least=2,
        at_most=2,
    ),
    command(
        "rm", "[ID…]", "Remove runs that have ended, with their logs and results.", _rm, _Rm, at_most=None
    ),
    command(
        "backends",
        "[BACKEND…]",
        "List all backends, or only the named ones, and what each one found on this machine.",
        _backends,
        at_most=None,
    ),
)
