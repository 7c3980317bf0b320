"""The magics `%%distribute` and `%dist`: they start runs from cells and show them in the notebook."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, no_var_expand

from . import start
from .capture import trainer_calls
from .commands import dispatch, flag_groups
from .commands.help_texts import help_text
from .commands.run_commands import Context
from .errors import InputError
from .flags import split_line
from .option_values import name_in_code
from .options import NOT_IN_SESSION
from .plan.run_plan import make_plan, read_command_line
from .showing import display, frontends
from .start import session_default, session_plan
from .text.table import Message
from .worker.session import place

__all__ = ["DistMagics"]

_ABOUT = (
    "Runs the cell on every rank and shows the output of all ranks. Each rank is a "
    "separate process. jupyter-dist sends the notebook variables that the cell uses. The "
    "value of the last expression is the rank's result. Variables of the notebook "
    "replace {name} and $name in a flag's value, except in --metric. {my_run.id} is an attribute."
)
_SESSION_ALONE = re.compile(r"(?<!\S)--session(?=\s|$)")
_NAME = r"([^\W\d]\w*(?:\.[^\W\d]\w*)*)"
_VARIABLE = re.compile(rf"\{{{_NAME}\}}|\${_NAME}")


@magics_class
class DistMagics(Magics):
    """The magics of jupyter-dist."""

    # This turns IPython's own expansion off, which would read the braces of a regular expression as Python.
    @no_var_expand
    @line_cell_magic
    def distribute(self, line: str, cell: str | None = None) -> Any:
        """Run this cell on every rank.

        %%distribute [--backend B | --cluster C] [-np N] [--out VAR] [--detach] [flags]

        Returns the Run: its `results`, `metrics`, `log(rank)`. `%distribute --help` lists the flags.
        """
        shell = self.shell
        assert shell is not None
        if cell is None:
            line, cell = _split_code(line)
        kept = session_plan.recall(line.strip())
        if kept is not None:
            plan, given = kept.plan, kept.given
        else:
            typed = read_command_line(line, expand=_expander(shell.user_ns))
            if typed.help:
                usage = "%%distribute [flags]"
                return Message(help_text(usage, _ABOUT, flag_groups(typed.backend)))
            if typed.rest and cell is None:
                raise InputError(
                    "%distribute, with one %, runs a line of code in a session only: %distribute --session "
                    "CODE. Or write %%distribute, with two %, in the first line of a cell"
                )
            if typed.rest:
                raise InputError(
                    f"%%distribute does not accept the word {typed.rest[0]!r}. Flags begin with - or --"
                )
            given, name = typed.given, session_default.get()
            if name is not None and "session" not in given and given.keys().isdisjoint(NOT_IN_SESSION):
                given = {**given, "session": name}
        if cell is None:
            raise InputError(
                "%distribute has no cell to run. Write %%distribute, with two %, in the first line of a cell"
            )
        if not _has_code(cell):
            raise InputError("the cell is empty. Write the code to run below %%distribute")
        if kept is None:
            plan = make_plan(given)
        source = "\n" + cell  # the magic's line, so that line numbers in tracebacks match the editor
        origin = start.origin_in(shell, line.strip())
        if plan.run.dry_run:
            if plan.run.session is not None:
                return start.describe_in_session(source, shell.user_ns, plan, origin, given)
            return start.describe(source, shell.user_ns, plan, origin)
        start.warn(plan)
        if plan.run.session is not None:
            found = None if kept is None else kept.session
            run = start.cell_in_session(source, shell.user_ns, plan, origin, given, found)
        else:
            run = start.start_cell(source, shell.user_ns, plan, origin)
        if plan.run.out is not None:
            # Set before the run's end, so that the variable exists even if the cell fails or is interrupted.
            shell.user_ns[plan.run.out] = run
        return run if plan.run.detach else start.finish(run)

    @no_var_expand
    @line_magic
    def dist(self, line: str) -> Any:
        """Manage runs, logs, clusters and backends. `%dist --help` lists the commands."""
        shell = self.shell
        assert shell is not None
        return dispatch(line, Context(), _expander(shell.user_ns))


def _split_code(line: str) -> tuple[str, str | None]:
    """Split the line of `%distribute --session CODE` into flags and code. There is none without --session.

    The session's name is joined to its flag there, as in `--session=NAME`.
    """
    flags = _SESSION_ALONE.sub(f"--session={place.DEFAULT}", line)
    for word in re.finditer(r"\S+", flags):
        before = flags[: word.start()]
        if word[0].startswith("-") or "--session" not in before:
            continue
        with contextlib.suppress(InputError):
            if read_command_line([*split_line(before), "code"], first_word_ends=True).rest == ("code",):
                return before, flags[word.start() :]
    return line, None


def _has_code(cell: str) -> bool:
    lines = (line.strip() for line in cell.splitlines())
    return any(line and not line.startswith("#") for line in lines)


def _expander(namespace: Mapping[str, Any]) -> Callable[[str], str]:
    """Return a function that replaces `{name}` and `$name` by notebook variables. Other text stays unchanged.

    `{name.attribute}` and `$name.attribute` are attributes, as in IPython's own magics. Methods do not count,
    so `$stem.format` ends with the text `.format`. The replacement follows the split of the line, so a value
    with blanks or quotes stays one value."""

    def value(match: re.Match[str]) -> str:
        name, *attributes = name_in_code(match[1] or match[2]).split(".")
        if name not in namespace:
            return match[0]
        found = namespace[name]
        while attributes and not callable(inner := getattr(found, attributes[0], callable)):
            found = inner
            del attributes[0]
        if attributes and match[1]:
            return match[0]
        return ".".join([str(found), *attributes])

    return lambda text: _VARIABLE.sub(value, text)


# A `complete_command` hook would mix Python's names with the flags, so this is a matcher.
@context_matcher()  # type: ignore[untyped-decorator]
def _matcher(context: CompletionContext) -> Any:
    from .commands.completion import complete

    typed, found = complete(context.text_until_cursor)
    if not found:
        typed, found = context.token, session_default.names(context.full_text, context.token)
        return {"completions": [SimpleCompletion(name) for name in found], "matched_fragment": typed}
    completions = [SimpleCompletion(name) for name in found]
    return {"completions": completions, "matched_fragment": typed, "suppress": bool(found), "ordered": True}


class _Preloader:
    """Hook after each cell: lets the template import the modules that the notebook has imported."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def __call__(self, *_: object) -> None:
        # The preload is a convenience. Its errors must not disturb a cell.
        with contextlib.suppress(Exception):
            from .launch import template

            template.observe(self._shell.user_ns)


def _preloaders(shell: InteractiveShell) -> list[_Preloader]:
    return [found for found in shell.events.callbacks["post_run_cell"] if isinstance(found, _Preloader)]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add the magics to a shell. Repeatable."""
    if _preloaders(shell):
        return
    trainer_calls.install()
    shell.register_magics(DistMagics)
    shell.Completer.custom_matchers.append(_matcher)
    if display.in_kernel():
        frontends.probe()
    shell.events.register("post_run_cell", _Preloader(shell))


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Remove the magics from a shell. Runs continue."""
    for preloader in _preloaders(shell):
        shell.events.unregister("post_run_cell", preloader)
    for kind, name in (("cell", "distribute"), ("line", "distribute"), ("line", "dist")):
        shell.magics_manager.magics[kind].pop(name, None)
    trainer_calls.remove()
    if _matcher in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.remove(_matcher)
    from .launch import template

    template.close()
