"""`%dist …` in a notebook and `jupyter dist …` in a terminal: one tree of commands for both.

A command takes words and returns what to show, or None. The notebook shows that value, and the terminal
prints its text. The exit status in a terminal is:

- 0 for success,
- 1 for a failed run or command,
- 2 for input that cannot be used,
- 130 for a run that was stopped, or a command that was interrupted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from .. import start
from ..backends import Backend
from ..errors import CaptureError, DistError, InputError, ResultError, RunFailed, RunNotFound, RunStopped
from ..flags import Flag, flags_of, nearest, shown, split_line
from ..job import State
from ..plan.run_plan import CommandLine, Plan, make_plan, read_command_line, run_flags
from ..text.table import Message
from .cluster_commands import CLUSTER_COMMANDS
from .debug_commands import DEBUG_COMMANDS
from .help_texts import entry, help_text
from .install_horovod import HOROVOD_COMMANDS
from .ray_commands import RAY_COMMANDS
from .run_commands import RUN_COMMANDS, Command, Context
from .session_commands import SESSION_COMMANDS

__all__ = ["dispatch", "flag_groups", "main"]

_NOT_IN_TERMINAL = ("out",)
_HELP = ("-h", "--help")
_MODULE = ("-m", "--module")
"""The names of torchrun's flag."""
_RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}(-t\d+)?")


def flag_groups(backend: Backend, leave_out: Sequence[str] = ()) -> list[tuple[str, Sequence[Flag]]]:
    """Return the flags of a run, grouped for the help."""
    run = [flag for flag in run_flags() if flag.field not in leave_out]
    return [("flags", run), (f"flags of the backend {backend.name!r}", flags_of(backend.options))]


def _run(context: Context, tokens: Sequence[str]) -> Any:
    line, is_module = _read(tokens)
    if not line.rest and not is_module:
        taken = str(line.given.get("session", ""))
        cure = f". {taken!r} was read as the session's name: write --session=NAME {taken}"
        raise InputError(f"run needs the path of a Python script{cure if taken.endswith('.py') else ''}")
    origin = start.origin_of_module(line.rest) if is_module else start.origin_of_script(line.rest)
    plan = make_plan(line.given)
    source = start.read_script(Path(origin.file if is_module and origin.file else line.rest[0]))
    sys.path.insert(0, str(origin.directory))  # `python SCRIPT` does this too
    if plan.run.dry_run:
        told = (
            start.describe(source, {}, plan, origin)
            if plan.run.session is None
            else start.describe_in_session(source, {}, plan, origin, line.given)
        )
        return Message(json.dumps(told, indent=2))
    return _start(source, plan, origin, line.given)


def _read(tokens: Sequence[str]) -> tuple[CommandLine, bool]:
    """Return the line of `run`, and whether `-m` is before its first word, which is then a module."""
    at = next((at for at, token in enumerate(tokens) if token in _MODULE), None)
    if at is not None:
        line = read_command_line(tokens[:at], leave_out=_NOT_IN_TERMINAL, first_word_ends=True)
        if not line.rest:
            return dataclasses.replace(line, rest=tuple(tokens[at + 1 :])), True
    return read_command_line(tokens, leave_out=_NOT_IN_TERMINAL, first_word_ends=True), False


def _start(source: str, plan: Plan, origin: start.Origin, given: Mapping[str, Any]) -> Any:
    start.warn(plan)
    if plan.run.session is not None:
        run = start.cell_in_session(source, {}, plan, origin, given)
    else:
        run = start.start_cell(source, {}, plan, origin)
    if plan.run.detach:
        return Message(f"{run.id}\nTo follow it: jupyter dist attach {run.id}")
    return start.finish(run)


def _run_groups(tokens: Sequence[str] = ()) -> list[tuple[str, Sequence[Flag]]]:
    return flag_groups(_read(tokens)[0].backend, _NOT_IN_TERMINAL)


_RUN = Command(
    "run",
    "run [flags] (SCRIPT | -m MODULE) [its arguments]",
    "Run a Python file or a module on every rank and show its output.",
    _run,
    _run_groups,
    terminal_only=True,
)


def _tree(context: Context) -> tuple[Command, ...]:
    return (
        *((_RUN,) if context.terminal else ()),
        *RUN_COMMANDS,
        *SESSION_COMMANDS,
        *DEBUG_COMMANDS,
        *CLUSTER_COMMANDS,
        *RAY_COMMANDS,
        *HOROVOD_COMMANDS,
    )


