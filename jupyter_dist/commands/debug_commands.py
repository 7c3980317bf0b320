"""`%dist debug`: the prompts of ranks that wait at a breakpoint, at an error or in `input()`."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from .. import start
from ..errors import DistError, InputError, RunNotFound
from ..folder import RunFolder, find, runs
from ..job import State
from ..manage.rank_prompts import PAUSE_S, Prompts
from ..record import reader, run_list
from ..record.prompts import sentence
from ..text.fold import members, named
from ..text.table import Message
from .run_commands import Command, Context

__all__ = ["DEBUG_COMMANDS"]

_ARRIVE_S = 5.0
"""How long the command waits for a rank to stop."""
_ANSWER_S = 10.0
_RUN_ID = re.compile(r"[0-9a-f][0-9a-f-]{3,}(-t\d+)?")
_RANKS = re.compile(r"\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*")


def _debug(context: Context, words: Sequence[str]) -> Message | None:
    folder, ranks, line = _read(words[0] if words else "")
    folder = folder or _waiting_run()
    prompts = Prompts(folder, ranks)
    _check(prompts, ranks)
    from ..showing.debugger import conversation, input_box

    try:
        if line:
            return Message(_answers(prompts, ranks, line))
        conversation.converse(prompts, until_all_run=False)
    except input_box.NoInput as nobody:
        raise InputError(
            f"%dist debug needs an input box, and {nobody}. Send one command: %dist debug --all where"
        ) from None
    except KeyboardInterrupt:
        prompts.look()
        return Message("Left the debugger. " + (_who(prompts) or "No rank waits."))
    return None


def _read(text: str) -> tuple[RunFolder | None, list[int] | None, str]:
    """Return the run, the ranks and the line in what the user has typed. The ranks are None for all."""
    folder, ranks = None, None
    while text := text.strip():
        word, _, rest = text.partition(" ")
        if word == "--all":
            return folder, ranks, rest.strip()
        if ranks is None and folder is None and (found := _run(word)) is not None:
            folder, text = found, rest
        elif ranks is None and _RANKS.fullmatch(word):
            ranks, text = sorted(members(word)), rest
            if not ranks:
                raise InputError(f"{word!r} names no rank. Write the smaller rank first, such as 0-3,7")
        else:
            break
    return folder, ranks, text


def _run(word: str) -> RunFolder | None:
    if not _RUN_ID.fullmatch(word):
        return None
    try:
        return find(word)
    except RunNotFound:
        if len(word) > 15:  # no command of pdb looks like this
            raise
        return None


def _waiting_run() -> RunFolder:
    """Return the run whose ranks wait. If several runs wait, one must be this kernel's last run."""
    last = start.last_run_id()
    waiting = []
    for folder in runs(trials=True):
        status = reader.status(folder)
        if status.waits and not status.state.ended:
            waiting.append(folder)
    mine = [folder for folder in waiting if folder.id == last]
    if mine or len(waiting) == 1:
        return (mine or waiting)[0]
    if waiting:
        names = ", ".join(folder.id for folder in waiting[:10])
        raise InputError(f"the ranks of {len(waiting)} runs wait. Name one of them: {names}")
    return run_list.choose(None, running=True, last=last)


def _check(prompts: Prompts, ranks: list[int] | None) -> None:
    """Wait a moment for ranks that wait. Raises DistError if there are none."""
    id = prompts.folder.id
    size = len(prompts.status.ranks)
    if ranks is not None and size and max(ranks) >= size:
        raise InputError(f"run {id} has no rank {max(ranks)}. It has {named(range(size))}")
    deadline = time.monotonic() + _ARRIVE_S
    while not (prompts.ready or prompts.busy):
        if prompts.ended:
            raise DistError(f"Run {id} has ended ({prompts.status.state}), so no rank waits.")
        if prompts.status.state is State.UNWATCHED:
            raise DistError(
                f"Run {id} has no supervisor, so nobody can answer its ranks. Attach first with "
                f"`%dist attach {id}`."
            )
        if time.monotonic() > deadline:
            others = Prompts(prompts.folder)
            who = "No rank" if ranks is None else f"None of {named(ranks)}" if ranks[1:] else named(ranks)
            waits = "does not wait" if ranks is not None and not ranks[1:] else "waits"
            raise DistError(
                f"{who[0].upper()}{who[1:]} of run {id} {waits} for you. {_who(others) or 'All ranks run.'} "
                "A rank stops at breakpoint(), in input(), and with --pdb at its error."
            )
        time.sleep(PAUSE_S)
        prompts.look()


def _who(prompts: Prompts) -> str:
    said = sentence(prompts.waits)
    return f"{said[0].upper()}{said[1:]}." if said else ""


def _answers(prompts: Prompts, ranks: list[int] | None, line: str) -> str:
    """Send one line to the ranks, and return what they print. Raises DistError if none waits any more."""
    from ..showing.debugger.conversation import said, settle

    while not (group := settle(prompts, set())):
        _check(prompts, ranks)  # a rank that worked on another line has gone on
    prompts.printed()
    before = {one.rank: one.why for one in group}
    try:
        sent = prompts.answer(group, line)
        slow = prompts.wait(sent, _ANSWER_S)
    finally:
        prompts.close()
    parts = [said(prompts)]
    now = {wait.rank: wait for wait in prompts.waits}
    left = [rank for rank in sent if rank not in slow and rank not in now]
    elsewhere = [now[rank] for rank in sent if rank in now and now[rank].why != before[rank]]
    if slow:
        parts.append(f"{named(slow)} {'is' if len(slow) == 1 else 'are'} still working on it.")
    for verb, ranks in (
        ("end", [rank for rank in left if rank in prompts.ending]),
        ("continue", [rank for rank in left if rank not in prompts.ending]),
    ):
        if ranks:
            parts.append(f"{named(ranks)} {verb}{'s' if len(ranks) == 1 else ''}.")
    if elsewhere:
        parts.append(f"{sentence(elsewhere)}.")
    return "\n".join(filter(None, parts))


def _no_flags() -> Sequence[tuple[str, Sequence[Any]]]:
    return ()


DEBUG_COMMANDS = (
    Command(
        "debug",
        "debug [ID] [RANKS | --all] [LINE]",
        "Answer ranks that wait at a breakpoint, at an error (--pdb) or in input(). Without LINE it opens "
        "a prompt. With LINE it sends one command of pdb, as in `p loss`, and shows all answers.",
        _debug,
        _no_flags,
        verbatim=True,
    ),
)
