"""Tab completion in a line of `%%distribute` or `%dist`: flags, their values, commands, runs, clusters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from .. import backends, clusters
from ..errors import DistError
from ..flags import Flag, flags_of
from ..folder import runs
from ..plan.run_plan import backend_of, run_flags
from ..record.sessions import list_sessions
from . import _tree
from .run_commands import Command, Context
from .session_commands import SESSION_COMMANDS

__all__ = ["complete"]

_MAGICS = ("%%distribute", "%distribute", "%dist")
_NEWEST = 20


def complete(text: str) -> tuple[str, list[str]]:
    """Return the unfinished word at the end of `text`, and its possible completions. Never raises.

    `text` is a magic's line up to the cursor. Other lines have no completions.
    """
    magic, *words = text.split() or [""]
    if text[-1:].isspace():
        words.append("")
    if magic not in _MAGICS or not words:
        return "", []
    *before, word = words
    try:
        if magic == "%dist":
            found = _command(_tree(Context()), before, word)
        else:
            found = _flags([*run_flags(), *_backends_flags(before)], before, word)
    except DistError:  # for example, the file of clusters is invalid
        return word, []
    typed = word.rpartition("=")[2]
    return typed, [name for name in found if name.startswith(typed)]


def _backends_flags(before: Sequence[str]) -> tuple[Flag, ...]:
    try:
        return flags_of(backend_of(before).options)
    except DistError:  # the name is incomplete
        return ()


def _flags(known: Sequence[Flag], before: Sequence[str], word: str) -> list[str]:
    by_name = {name: flag for flag in known for name in flag.names}
    name, equals, _ = word.partition("=")
    last = by_name.get(name if equals else before[-1] if before else "")
    may_be_alone = last is not None and last.alone is not None and not equals and word.startswith("-")
    if last is not None and last.kind != "switch" and not may_be_alone:
        return _values(last)
    given = {by_name[word].field for word in before if word in by_name and by_name[word].kind != "pairs"}
    return [name for name, flag in by_name.items() if flag.field not in given]


def _values(flag: Flag) -> list[str]:
    if flag.field == "backend":
        return backends.names()
    if flag.field == "session":
        return [session.name for session in list_sessions()]
    if flag.field == "cluster":
        return list(clusters.load())
    choices = flag.metavar.split("|")
    return [choice for choice in choices if choice.islower()] if len(choices) > 1 else []


def _command(commands: Sequence[Command], before: Sequence[str], word: str) -> list[str]:
    known = {command.name: command for command in commands}
    if not before:
        return list(known)
    chosen = known.get(before[0])
    if chosen is None:
        return []
    if chosen.children:
        return _command(chosen.children, before[1:], word)
    flags = _flags([flag for _, group in chosen.flags() for flag in group], before[1:], word)
    if word.startswith("-") or not (words := _words(chosen)):
        return flags
    return words


def _words(command: Command) -> list[str]:
    """Return what a command takes besides flags, judged by its usage text."""
    if "ID" in command.usage:
        return [folder.id for folder in itertools.islice(runs(), _NEWEST)]
    if "BACKEND" in command.usage:
        return backends.names()
    if command in SESSION_COMMANDS:
        return [session.name for session in list_sessions()] if "NAME" in command.usage else []
    return list(clusters.load()) if "NAME" in command.usage else []