def dispatch(words: str | Sequence[str], context: Context, expand: Callable[[str], str] = str) -> Any:
    """Run the command in a line and return what to show. Raises DistError."""
    if verbatim := _verbatim(words, context, expand):
        tokens = verbatim
    else:
        tokens = [expand(t) for t in split_line(words)] if isinstance(words, str) else list(words)
    return _descend(tokens, _tree(context), context, "jupyter dist" if context.terminal else "%dist")


def _verbatim(words: str | Sequence[str], context: Context, expand: Callable[[str], str]) -> list[str]:
    """Return the name and the rest of a command that reads its line itself. Empty for any other command.

    The rest is code of the ranks, so only a run's id at its beginning may be a variable of the notebook."""
    text = words if isinstance(words, str) else " ".join(words)
    name, _, rest = text.strip().partition(" ")
    chosen = next((one for one in _tree(context) if one.name == name and one.verbatim), None)
    if chosen is None or rest.strip() in _HELP:
        return []
    first = rest.split(maxsplit=1)[:1]
    if first and _RUN_ID.fullmatch(id := expand(first[0])):
        rest = rest.replace(first[0], id, 1)
    return [name, rest.strip()]


def _descend(tokens: list[str], commands: tuple[Command, ...], context: Context, path: str) -> Any:
    if tokens[:1] == ["help"]:
        tokens = [*tokens[1:], "--help"]
    if not tokens or tokens[0] in _HELP:
        return Message(_overview(commands, path))
    if tokens == ["--version"]:
        return Message(f"jupyter-dist {metadata.version('jupyter-dist')}")
    known = {command.name: command for command in commands}
    chosen = known.get(tokens[0])
    if chosen is None:
        raise _no_such(tokens[0], known, path)
    rest = tokens[1:]
    if chosen.children and rest and rest[0] not in _HELP:
        return _descend(rest, chosen.children, context, f"{path} {chosen.name}")
    if _asks_for_help(chosen, rest) and not (chosen.verbatim and rest[0] not in _HELP):
        if chosen.children:
            return Message(_overview(chosen.children, f"{path} {chosen.name}"))
        groups = _run_groups(rest) if chosen is _RUN else chosen.flags()
        text = help_text(f"{path} {chosen.usage}", chosen.about, groups)
        return Message(_for_terminal(text) if context.terminal else text)
    return chosen.do(context, rest)


def _asks_for_help(chosen: Command, tokens: list[str]) -> bool:
    if chosen is _RUN:  # what follows the script is the script's
        return _read(tokens)[0].help
    own = tokens[: tokens.index("--")] if "--" in tokens else tokens
    return any(token in _HELP for token in own)


def _no_such(word: str, known: dict[str, Command], path: str) -> InputError:
    if word == "run" and path == "%dist":
        return InputError(
            "`run` works only in a terminal. Write `%%distribute` in the first line of a cell to run the cell"
        )
    near = nearest(word, known)
    cure = f"did you mean {near!r}?" if near else f"there are: {', '.join(known)}"
    return InputError(f"{path} has no command {shown(word)}; {cure}")


def _overview(commands: tuple[Command, ...], path: str) -> str:
    lines = [f"usage: {path} COMMAND …", ""]
    for command in commands:
        lines += entry(command.name, command.about)
    lines += ["", f"{path} COMMAND --help describes one command."]
    if path == "%dist":
        lines += ["%distribute --help lists the flags of a run."]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the terminal's `jupyter dist`. Returns the exit status."""
    try:
        value = dispatch(list(sys.argv[1:] if argv is None else argv), Context(terminal=True))
        return _show(value)
    except RunStopped as error:
        return _complain(error, 130)
    except (InputError, RunNotFound, CaptureError) as error:
        return _complain(error, 2)
    except DistError as error:
        return _complain(error, 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # `jupyter dist logs | head`: the reader has ended, and the flush at exit must not print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1


def _for_terminal(text: str) -> str:
    """Rewrite a notebook's advice for a shell."""
    return text.replace("%dist ", "jupyter dist ")


def _show(value: Any) -> int:
    from ..showing.run import Run

    if isinstance(value, Run):  # its output has already been shown
        state = State(value.state)
        return {State.FAILED: 1, State.LOST: 1, State.UNWATCHED: 1, State.STOPPED: 130}.get(state, 0)
    if value is not None:
        print(str(value))
    sys.stdout.flush()
    return 0


def _complain(error: DistError, status: int) -> int:
    of_ranks = isinstance(error, RunFailed | RunStopped | ResultError)  # it quotes what the ranks wrote
    with contextlib.suppress(OSError):
        print(f"jupyter dist: {error if of_ranks else _for_terminal(str(error))}", file=sys.stderr)
    return status
