"""The conversation with ranks that wait: what they print, their prompt, the user's line, in turn.

Ranks at the same kind of prompt are asked together. Equal texts of several ranks are shown once.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from ...manage.rank_prompts import PAUSE_S, Prompts
from ...record.prompts import RankPrompts
from ...text.fold import members, named
from ...text.safe import clean
from ...worker.debugger.channel import INPUT
from . import input_box

__all__ = ["converse", "folded", "said", "settle"]

_SETTLE_S = 0.3
"""Ranks often arrive at a breakpoint one after the other. The user is asked once they have settled."""
_ANSWER_S = 2.0
"""If a rank works longer on a line, the user is asked for the other ranks meanwhile."""
_END_LINES, _END_BYTES = 250, 50_000
"""How much of each end of a long text is shown. A notebook keeps it for ever."""
_FOR_SOME = re.compile(r"\s*(\d+(?:-\d+)?(?:\s*,\s*\d+(?:-\d+)?)*)\s*:\s*(\S.*)")
_NOBODY = (
    "Nobody can answer this rank: {why}. Run the cell with --detach, and answer with `%dist debug` in a "
    "later cell, or remove the question."
)


def converse(prompts: Prompts, *, until_all_run: bool, begin: Callable[[], object] | None = None) -> None:
    """Let the user answer ranks until none waits. Blocks. An interrupt raises KeyboardInterrupt.

    `until_all_run`: return while ranks step for a while. By default, wait for the line at which they stop.
    `begin`: is called before the first question, if there is one.

    If there is no input, ranks of a run that this cell follows get an error. Otherwise raises NoInput.
    """
    slow: set[int] = set()
    try:
        while group := settle(prompts, slow, most_s=_ANSWER_S if until_all_run else None):
            if begin is not None:
                begin()
                begin = None
            _show(prompts)
            _ask(prompts, group, refuse=until_all_run)
    finally:
        prompts.close()
    _show(prompts)


def _ask(prompts: Prompts, group: Sequence[RankPrompts], *, refuse: bool) -> None:
    """Ask for one line, send it, and wait a while for what it does."""
    asked = {one.rank: one.prompt for one in group}

    def is_wanted() -> bool:
        prompts.look()
        ready = {one.rank: one.prompt for one in prompts.ready}
        return not prompts.ended and any(ready.get(rank) == prompt for rank, prompt in asked.items())

    try:
        line = input_box.read_line(_prompt(prompts, group), is_wanted)
    except EOFError:
        print()
        sent = prompts.answer(group, None)
    except input_box.NoInput as nobody:
        if not refuse:
            raise
        sent = prompts.answer(group, None, _NOBODY.format(why=nobody))
    else:
        if line is None:
            return
        chosen, line = _chosen(prompts, group, line)
        if not chosen:
            print(f"These ranks do not wait here. There are: {named(asked)}.")
        sent = prompts.answer(chosen, line)
    prompts.wait(sent, _ANSWER_S)


def _chosen(prompts: Prompts, group: Sequence[RankPrompts], line: str) -> tuple[Sequence[RankPrompts], str]:
    """Return the ranks that a line is for. `0,2-3: p x` is for these ranks, any other line for all."""
    found = _FOR_SOME.fullmatch(line)
    if len(prompts.status.ranks) == 1 or found is None or group[0].why == INPUT:
        return group, line
    ranks = members(found[1])
    return [one for one in group if one.rank in ranks], found[2]


def _prompt(prompts: Prompts, group: Sequence[RankPrompts]) -> str:
    text = clean(group[0].prompt_text, colour=False)
    if len(prompts.status.ranks) == 1:
        return text
    who = named(one.rank for one in group)
    return f"{who}: {text}" if group[0].why == INPUT else f"{who} {text}"


def settle(prompts: Prompts, slow: set[int], most_s: float | None = None) -> list[RankPrompts]:
    """Wait until ranks wait together, and return them. Returns an empty list if no rank stops any more.

    `slow`: ranks that work on a line for long, and for which the others need not wait. The function updates
    the set. `most_s`: how long to wait while no rank waits. Blocks.
    """
    began = changed = time.monotonic()
    known: list[tuple[int, str | None]] = []
    while True:
        prompts.look()
        now = time.monotonic()
        group, busy = prompts.together(), set(prompts.busy)
        slow &= busy
        seen = [(one.rank, one.prompt) for one in group]
        if seen != known:
            known, changed = seen, now
        if prompts.ended or not (group or busy):
            return []
        if group and busy <= slow and (now - changed >= _SETTLE_S or _are_all(prompts, group)):
            return group
        if now - max(began, changed) >= _ANSWER_S and not busy <= slow:
            slow |= busy
            if group or most_s is None:
                leave = "" if group else " An interrupt leaves the debugger."
                print(f"{_begun(named(busy))} {'is' if len(busy) == 1 else 'are'} still running.{leave}")
        if not group and most_s is not None and now - began >= most_s:
            return []
        time.sleep(PAUSE_S)


def _are_all(prompts: Prompts, group: Sequence[RankPrompts]) -> bool:
    """Return whether no other rank may arrive at the prompt soon. A rank that works on a line may."""
    return len(group) == len(prompts.running)


def _begun(text: str) -> str:
    return text[0].upper() + text[1:]


def _show(prompts: Prompts) -> None:
    if text := said(prompts):
        print(text)


def said(prompts: Prompts) -> str:
    """Return what the debuggers have printed since the last call. Of long texts, the middle is left out."""
    return folded(prompts.printed(), alone=len(prompts.status.ranks) == 1, file=prompts.file)


def folded(
    texts: Mapping[int, str], *, alone: bool = False, file: Callable[[int], object] = "rank {}".format
) -> str:
    """Return the texts of ranks, each text once: `ranks 0,2-3: 0.31`.

    `alone`: the run has one rank. `file`: returns the file with the whole text of a rank.
    """
    groups: dict[tuple[tuple[str, ...], int, tuple[str, ...], str], list[int]] = {}
    for rank, text in sorted(texts.items()):
        groups.setdefault(_cut(text), []).append(rank)
    found = []
    for (head, left_out, tail, _), ranks in groups.items():
        gap = [f"… {left_out} lines are left out. All lines: {file(ranks[0])}"] if left_out else []
        text = "\n".join([*head, *gap, *tail])
        found.append(text if alone else f"{named(ranks)}:{chr(10) if chr(10) in text else ' '}{text}")
    return "\n".join(found)


def _cut(text: str) -> tuple[tuple[str, ...], int, tuple[str, ...], str]:
    """Split a text into its first lines, the number of left-out lines, its last lines, and the whole text.

    The whole text is empty if no line is left out.
    """
    lines = text.rstrip("\n").split("\n")
    head = _fitting(lines)
    rest = lines[len(head) :]
    tail = _fitting(reversed(rest))[::-1]
    left_out = len(rest) - len(tail)
    return head, left_out, tail, text if left_out else ""


def _fitting(lines: Iterable[str]) -> tuple[str, ...]:
    """Return cleaned lines until they fill one end of a long text."""
    found: list[str] = []
    room = _END_BYTES
    for line in itertools.islice(lines, _END_LINES):
        cleaned = clean(line, colour=False)
        room -= len(cleaned)
        if room < 0:
            break
        found.append(cleaned)
    return tuple(found)
